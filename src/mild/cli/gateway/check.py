"""``mild check``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table

if TYPE_CHECKING:
    from mild.gateway.config import Settings
    from mild.gateway.config_checks import ConfigFinding

# Fields of an expert in the result.
EXPERT_FIELDS = (
    "base_url", "model", "price_in", "price_out", "price_per_query", "max_tokens", "max_in_flight",
    "requests_per_minute", "price_cached_in", "role", "vision", "tools", "json_schema", "reasoning",
    "context", "max_output",
)  # fmt: skip


def check(
    config: Annotated[
        Path, Argument(help="mild.toml, or a config.yaml of LiteLLM.", metavar="CONFIG")
    ],
    router: Annotated[
        Path | None,
        Option("--router", "-r", help="Folder of the router. Default: the one in CONFIG."),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Check the configuration of the gateway.

    The file, its secrets and the router are read; a PostgreSQL store is read, not changed. No expert is
    asked and no port is opened. Errors name the line; secrets are never shown. The exit code is 1 if the
    gateway could not start with the file.

    \b
    Example:
      mild check mild.toml
    """
    from mild.artifact import load
    from mild.gateway.config import read_settings
    from mild.gateway.config_checks import findings_against, findings_in
    from mild.gateway.tracing import is_enabled

    settings = read_settings(config)
    folder = router or settings.router
    loaded = None if folder is None else load(folder)
    findings = findings_in(settings) if loaded is None else findings_against(settings, loaded)
    findings = [*_about_store(settings), *_about_traces(settings), *findings]
    errors = [finding for finding in findings if finding.kind == "error"]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    experts = {
        expert.name: {"key": None if expert.secret is None else expert.secret.source}
        | {field: getattr(expert, field) for field in EXPERT_FIELDS}
        for expert in settings.experts
    }
    result: dict[str, Any] = {
        "config": str(config),
        "listens": f"http://{host}:{settings.port}",
        "workers": settings.workers,
        "router": None if folder is None else str(folder),
        "router_experts": None if loaded is None else loaded.expert_names,
        "experts": experts,
        "requires_key": settings.requires_key,
        "budget_day": settings.access.budget_day,
        "budget_month": settings.access.budget_month,
        "requests_per_minute": settings.access.requests_per_minute,
        "store": None if settings.store is None else str(settings.store),
        "when_store_lost": "shed" if settings.sheds else "serve",
        "ledger": None if settings.ledger.path is None else str(settings.ledger.path),
        "tracing": is_enabled(settings.tracing),
        "findings": [{"kind": finding.kind, "text": finding.text} for finding in findings],
        "ok": not errors,
    }
    emit(result, as_json, lambda: _show(result, settings))
    for finding in findings:
        note(finding.text, finding.kind)
    if errors:
        raise typer.Exit(1)
    if loaded is None and not as_json:
        note("no router is named, so expert names are not checked against it: --router DIR.")


def _about_store(settings: Settings) -> list[ConfigFinding]:
    """Problems of a PostgreSQL store; an SQLite file is created when it is needed."""
    from mild.errors import MildError
    from mild.gateway.config_checks import ConfigFinding
    from mild.gateway.database import Address, DatabaseError
    from mild.gateway.database.engine import SCHEMA, inspect_database

    address = settings.store
    if not isinstance(address, Address):
        return []
    try:
        version = inspect_database(address)
    except DatabaseError as error:
        return [ConfigFinding("error", f"{address.shown}: the store cannot be used: {error}.")]
    except MildError as error:
        return [ConfigFinding("error", str(error))]
    if version < SCHEMA:
        return [
            ConfigFinding("note", f"{address.shown}: its tables are created at the first start.")
        ]
    return []


def _about_traces(settings: Settings) -> list[ConfigFinding]:
    """The extra that traces need, where it is missing."""
    from mild.errors import MissingExtraError
    from mild.gateway.config_checks import ConfigFinding
    from mild.gateway.tracing import import_exporter

    if not (settings.tracing.enabled or settings.tracing.endpoint):
        return []
    try:
        import_exporter()
    except MissingExtraError as error:
        return [ConfigFinding("error", str(error))]
    return []


def _show(result: dict[str, Any], settings: Settings) -> None:
    experts = result["experts"].values()
    keys = [expert["key"] or "–" for expert in experts]
    columns = {
        "expert": list(result["experts"]),
        "endpoint": [expert["base_url"] for expert in experts],
        "model": [expert["model"] for expert in experts],
        "key from": [key.removeprefix("the ") for key in keys],
        "$ in": [_price(expert["price_in"], expert["price_per_query"]) for expert in experts],
        "$ out": [_price(expert["price_out"], None) for expert in experts],
    }
    if any(expert["role"] != "routed" for expert in experts):
        columns["role"] = [expert["role"] for expert in experts]
    title = f"{result['config']}: {len(experts)} experts; prices per million tokens"
    print_table(title, columns, left=("endpoint", "model", "key from", "role"))
    if result["router_experts"] is not None:
        names = ", ".join(result["router_experts"])
        typer.echo(f"Router   {result['router']}, trained on {names}")
    workers = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
    typer.echo(f"Listens  {result['listens']}, {workers}")
    typer.echo(f"Access   {_access(settings)}")
    lost = "requests are refused"
    if not settings.sheds:
        allowed = f"${settings.access.lost_allowance:g} of budgets per day"
        lost = f"known keys are served, and each worker spends at most {allowed}"
    typer.echo(f"Store    {settings.store}; while it is unavailable, {lost}")
    kept = f"{result['ledger']}, {settings.ledger.keep_days:g} days"
    typer.echo(f"Ledger   {kept if result['ledger'] else 'none'}")
    if result["tracing"]:
        typer.echo(f"Traces   {settings.tracing.endpoint or 'as the variables OTEL_* say'}")


def _access(settings: Settings) -> str:
    access = settings.access
    words = ["a key is required" if settings.requires_key else "no key is required"]
    for window, budget in (("day", access.budget_day), ("month", access.budget_month)):
        if budget is not None:
            words.append(f"${budget:g} per {window}")
    if len(words) == 1:
        words.append("no overall budget")
    if access.requests_per_minute is not None:
        words.append(f"{access.requests_per_minute} requests per minute and key")
    return ", ".join(words)


def _price(price: float | None, per_query: float | None) -> str:
    words = [] if price is None else [f"{price:g}"]
    if per_query is not None:
        words.append(f"{per_query:g} each")
    return " + ".join(words) or "–"

"""``mild check``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, print_table

if TYPE_CHECKING:
    from mild.gateway.settings import ExpertSettings, Finding, Settings

__all__ = ["check"]


def check(
    config: Annotated[
        Path,
        typer.Argument(help="mild.toml, or a config.yaml of LiteLLM.", metavar="CONFIG"),
    ],
    router: Annotated[
        Path | None,
        typer.Option("--router", "-r", help="Folder of the router. Default: the one in CONFIG."),
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
    from mild.gateway.settings import findings_against, findings_in, read_settings

    settings = read_settings(config)
    folder = router or settings.router
    loaded = None if folder is None else load(folder)
    findings = findings_in(settings) if loaded is None else findings_against(settings, loaded)
    findings = [*_about_store(settings), *findings]
    errors = [finding for finding in findings if finding.kind == "error"]
    result: dict[str, Any] = {
        "config": str(config),
        "listens": f"http://{_host(settings)}:{settings.port}",
        "workers": settings.workers,
        "router": None if folder is None else str(folder),
        "router_experts": None if loaded is None else loaded.expert_names,
        "experts": {expert.name: _described(expert) for expert in settings.experts},
        "requires_key": settings.requires_key,
        "budget_day": settings.access.budget_day,
        "budget_month": settings.access.budget_month,
        "requests_per_minute": settings.access.requests_per_minute,
        "store": None if settings.store is None else str(settings.store),
        "when_store_lost": "shed" if settings.sheds else "serve",
        "ledger": None if settings.ledger.path is None else str(settings.ledger.path),
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


def _about_store(settings: Settings) -> list[Finding]:
    """Problems of a PostgreSQL store; an SQLite file is created when it is needed."""
    from mild.errors import MildError
    from mild.gateway.database import Address, DatabaseError
    from mild.gateway.database.engine import SCHEMA, inspect_database
    from mild.gateway.settings import Finding

    address = settings.store
    if not isinstance(address, Address):
        return []
    try:
        version = inspect_database(address)
    except DatabaseError as error:
        return [Finding("error", f"{address.shown}: the store cannot be used: {error}.")]
    except MildError as error:
        return [Finding("error", str(error))]
    if version < SCHEMA:
        return [Finding("note", f"{address.shown}: its tables are created at the first start.")]
    return []


def _described(expert: ExpertSettings) -> dict[str, Any]:
    return {
        "base_url": expert.base_url,
        "model": expert.model,
        "key": None if expert.secret is None else expert.secret.source,
        "price_in": expert.price_in,
        "price_out": expert.price_out,
        "price_per_query": expert.price_per_query,
        "max_tokens": expert.max_tokens,
        "max_in_flight": expert.max_in_flight,
        "requests_per_minute": expert.requests_per_minute,
    }


def _show(result: dict[str, Any], settings: Settings) -> None:
    header = ["expert", "endpoint", "model", "key from", "$ in", "$ out"]
    rows = [
        [
            name,
            row["base_url"],
            row["model"],
            "–" if row["key"] is None else row["key"].removeprefix("the "),
            _price(row["price_in"], row["price_per_query"]),
            _price(row["price_out"], None),
        ]
        for name, row in result["experts"].items()
    ]
    title = f"{result['config']}: {len(rows)} experts; prices per million tokens"
    print_table(title, header, rows, left=header[:4])
    if result["router_experts"] is not None:
        names = ", ".join(result["router_experts"])
        typer.echo(f"Router   {result['router']}, trained on {names}")
    workers = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
    typer.echo(f"Listens  {result['listens']}, {workers}")
    typer.echo(f"Access   {_access(settings)}")
    lost = "requests are refused" if settings.sheds else "reserved budgets are spent"
    typer.echo(f"Store    {settings.store}; while it is unavailable, {lost}")
    kept = "none" if settings.ledger.path is None else str(settings.ledger.path)
    typer.echo(
        f"Ledger   {kept}" + (f", {settings.ledger.keep_days:g} days" * bool(result["ledger"]))
    )


def _access(settings: Settings) -> str:
    access = settings.access
    words = ["a key is required" if settings.requires_key else "no key is required"]
    for window, budget in (("day", access.budget_day), ("month", access.budget_month)):
        if budget is not None:
            words.append(f"${budget:g} per {window}")
    if access.budget_day is None and access.budget_month is None:
        words.append("no overall budget")
    if access.requests_per_minute is not None:
        words.append(f"{access.requests_per_minute} requests per minute and key")
    return ", ".join(words)


def _host(settings: Settings) -> str:
    return f"[{settings.host}]" if ":" in settings.host else settings.host


def _price(price: float | None, per_query: float | None) -> str:
    words = [] if price is None else [f"{price:g}"]
    if per_query is not None:
        words.append(f"{per_query:g} each")
    return " + ".join(words) or "–"

"""``mild check``"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from mild.cli import AsJson, emit, note, print_table

if TYPE_CHECKING:
    from mild_gateway.config import Settings


def check(
    config: Annotated[
        Path, Argument(help="mild.toml, or a config.yaml of LiteLLM.", metavar="CONFIG")
    ],
    router: Annotated[
        Path | None,
        Option("--router", "-r", help="Folder of the router. Default: the one in CONFIG."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the configuration of the gateway.

    The file, its secrets and the router are read; a PostgreSQL store is read, not changed. No expert is
    asked and no port is opened. Errors name the line; secrets are never shown. The exit code is 1 if the
    gateway could not start with the file.

    \b
    Example:
      mild check mild.toml
    """
    from mild_gateway.config_checks import check_config

    found = check_config(config, router)
    result = found.as_dict()
    emit(result, as_json, lambda: _show_config(result, found.settings))
    for finding in found.findings:
        note(finding.text, finding.kind)
    if not result["ok"]:
        raise typer.Exit(1)
    if result["router"] is None and not as_json:
        note("no router is given, so the names of the experts are not checked; add --router DIR.")


def _show_config(result: dict[str, Any], settings: Settings) -> None:
    experts = result["experts"].values()
    keys = [expert["key"] or "–" for expert in experts]
    columns = {
        "expert": list(result["experts"]),
        "endpoint": [expert["base_url"] for expert in experts],
        "model": [expert["model"] for expert in experts],
        "key from": [key.removeprefix("the ") for key in keys],
        "$ in": [_price_cell(expert["price_in"], expert["price_per_query"]) for expert in experts],
        "$ out": [_price_cell(expert["price_out"], None) for expert in experts],
    }
    if any(expert["role"] != "routed" for expert in experts):
        columns["role"] = [expert["role"] for expert in experts]
    if any(expert["extra"] for expert in experts):
        columns["extra"] = [
            json.dumps(expert["extra"]) if expert["extra"] else "–" for expert in experts
        ]
    title = f"{result['config']}: {len(experts)} experts; prices per million tokens"
    print_table(title, columns, left=("endpoint", "model", "key from", "role", "extra"))
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


def _price_cell(price: float | None, per_query: float | None) -> str:
    words = [] if price is None else [f"{price:g}"]
    if per_query is not None:
        words.append(f"{per_query:g} each")
    return " + ".join(words) or "–"

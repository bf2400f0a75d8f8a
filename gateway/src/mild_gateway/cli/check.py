"""``mild check``"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from mild.errors import count_noun
from mild_gateway.cli.console import AsJson, columns_of, emit, note, print_table

if TYPE_CHECKING:
    from mild_gateway.config import Settings


def check(
    config: Annotated[Path, Argument(help="mild.toml.", metavar="CONFIG")],
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

    checked = check_config(config, router)
    result = checked.as_dict()
    emit(result, as_json, lambda: _show_config(result, checked.settings))
    for finding in checked.findings:
        note(finding.text, finding.kind)
    if not result["ok"]:
        raise typer.Exit(1)
    if result["router"] is None and not as_json:
        note("no router is given, so the names of the experts are not checked; add --router DIR.")


def _show_config(result: dict[str, Any], settings: Settings) -> None:
    columns = _expert_columns(result["experts"])
    n_experts = count_noun(len(result["experts"]), "expert")
    title = f"{result['config']}: {n_experts}; prices per million tokens"
    print_table(title, columns, left=("endpoint", "model", "key from", "role", "extra"))
    if result["router_experts"] is not None:
        names = ", ".join(result["router_experts"])
        typer.echo(f"Router   {result['router']}, trained on {names}")
    typer.echo(f"Listens  {result['listens']}, {count_noun(settings.workers, 'worker')}")
    typer.echo(f"Access   {_access(settings)}")
    typer.echo(f"Store    {settings.store}; while it is unavailable, requests are refused")
    ledger = "none"
    if result["ledger"]:
        ledger = f"{result['ledger']}, {settings.ledger.keep_days:g} days"
    typer.echo(f"Ledger   {ledger}")
    if result["tracing"]:
        typer.echo(f"Traces   {settings.tracing.endpoint or 'as the variables OTEL_* say'}")


def _expert_columns(experts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Cells by column; role and extra fields only where an expert has them."""
    rows = []
    has_roles = False
    has_extra = False
    for name, expert in experts.items():
        key_source = expert["key"] or "–"
        rows.append(
            {
                "expert": name,
                "endpoint": expert["base_url"],
                "model": expert["model"],
                "key from": key_source.removeprefix("the "),
                "$ in": _price_cell(expert["price_in"], expert["price_per_query"]),
                "$ out": _price_cell(expert["price_out"], None),
                "role": expert["role"],
                "extra": _extra_cell(expert["extra"]),
            }
        )
        has_roles = has_roles or expert["role"] != "routed"
        has_extra = has_extra or bool(expert["extra"])
    columns = columns_of(rows)
    if not has_roles:
        del columns["role"]
    if not has_extra:
        del columns["extra"]
    return columns


def _access(settings: Settings) -> str:
    access = settings.access
    words = ["no key is required"]
    if settings.requires_key:
        words = ["a key is required"]
    for window, budget in (("day", access.budget_day), ("month", access.budget_month)):
        if budget is not None:
            words.append(f"${budget:g} per {window}")
    if len(words) == 1:
        words.append("no overall budget")
    if access.requests_per_minute is not None:
        words.append(f"{access.requests_per_minute} requests per minute and key")
    return ", ".join(words)


def _extra_cell(extra: Mapping[str, Any]) -> str:
    if not extra:
        return "–"
    return json.dumps(extra)


def _price_cell(price: float | None, per_query: float | None) -> str:
    words = []
    if price is not None:
        words.append(f"{price:g}")
    if per_query is not None:
        words.append(f"{per_query:g} each")
    return " + ".join(words) or "–"

"""``mild versions`` and ``mild rollback``"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, say

LedgerOption = Annotated[
    str | None,
    Option("--ledger", metavar="LEDGER", help="SQLite file or postgresql:// URL of the ledger."),
]
Config = Annotated[
    Path | None,
    Option("--config", "-c", help="Configuration of the gateway, which names ledger and port."),
]
Port = Annotated[
    int | None,
    Option(
        min=1,
        max=65535,
        help="Port of the gateway to reload. Default: as in --config, or 6060.",
        show_default=False,
    ),
]


def versions(
    folder: o.RouterArgument,
    ledger: LedgerOption = None,
    config: Config = None,
    as_json: o.AsJson = False,
) -> None:
    """Say which versions of a router there are, which one served when, and why.

    With --ledger or --config, also how many requests each of them decided.

    \b
    Example:
      mild versions router
      mild versions router --config mild.toml
    """
    from mild.gateway.ledger.serving import versions

    found = versions(folder, ledger or config)

    def show() -> None:
        rows = found.rows
        columns = {
            "version": [f"{row['version']}{' (serves)' * row['serves']}" for row in rows],
            "router": [row["router"] or "–" for row in rows],
            "created": [_moment(row["created"]) for row in rows],
        }
        if found.requests is not None:
            columns["requests"] = [f"{row.get('requests', 0):,}" for row in rows]
            columns["last request"] = [_moment(row.get("last")) for row in rows]
        print_table(str(folder), columns, left=("router", "created", "last request"))
        for event in found.history:
            say(f"{_moment(event.time)}: version {event.version} {event.event}, {event.why}")

    emit(found.as_dict(), as_json, show)


def rollback(
    folder: o.RouterArgument,
    to: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Version to serve. Default: the one that served before.",
            show_default=False,
        ),
    ] = None,
    why: Annotated[str, Option(metavar="TEXT", help="Reason, for mild versions.")] = "by hand",
    config: Config = None,
    port: Port = None,
    as_json: o.AsJson = False,
) -> None:
    """Serve an earlier version of a router again, and reload the gateway if one runs here.

    \b
    Example:
      mild rollback router
      mild rollback router --to 1 --config mild.toml
    """
    from mild.artifact import rollback

    found = rollback(folder, to, why)
    told = reload_served(config, port)
    report = {"folder": str(folder), "serving": found.serving, "gateway": told}

    def show() -> None:
        say(f"version {found.serving} of {folder} serves.")
        say_reloaded(told)

    emit(report, as_json, show)


def reload_served(config: Path | None, port: int | None) -> Mapping[str, Any]:
    """Reload the gateway on the port that is given, or that the file names.

    ``reloaded`` is False if none runs there; ``error`` says why one that runs kept the old router.
    """
    from mild.errors import MildError
    from mild.gateway.config import read_served
    from mild.gateway.server.state import reload_if_running

    if port is None:
        port = 6060 if config is None else read_served(config)[1]
    try:
        found = reload_if_running(port)
    except MildError as failure:
        found = {"failed": [str(failure)]}
    error = next(iter(found["failed"]), None) if found else None
    if error is not None:
        note(f"the gateway on port {port} was not reloaded: {error}", "warning")
    return {"port": port, "reloaded": found is not None and error is None, "error": error}


def say_reloaded(told: Mapping[str, Any]) -> None:
    """Say what has become of the gateway."""
    if told["reloaded"]:
        say(f"The gateway on port {told['port']} uses it.")
    elif told["error"] is None:
        say(f"No gateway of yours runs on port {told['port']}; nothing was reloaded.")


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")

"""``mild versions``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, say
from mild.cli.gateway.ledger import shown_moment

Port = Annotated[int, Option(min=1, max=65535, help="Port of the gateway here, to reload it.")]


@o.takes_options("mild.artifact:rollback")
def versions(
    *,
    folder: o.RouterArgument,
    rollback: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Serve version N again, and reload the gateway if one runs here.",
            show_default=False,
        ),
    ] = None,
    why: Annotated[str | None, Option(metavar="TEXT")] = None,
    port: Port = 6060,
    as_json: o.AsJson = False,
) -> None:
    """Say which versions of a router there are, which one served when, and why.

    With --rollback, another version serves from now on.

    \b
    Example:
      mild versions router
      mild versions router --rollback 1 --why "complaints about version 2"
    """
    from mild.artifact import read_versions

    if rollback is not None:
        _roll_back(folder, rollback, why, port, as_json)
        return
    found = read_versions(folder)
    emit(found.as_dict(), as_json, lambda: _show(found))


def _roll_back(folder: Path, version: int, why: str | None, port: int, as_json: bool) -> None:
    from mild.artifact import rollback

    known = rollback(folder, version, **o.given(why=why))
    gateway = tell_gateway(port)
    report = {"folder": str(folder), "serving": known.serving, "gateway": gateway}
    sentence = f"Version {known.serving} of {folder} serves. {used(gateway)}"
    emit(report, as_json, lambda: say(sentence))


def tell_gateway(port: int) -> dict[str, Any]:
    """Reload the gateway on a port, if this user runs one there."""
    from mild.errors import MildError
    from mild.gateway.server.state import read_state, reload_gateway

    running, error = read_state(port) is not None, None
    try:
        error = next(iter(reload_gateway(port)["failed"]), None) if running else None
    except MildError as failure:
        error = str(failure)
    if error is not None:
        note(f"the gateway on port {port} was not reloaded: {error}", "warning")
    return {"port": port, "reloaded": running and error is None, "error": error}


def used(told: Mapping[str, Any]) -> str:
    """What has become of the gateway, in a sentence."""
    if told["reloaded"]:
        return f"The gateway on port {told['port']} uses it."
    return f"No gateway on port {told['port']} was reloaded."


def _show(found: Any) -> None:
    rows = found.rows
    columns = {
        "version": [str(row["version"]) for row in rows],
        "role": [row["role"] for row in rows],
        "router": [row["router"] or "–" for row in rows],
        "created": [shown_moment(row["created"]) for row in rows],
    }
    print_table(str(found.folder), columns, left=("role", "router", "created"))
    for event in found.history:
        say(f"{shown_moment(event.time)}: version {event.version} {event.event}, {event.why}")

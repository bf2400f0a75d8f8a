"""``mild versions`` and ``mild rollback``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, say
from mild.cli.gateway.ledger import shown_moment

Port = Annotated[int, Option(min=1, max=65535, help="Port of the gateway here, to reload it.")]


def versions(folder: o.RouterArgument, as_json: o.AsJson = False) -> None:
    """Say which versions of a router there are, which one served when, and why.

    \b
    Example:
      mild versions router
    """
    from mild.artifact import read_versions

    found = read_versions(folder)
    emit(found.as_dict(), as_json, lambda: _show(found))


def rollback(
    folder: o.RouterArgument,
    to: Annotated[
        int | None, Option(metavar="N", help="Version to serve. Default: the one before.")
    ] = None,
    why: Annotated[str, Option(metavar="TEXT", help="Reason, for mild versions.")] = "by hand",
    port: Port = 6060,
    as_json: o.AsJson = False,
) -> None:
    """Serve an earlier version of a router again, and reload the gateway if one runs here.

    \b
    Example:
      mild rollback router --to 1
    """
    from mild.artifact import rollback

    found = rollback(folder, to, why)
    told = tell_gateway(port)
    report = {"folder": str(folder), "serving": found.serving, "gateway": told}
    emit(report, as_json, lambda: say(f"version {found.serving} of {folder} serves. {used(told)}"))


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

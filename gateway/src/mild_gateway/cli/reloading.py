"""A gateway on this machine is told about a new version of its router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mild.cli import note


def tell_gateway(port: int) -> dict[str, Any]:
    """Reload the gateway on a port, if this user runs one there."""
    from mild.errors import MildError
    from mild_gateway.server.state import read_state, reload_gateway

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

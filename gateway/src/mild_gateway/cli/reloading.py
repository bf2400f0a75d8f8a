"""Let a gateway that runs on this machine take a new version of its router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mild.cli import note
from mild.errors import MildError


def reload_if_running(port: int) -> dict[str, Any]:
    """Reload the gateway on a port if this user runs one there: ``port``, ``reloaded`` and ``error``."""
    from mild_gateway.server.state import read_state

    if read_state(port) is None:
        return {"port": port, "reloaded": False, "error": None}
    error = _reload(port)
    if error is not None:
        note(f"the gateway on port {port} was not reloaded: {error}", "warning")
    return {"port": port, "reloaded": error is None, "error": error}


def _reload(port: int) -> str | None:
    """Reload the gateway on a port; why that failed, or None if it did not."""
    from mild_gateway.server.state import reload_gateway

    try:
        failures = reload_gateway(port)["failed"]
    except MildError as failure:
        return str(failure)
    if failures:
        return str(failures[0])
    return None


def describe_reload(outcome: Mapping[str, Any]) -> str:
    """What ``reload_if_running`` did, in a sentence."""
    if outcome["reloaded"]:
        return f"The gateway on port {outcome['port']} uses it."
    return f"No gateway on port {outcome['port']} was reloaded."

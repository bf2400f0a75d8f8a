"""Telling a running gateway to reload, and waiting until it has."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from mild.errors import InvalidInputError
from mild.gateway.server.state import read_state

__all__ = ["reload_gateway"]

PACE = 0.02


def reload_gateway(port: int, timeout: float = 30.0, folder: Path | None = None) -> dict[str, Any]:
    """Reload the gateway on a port of this machine.

    Returns
    -------
    dict with router (the fingerprint that serves), workers (how many) and failed (why the new router was
    refused, a sentence per worker)

    Raises
    ------
    InvalidInputError
        no gateway of this user serves there, or it does not answer in time
    """
    end = time.monotonic() + timeout
    state = read_state(port, folder)
    while state is not None and "pid" not in state and time.monotonic() < end:
        # It starts, or is about to write it anew.
        time.sleep(PACE)
        state = read_state(port, folder)
    if not state:
        raise InvalidInputError(f"port must be one that a gateway of yours serves; {port} is not.")
    before = int(state.get("generation", 0))
    try:
        os.kill(int(state["pid"]), signal.SIGHUP)
    except ProcessLookupError as error:
        raise InvalidInputError(f"the gateway on port {port} was killed, and is ending.") from error
    while time.monotonic() < end:
        time.sleep(PACE)
        state = read_state(port, folder)
        if state is None:
            raise InvalidInputError("the gateway ended while it was asked to reload.")
        workers = state.get("workers", [])
        if workers and all(worker.get("generation", 0) > before for worker in workers):
            failed = [worker["failed"] for worker in workers if "failed" in worker]
            named = [
                worker[word]
                for worker in workers
                for word in ("reloaded", "serves", "ready")
                if isinstance(worker.get(word), str)
            ]
            return {
                "router": named[0] if named else None,
                "workers": len(workers),
                "failed": failed,
            }
    raise InvalidInputError(f"the gateway must reload within {timeout:g} s; it did not.")

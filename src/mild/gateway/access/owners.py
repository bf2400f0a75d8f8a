"""Workers that are gone: a killed one says nothing, so others look."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from mild.gateway.access.store import Owner

__all__ = ["is_gone", "new_owner"]

# Silence after which a worker is gone wherever it was; before that, only its own machine can tell.
SILENT_SECONDS = 300.0


def new_owner() -> Owner:
    """This process, under a name of its own."""
    pid = os.getpid()
    state = _state_of(pid)
    started = 0 if state is None else state[1]
    return Owner(f"{pid}-{secrets.token_hex(6)}", _host(), pid, started)


def is_gone(other: Owner, silent: float, host: str) -> bool:
    """Whether a worker that was silent for so many seconds is gone, as seen from a host."""
    if silent > SILENT_SECONDS:
        return True
    if other.host != host or os.name == "nt":
        # On Windows the signal 0 ends a process.
        return False
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    state = _state_of(other.pid)
    if state is None:
        return False
    # A killed process keeps its number until its parent asks; then another one may get it.
    return state[0] in "ZX" or (other.started != 0 and state[1] != other.started)


def _host() -> str:
    """The machine, and on Linux which processes on it can be seen."""
    try:
        view = os.readlink("/proc/self/ns/pid")
    except OSError:
        view = ""
    return f"{socket.gethostname()} {view}"


def _state_of(pid: int) -> tuple[str, int] | None:
    """State of a process and when it started, in clock ticks since the machine did; Linux only."""
    try:
        # The name in brackets may hold anything, brackets and blanks too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        return None

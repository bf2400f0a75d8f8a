"""Files in which a running gateway says who it is, and ``mild reload``, which reads them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mild.errors import InvalidInputError

_POLL_SECONDS = 0.02


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """A folder of this user alone."""
    base = environment.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "mild" if base else Path(tempfile.gettempdir()) / f"mild-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InvalidInputError(
            f"{folder} must be a folder that only you can use; other users own it or can use it."
        )
    return folder


class StateFile:
    """The state of one gateway, by its port; locked as long as the gateway lives.

    ``folder`` is for files of the workers: empty at the start, removed at the end.
    """

    def __init__(self, port: int, folder: Path | None = None) -> None:
        base = folder or state_folder()
        path = base / f"{port}.json"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise InvalidInputError(
                f"port {port} must be free; another gateway of yours uses it."
            ) from error
        # What a gateway that was killed has left must not be read as the state of this one.
        os.ftruncate(self._descriptor, 0)
        self.folder = base / f"{port}-workers"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the state; a reader may meet it half written and reads again."""
        content = json.dumps(state).encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))

    def write_worker(self, worker: int, state: Mapping[str, Any]) -> None:
        """Replace the state of a worker: the router it serves, when it was loaded, and what failed."""
        path = self.folder / f"{worker}.json"
        path.with_suffix(".new").write_text(json.dumps(state), encoding="utf-8")
        path.with_suffix(".new").replace(path)

    def leave(self) -> None:
        """In a forked worker: the lock must end with the parent, even if it is killed."""
        os.close(self._descriptor)

    def close(self) -> None:
        """The gateway is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._descriptor)


def read_state(port: int, folder: Path | None = None) -> dict[str, Any] | None:
    """What the gateway on a port says; None if there is none."""
    path = (folder or state_folder()) / f"{port}.json"
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _read(path)
    return None


def reload_gateway(port: int, timeout: float = 30.0, folder: Path | None = None) -> dict[str, Any]:
    """Reload the gateway on a port of this machine, and wait until every worker has.

    InvalidInputError if no gateway of this user serves there, or it does not answer in time.
    """
    end = time.monotonic() + timeout
    state = read_state(port, folder)
    while state is not None and "pid" not in state and time.monotonic() < end:
        # It starts, or is about to write it anew.
        time.sleep(_POLL_SECONDS)
        state = read_state(port, folder)
    if not state:
        raise InvalidInputError(
            f"port must be the port of a running gateway of yours; {port} is not."
        )
    asked = time.monotonic()
    try:
        os.kill(int(state["pid"]), signal.SIGHUP)
    except ProcessLookupError as error:
        raise InvalidInputError(f"the gateway on port {port} has been stopped.") from error
    files = (folder or state_folder()) / f"{port}-workers"
    while time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        if read_state(port, folder) is None:
            raise InvalidInputError("the gateway stopped before it reloaded the router.")
        workers = [_read(files / f"{k}.json") for k in range(int(state["workers"]))]
        # The clock is the same for all processes of a machine.
        if all(worker.get("loaded", 0.0) >= asked for worker in workers):
            return {
                "router": workers[0]["router"],
                "workers": len(workers),
                "failed": [worker["failed"] for worker in workers if worker.get("failed")],
            }
    raise InvalidInputError(f"the gateway must reload within {timeout:g} s; it did not.")


def _read(path: Path) -> dict[str, Any]:
    """What a file says; nothing if it is not there yet, or half written."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found

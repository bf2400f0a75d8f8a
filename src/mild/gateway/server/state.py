"""Where a running gateway says who it is, so that ``mild reload`` finds it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mild.errors import InvalidInputError

__all__ = ["StateFile", "read_state", "state_folder"]


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """A folder of this user alone."""
    base = environment.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "mild" if base else Path(tempfile.gettempdir()) / f"mild-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InvalidInputError(
            f"{folder} must be a folder that only you can use; it is another's, or open to others."
        )
    return folder


class StateFile:
    """The state of one gateway, by its port; locked as long as the gateway lives."""

    def __init__(self, port: int, folder: Path | None = None) -> None:
        self._path = (folder or state_folder()) / f"{port}.json"
        try:
            self._descriptor = _open_locked(self._path)
        except BlockingIOError as error:
            raise InvalidInputError(
                f"port {port} must be free; another gateway of yours serves there."
            ) from error

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace what is said; a reader may meet it half written and reads again."""
        content = json.dumps(state).encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))

    def leave(self) -> None:
        """In a forked worker: the lock must end with the supervisor, even if it is killed."""
        os.close(self._descriptor)

    def close(self) -> None:
        """The gateway is gone."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _open_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A gateway that ended meanwhile has removed the file: then it guards nothing.
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def read_state(port: int, folder: Path | None = None) -> dict[str, Any] | None:
    """What the gateway on a port says; None if there is none."""
    path = (folder or state_folder()) / f"{port}.json"
    try:
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                found = json.loads(file.read())
                return found if isinstance(found, dict) else None
    except FileNotFoundError:
        pass
    except json.JSONDecodeError:
        return {}
    return None

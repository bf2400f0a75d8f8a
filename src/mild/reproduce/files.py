"""Files replaced as a whole: a reader, or a kill, finds the old one or the new one."""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mild.exceptions import DataFileError

__all__ = ["check_regular", "claimed", "locked", "replace_bytes", "replace_json"]


def check_regular(path: Path, what: str) -> None:
    """Refuse what is there and is no regular file: a device would be replaced, a pipe waited for."""
    if path.exists() and not path.is_file():
        there = "a folder" if path.is_dir() else "a device, pipe or socket"
        raise DataFileError(f"{what} must be a regular file; {path} is {there}. Name another file.")


def replace_bytes(path: Path, content: bytes) -> None:
    """Write under another name in the same folder, make it durable, then rename.

    Whatever goes wrong leaves the old file, and nothing beside it; the new one has the mode of the old
    one. Errors are the system's.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(fresh, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # The system of a shared disk may not let us: the content matters more.
        with suppress(OSError):
            os.chmod(fresh, stat.S_IMODE(path.stat().st_mode))
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    if os.name == "posix":
        _sync_folder(path.parent)


def replace_json(path: Path, content: Any) -> None:
    """Write plain values as JSON; the folder is made if it is missing."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, text.encode())
    except OSError as error:
        raise DataFileError(
            f"cannot write {path}: {error.strerror or error}; what it held is untouched."
        ) from error


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the file's lock; the lock file is gone afterwards. No lock where there is no fcntl."""
    with claimed(target.with_name(f".{target.name}.lock"), wait=True):
        yield


@contextmanager
def claimed(place: Path, wait: bool) -> Iterator[bool]:
    """Whether the lock file is ours now; False, without ``wait``, if another process holds it.

    The system gives up the lock of a process that ends in any way: a file that a kill left behind is
    taken over. Always ours where there is no fcntl.
    """
    if sys.platform == "win32":
        yield True
        return
    lock = None
    while lock is None:
        lock = _take(place, wait)
    if lock < 0:
        yield False
        return
    try:
        yield True
    finally:
        place.unlink(missing_ok=True)
        os.close(lock)


def _take(place: Path, wait: bool) -> int | None:
    """The lock's handle, or -1 if it is held; None if its file was removed meanwhile."""
    import fcntl

    lock = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed the file while we waited: then it guards nothing.
        if os.path.samestat(os.fstat(lock), os.stat(place)):
            return lock
    except BlockingIOError:
        os.close(lock)
        return -1
    except FileNotFoundError:
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, too, on file systems that can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

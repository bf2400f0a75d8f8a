"""Files replaced as a whole: a reader, or a kill, finds the old one or the new one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mild.exceptions import DataFileError
from mild.files import FileLock, replacing

__all__ = [
    "WAITING",
    "check_regular",
    "claimed",
    "claimed_beside",
    "locked",
    "replace_bytes",
    "replace_json",
    "unwritten",
]

#: What progress says while another process is at the same work.
WAITING = "waiting for another process"


def check_regular(path: Path, what: str) -> None:
    """Refuse what is there and is no regular file: a device would be replaced, a pipe waited for."""
    if path.exists() and not path.is_file():
        there = "a folder" if path.is_dir() else "a device, pipe or socket"
        raise DataFileError(f"{what} must be a regular file; {path} is {there}. Name another file.")


def replace_bytes(path: Path, content: bytes) -> None:
    """Replace the content of a file as a whole; errors are the system's."""
    with replacing(path) as file:
        file.write(content)


def replace_json(path: Path, content: Any) -> None:
    """Write plain values as JSON; the folder is made if it is missing."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, text.encode())
    except OSError as error:
        raise unwritten(f"cannot write {path}", path, error) from error


def unwritten(what: str, path: Path, error: OSError) -> DataFileError:
    """The error for a file that could not be replaced; what it held is there, if it was."""
    kept = "; what it held is untouched" if os.path.exists(path) else ""
    return DataFileError(f"{what}: {error.strerror or error}{kept}.")


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the file's lock; the lock file is gone afterwards."""
    with claimed(target.with_name(f".{target.name}.lock"), wait=True):
        yield


@contextmanager
def claimed(place: Path, wait: bool, waiting: Callable[[], Any] | None = None) -> Iterator[bool]:
    """Whether the lock file is ours now; False, without ``wait``, if another process holds it.

    ``waiting`` is called once before we wait for that.
    """
    with FileLock(place) as lock:
        ours = lock.take()
        if wait and not ours:
            if waiting is not None:
                waiting()
            ours = lock.take(wait=True)
        yield ours


@contextmanager
def claimed_beside(
    results: Path, key: str, wait: bool, waiting: Callable[[], Any] | None = None
) -> Iterator[bool]:
    """As ``claimed``, for the cell of this key in a results file."""
    place = Path(os.path.realpath(results))
    with ExitStack() as stack:
        try:
            lock = claimed(place.with_name(f".{place.name}-{key}.lock"), wait, waiting)
            ours = stack.enter_context(lock)
        except OSError as error:
            raise DataFileError(
                f"cannot lock a cell beside {results}: {error.strerror or error}."
            ) from error
        yield ours

"""Files that others look at, too: replaced as a whole, held by one process at a time."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from mild.errors import DataFileError, OutputExistsError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["KERNEL_LOCKS", "FileLock", "check_free", "left_behind", "replacing"]

#: Whether the system has locks that end with the process that holds them.
KERNEL_LOCKS = fcntl is not None


def check_free(target: Path, overwrite: bool) -> Path:
    """Refuse, before any work, a file that could not be written at the end."""
    if target.is_dir():
        raise OutputExistsError(f"{target} must be a file; a folder is there.")
    if target.exists() and not overwrite:
        raise OutputExistsError(
            f"{target} exists; choose another file, or replace it (--overwrite, overwrite=True)."
        )
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise DataFileError(f"cannot write to {target}: {target.parent} is not a writable folder.")
    return target


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, under another name in the same folder; made durable and renamed at the end.

    Whatever goes wrong leaves the old file, and nothing beside it: a reader, or a kill, finds the old one
    or the new one. The new one has the mode of the old one. Errors are the system's.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"new")
    ...     os.listdir(folder)
    ['a.txt']
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(fresh, "xb") as file:
            yield file
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


def left_behind(path: Path) -> list[Path]:
    """What kills while ``replacing`` a file have left beside it."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.new")
    return [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]


class FileLock:
    """A lock that the system holds for this process, and gives up when that ends, however it does.

    A file that a kill left behind is taken over: such a lock is never stale. Where the system has none, it
    is always ours.

    Parameters
    ----------
    place : of the lock file; it is there as long as the lock is held

    Attributes
    ----------
    holder : what another process, which has it, wrote into the file; empty before that is known

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileLock(Path(folder) / "lock") as one, FileLock(Path(folder) / "lock") as other:
    ...         one.take(b"me"), other.take(), other.holder
    (True, False, b'me')
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.holder = b""
        self._descriptor: int | None = None

    def take(self, name: bytes = b"", wait: bool = False) -> bool:
        """Whether it is ours now; with ``wait`` always, once the others have let go of it.

        ``name`` is what others find in ``holder``. Errors are the system's.
        """
        if fcntl is None:
            return True
        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        while self._descriptor is None:
            descriptor = os.open(self.place, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, how)
                # Its last holder may have removed the file meanwhile: then it guards nothing.
                if self._is_there(descriptor):
                    self._descriptor = descriptor
            except BlockingIOError:
                self.holder = os.read(descriptor, 4096)
                return False
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        with suppress(OSError):  # a full disk: it is held without a name
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, name)
        return True

    def release(self) -> None:
        """Give it up, if it is ours; the file is gone then."""
        if self._descriptor is None:
            return
        # Removed while it is held: who waits for it will look again.
        with suppress(OSError):
            if self._is_there(self._descriptor):
                self.place.unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def _is_there(self, descriptor: int) -> bool:
        """Whether an open file is the one that is at the place now."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.place))
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, too, on file systems that can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

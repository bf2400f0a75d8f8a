"""Files shared between processes: replaced atomically, locked."""

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

__all__ = ["KERNEL_LOCKS", "FileLock", "check_free", "left_behind", "replacing", "sync_folder"]

#: Whether the system has locks that end with the process that holds them.
KERNEL_LOCKS = fcntl is not None


def check_free(target: Path, overwrite: bool) -> Path:
    """Refuse, before any work, a file that cannot be written."""
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
    """Replace a file atomically: write to a temporary file in the same folder, fsync, rename.

    On an error the old file stays and the temporary one is deleted. The new file has the mode of the old
    one. Raises OSError.

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
        # Some network file systems do not allow it.
        with suppress(OSError):
            os.chmod(fresh, stat.S_IMODE(path.stat().st_mode))
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)


def left_behind(path: Path) -> list[Path]:
    """Temporary files of ``replacing`` that killed processes have left."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.new")
    return [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]


class FileLock:
    """A lock of the operating system, released when the process ends, even if it is killed.

    A lock file left by a killed process is taken over. On systems without such locks it is always free.

    Parameters
    ----------
    place : path of the lock file, which exists while the lock is held

    Attributes
    ----------
    holder : what the process that holds the lock wrote into the file; empty before that is known

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
        """Whether the lock was acquired; with ``wait``, block until it is.

        Others find ``name`` in ``holder``. Raises OSError.
        """
        if fcntl is None:
            return True
        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        while self._descriptor is None:
            descriptor = os.open(self.place, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, how)
                # The last holder may have removed the file meanwhile: then try again.
                if self._is_there(descriptor):
                    self._descriptor = descriptor
            except BlockingIOError:
                self.holder = os.read(descriptor, 4096)
                return False
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        with suppress(OSError):  # on a full disk it is held without a name
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, name)
        return True

    def release(self) -> None:
        """Release the lock, if it is held, and remove the file."""
        if self._descriptor is None:
            return
        # Removed while held: a waiting process will open a new file.
        with suppress(OSError):
            if self._is_there(self._descriptor):
                self.place.unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def _is_there(self, descriptor: int) -> bool:
        """Whether an open file is still the one at ``place``."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.place))
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can."""
    if os.name != "posix":
        return
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""Files that are replaced as a whole: a reader finds the old content or the new."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mild.errors import DataFileError, OutputExistsError


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


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

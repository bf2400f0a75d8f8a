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
    # A name that is too long is an error for Path.is_dir.
    if os.path.isdir(target):
        raise OutputExistsError(f"{target} must be a file; a folder is there.")
    if os.path.exists(target) and not overwrite:
        raise OutputExistsError(
            f"{target} exists; choose another file, or replace it with overwrite=True."
        )
    problem = writing_problem(target.parent, target.name)
    if problem is not None:
        raise DataFileError(f"cannot write to {target}: {problem}.")
    return target


def writing_problem(folder: Path, name: str) -> str | None:
    """Why no file ``name`` can be made in a folder, as a part of a sentence; None if one can.

    A file is made and deleted, because permissions do not say it: those of /proc allow root what no
    one can do, and a name may be too long.
    """
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} is not a writable folder"
    fresh = _fresh(folder / name)
    try:
        fresh.touch(exist_ok=False)
        fresh.unlink()
    except OSError as error:
        return f"no file can be made there ({error.strerror or error}); choose another place"
    return None


def _fresh(path: Path) -> Path:
    """A name for a new file or folder beside its place."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Replace a file atomically: write to a temporary file in the same folder, fsync, rename.

    On an error the old file stays and the temporary one is deleted. The new file has the mode of the old
    one. Raises OSError.
    """
    fresh = _fresh(path)
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

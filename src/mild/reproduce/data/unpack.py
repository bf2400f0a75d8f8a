"""Official archives to folders: plain files only, none outside the folder, complete or not at all."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from mild.exceptions import DataFileError
from mild.reproduce.data.download import unwritable

__all__ = ["unpack"]


def unpack(archive: Path, folder: str, into: Path) -> Path:
    """Unpack a .zip or .tar.gz, whose files all lie in ``folder``, to ``into / folder``.

    Files are written to a temporary folder first. If the folder is there already, each of its files
    that the archive has too is replaced, and others stay.
    """
    target = into / folder
    fresh = into / f".{folder}.part"
    try:
        # Left by a run that was killed.
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            files = [
                _write(archive, name, stream, folder, fresh) for name, stream in _members(archive)
            ]
            if not files:
                raise DataFileError(f"{archive} must hold the folder {folder}; it is empty.")
            if not target.exists():
                os.rename(fresh / folder, target)
            else:
                for file in files:
                    place = into / file.relative_to(fresh)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(file, place)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataFileError(
            f"{archive} is damaged ({error}); delete it and fetch it anew."
        ) from error
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file, as they lie in the archive."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if not entry.is_dir():
                    with zipped.open(entry) as stream:
                        yield entry.filename, stream
        return
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.isdir():
                continue
            content = tar.extractfile(member) if member.isfile() else None
            if content is None:
                raise DataFileError(
                    f"{archive} must hold plain files and folders; {member.name} is a link or a device."
                )
            yield member.name, content


def _write(archive: Path, name: str, stream: IO[bytes], folder: str, fresh: Path) -> Path:
    path = PurePosixPath(name)
    if ".." in path.parts or "\\" in name or ":" in name or path.parts[:1] != (folder,):
        raise DataFileError(
            f"{archive} must hold files in the folder {folder} alone; it holds {name!r:.80}."
        )
    file = fresh / path
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "xb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)
    return file

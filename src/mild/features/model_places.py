"""Where the files of an embedding model lie, and what they are: names to folders, folders to digests."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from mild.errors import DataFileError

__all__ = ["MODELS_VARIABLE", "digest_files", "file_digest", "model_folder", "package_folder"]

# A folder of model folders, for machines where models lie elsewhere than where the router was fitted.
MODELS_VARIABLE = "MILD_MODELS"


def package_folder(name: str) -> Path | None:
    """Folder of an installed package; the package is not imported."""
    module = name.replace("-", "_")
    if not module.isidentifier():
        return None
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def model_folder(name: str, hint: str | None, file: str) -> Path | None:
    """First folder with ``file``: the hint, ``name``, ``name`` in MILD_MODELS, a package's ``model``."""
    places = [Path(hint)] if hint else []
    places.append(Path(name).expanduser())
    shelf = os.environ.get(MODELS_VARIABLE)
    if shelf:
        places.append(Path(shelf).expanduser() / Path(name).name)
    package = package_folder(name)
    if package is not None:
        places.append(package / "model")
    return next((place for place in places if (place / file).is_file()), None)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    if not path.is_file():
        raise DataFileError(f"{path} must be a file; there is none.")
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataFileError(f"cannot read {path}: {error.strerror or error}.") from error


def digest_files(folder: Path, names: Sequence[str]) -> str:
    """One SHA-256 over the names and contents of those files that are there."""
    digest = hashlib.sha256()
    for name in sorted(names):
        if (folder / name).is_file():
            digest.update(f"{name} {file_digest(folder / name)};".encode())
    return digest.hexdigest()

"""Files of embedding models: where they are, their digests, and the packages that read them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mild.errors import DataFileError, MissingExtraError

__all__ = [
    "MODELS_VARIABLE",
    "digest_files",
    "file_digest",
    "import_extra",
    "model_folder",
    "package_folder",
    "read_json",
]

# A folder of model folders, for machines where models lie elsewhere than where the router was fitted.
MODELS_VARIABLE = "MILD_MODELS"


def import_extra(user: str, extra: str, *packages: str) -> list[Any]:
    """Import optional packages by name: without the extra they are not there, nor are their types."""
    try:
        return [importlib.import_module(name) for name in packages]
    except ImportError as error:
        raise MissingExtraError(
            f"{user} need {' and '.join(packages)}; pip install 'mild-learn[{extra}]'."
        ) from error


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
    folders = [Path(hint)] if hint else []
    folders.append(Path(name).expanduser())
    models = os.environ.get(MODELS_VARIABLE)
    if models:
        folders.append(Path(models).expanduser() / Path(name).name)
    package = package_folder(name)
    if package is not None:
        folders.append(package / "model")
    return next((folder for folder in folders if (folder / file).is_file()), None)


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataFileError(f"cannot read {path}: {error.strerror or error}.") from error


def digest_files(folder: Path, names: Sequence[str]) -> str:
    """One SHA-256 over the names and contents of those files that exist."""
    digest = hashlib.sha256()
    for name in sorted(names):
        if (folder / name).is_file():
            digest.update(f"{name} {file_digest(folder / name)};".encode())
    return digest.hexdigest()


def read_json(path: Path) -> Any:
    """Content of a JSON file; an empty object if there is no such file."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path} must be JSON ({error}).") from error

"""A folder beside the router to be, with features and evaluations, for as long as the router is fitted.

It is removed when the router is saved, and when the input is bad. A kill or Ctrl-C leaves it: the same fit,
started again, continues from there; another fit begins anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mild.distributed.locks import file_lock
from mild.distributed.shards.dataset import Dataset
from mild.errors import ArtifactError, DataFileError, InvalidInputError, OutputExistsError
from mild.evaluation.tasks import CostTerms

__all__ = ["WorkFolder", "described", "work_folder"]


def described(
    dataset: Dataset,
    terms: CostTerms,
    router: Any,
    text: str | None,
    model: str | None,
    standardize: bool | None,
) -> dict[str, Any]:
    """All that a fit depends on, JSON-ready: a fit with the same description may be continued."""
    return {
        "version": importlib.import_module("mild").__version__,
        "files": [[file.path, file.size, file.changed] for file in dataset.files],
        "wanted": dataclasses.asdict(dataset.wanted),
        "experts": dataset.expert_names,
        "terms": terms.as_dict(),
        "router": router.get_params(deep=False),
        "features": [text, model, standardize],
    }


@dataclasses.dataclass(frozen=True)
class WorkFolder:
    """Folders of one fit: all of it, its saved evaluations, and its features."""

    path: Path
    evaluations: Path
    features: Path


@contextmanager
def work_folder(
    target: Path, scratch: str | None, description: Mapping[str, Any]
) -> Iterator[WorkFolder]:
    """The work folder of a fit, locked by this process.

    Parameters
    ----------
    target : folder of the router to be
    scratch : folder for work folders; None for the parent of the target
    description : result of ``described``
    """
    key = hashlib.sha256(json.dumps(description, sort_keys=True, default=str).encode()).hexdigest()
    parent = target.parent if scratch is None else Path(os.path.realpath(scratch))
    path = parent / f".{target.name}.fit"
    folder = WorkFolder(path, path / f"evaluations-{key[:16]}", path / "features")
    taken = OutputExistsError(
        f"another fit is about to write to {target}; wait for it, or choose another folder."
    )
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot write to {path}: {error.strerror or error}.") from error
    # Beside the folder: a lock in it would be removed with it, before the rest is.
    with file_lock(path.with_name(f"{path.name}.lock"), lambda: taken):
        for entry in path.iterdir() if path.exists() else ():
            if entry != folder.evaluations:
                shutil.rmtree(entry, ignore_errors=True)
        folder.evaluations.mkdir(parents=True, exist_ok=True)
        folder.features.mkdir()
        try:
            yield folder
        except (DataFileError, InvalidInputError):
            # Saved evaluations stay: with another address, or more room, the fit continues.
            if not any(folder.evaluations.iterdir()):
                shutil.rmtree(path, ignore_errors=True)
            raise
        shutil.rmtree(path, ignore_errors=True)

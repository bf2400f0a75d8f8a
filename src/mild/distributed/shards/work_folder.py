"""A folder beside the router to be, for as long as it is fitted: features and evaluations.

It is removed when the router is there, and when the input turns out to be bad. A kill, or Ctrl-C, leaves
it: the same fit, started again, goes on from there; another fit begins anew.
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

from mild.artifact.files import FileLock
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


class WorkFolder:
    """Where one fit keeps what it works out.

    Attributes
    ----------
    path : the folder
    evaluations : folder of what was evaluated, of this very fit
    features : folder of the features; what an earlier run left is gone
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.evaluations = path / f"evaluations-{key[:16]}"
        self.features = path / "features"
        for entry in list(path.iterdir()):
            if entry.is_dir() and entry != self.evaluations:
                shutil.rmtree(entry, ignore_errors=True)
        self.evaluations.mkdir(exist_ok=True)
        self.features.mkdir(exist_ok=True)


@contextmanager
def work_folder(
    target: Path, scratch: str | None, facts: Mapping[str, Any]
) -> Iterator[WorkFolder]:
    """The work folder of a fit, held by this process alone.

    Parameters
    ----------
    target : folder of the router to be
    scratch : folder for work folders; None for the one that the target lies in
    facts : what ``described`` gave
    """
    key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    parent = target.parent if scratch is None else Path(os.path.realpath(scratch))
    path = parent / f".{target.name}.fit"
    # Beside the folder: one in it would be removed with it, before the others are.
    with FileLock(path.with_name(f"{path.name}.lock")) as lock:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            ours = lock.take()
            if ours:
                path.mkdir(exist_ok=True)
        except OSError as error:
            raise ArtifactError(f"cannot write to {path}: {error.strerror or error}.") from error
        if not ours:
            raise OutputExistsError(
                f"another fit is about to write to {target}; wait for it, or choose another folder."
            )
        folder = WorkFolder(path, key)
        try:
            yield folder
        except (DataFileError, InvalidInputError):
            # What was worked out stays: another address, or more room, and it goes on.
            if not any(folder.evaluations.iterdir()):
                shutil.rmtree(path, ignore_errors=True)
            raise
        shutil.rmtree(path, ignore_errors=True)

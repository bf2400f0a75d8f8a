"""How well a protocol trains a plain classifier: what the short protocol gives up against the paper's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mild.exceptions import InvalidInputError
from mild.reproduce.classifier_files import classifier_records
from mild.reproduce.data import ImageData
from mild.reproduce.experts.trained import train_classifier
from mild.reproduce.files import WAITING, claimed_beside, locked, replace_json, unwritten
from mild.reproduce.images.protocol import Protocol, recipe
from mild.reproduce.results import cell_key
from mild.reproduce.routing import forget_checkpoint, tidied
from mild.reproduce.run import choose_device, training_facts
from mild.reproduce.surroundings import commit, hardware, versions
from mild.reproduce.turns import check_place

__all__ = ["classifier_records", "run_classifier"]

SCHEMA = 1


def run_classifier(
    data: ImageData,
    protocol: Protocol,
    seeds: int,
    results: Path,
    *,
    device: str = "auto",
    checkpoint_dir: Path | None = None,
    progress: Callable[[int, int, str], Any] | None = None,
) -> list[dict[str, Any]]:
    """Test accuracy of a network trained with the cross-entropy on classes, per seed.

    Records are kept in ``results``, a JSON file of their own; a seed that is there is not run again.

    Parameters
    ----------
    data : images with classes
    protocol : how to train
    seeds : how many: 0 to seeds - 1
    progress : called as ``progress(done, total, message)``
    """
    if seeds < 1:
        raise InvalidInputError(f"seeds must be an integer of at least 1; got {seeds!r}.")
    place = choose_device(device)
    check_place(results)
    runner = _Runner(data, protocol, results, place, checkpoint_dir, progress)
    return [runner.record(seed) for seed in range(seeds)]


@dataclass(frozen=True, eq=False)
class _Runner:
    """Trains what the file does not hold, and leaves to another process what that is at."""

    data: ImageData
    protocol: Protocol
    results: Path
    device: str
    checkpoint_dir: Path | None
    progress: Callable[[int, int, str], Any] | None

    def record(self, seed: int) -> dict[str, Any]:
        """The record of one seed."""
        cell = {
            "table": "classifier",
            "dataset": self.data.name,
            "data": self.data.digest(),
            "protocol": self.protocol.as_dict(),
            "seed": seed,
            **recipe(),
        }
        key = cell_key(cell)
        known = self._known(key)
        if known is None:
            with claimed_beside(self.results, key, True, self._waiting):
                known = self._known(key) or self._run(cell, key)
        return known

    def _known(self, key: str) -> dict[str, Any] | None:
        known = classifier_records(self.results)
        return next((record for record in known if record["key"] == key), None)

    def _waiting(self) -> None:
        if self.progress is not None:
            self.progress(0, self.protocol.epochs, WAITING)

    def _run(self, cell: dict[str, Any], key: str) -> dict[str, Any]:
        data, folder = self.data, self.checkpoint_dir
        with tidied(folder):
            network = train_classifier(
                data.train_images,
                data.train_labels,
                data.n_classes,
                self.protocol,
                cell["seed"],
                flip=data.flip,
                device=self.device,
                checkpoint=folder and folder / f"{key}.safetensors",
                identity={"key": key},
                progress=self.progress,
            )
        answers = np.argmax(network.scores(data.test_images), axis=1)
        record = {
            "schema": SCHEMA,
            "key": key,
            "cell": cell,
            "accuracy": float((answers == data.test_labels).mean()),
            "training": training_facts(network),
            "versions": versions(),
            "hardware": hardware(self.device),
            "commit": commit(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "note": data.note,
        }
        _keep(self.results, record)
        forget_checkpoint(folder, key)
        return record


def _keep(results: Path, record: dict[str, Any]) -> None:
    """Add a record to those that the file holds by now."""
    target = Path(os.path.realpath(results))
    try:
        # Another process may have added its own since we read the file.
        with locked(target):
            kept = {known["key"]: known for known in classifier_records(target)}
            kept[record["key"]] = record
            replace_json(target, list(kept.values()))
    except OSError as error:
        raise unwritten(f"cannot write {target}", target, error) from error

"""Images and experts of cells: loaded when first needed, kept while neighbours need them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from mild.exceptions import InvalidInputError
from mild.reproduce.cells import Cell
from mild.reproduce.data import ImageData, PeopleFile, check_people, load_images, read_people
from mild.reproduce.diverged import DivergedError
from mild.reproduce.experts import (
    ExpertAnswers,
    people_scenario,
    synthetic_answers,
    trained_answers,
)
from mild.reproduce.experts.people import TEST_FRACTION, default_columns
from mild.reproduce.requests import Request

__all__ = ["Supply"]

# The classifier beside people is small: of 50,000 images it sees these many.
CLASSIFIER_ROWS = 4000
# The current scenario and the one of the seed that tuning takes.
KEPT = 2


class Supply:
    """Data and experts of the cells of one request."""

    def __init__(self, request: Request, device: str) -> None:
        self.request = request
        self.device = device
        self._data: tuple[str, ImageData] | None = None
        self._people: tuple[str, PeopleFile] | None = None
        self._scenarios: dict[tuple[Any, ...], tuple[ImageData, ExpertAnswers]] = {}
        # Experts that could not be trained are not tried again for every cell.
        self._diverged: dict[tuple[Any, ...], DivergedError] = {}

    def check(self) -> None:
        """Load every data set once, so that one that is missing shows before the first training."""
        # The first comes last, and is kept: the first cell needs it.
        for dataset in reversed(self.request.datasets):
            data = self._images(dataset)
            for setup in self.request.setups:
                setup.owners(data.n_classes)
            if self.request.with_people:
                n_experts = len(default_columns(self._annotations(dataset))) + 1
                self._check_margins(dataset, n_experts)

    def _check_margins(self, dataset: str, n_experts: int) -> None:
        for method in self.request.methods:
            if isinstance(method.margins, tuple) and len(method.margins) != n_experts:
                raise InvalidInputError(
                    f"method {method.text} must have one margin per expert, {n_experts} for {dataset} "
                    f"(people, and the classifier last); got {len(method.margins)}."
                )

    def entry(self, cell: Cell) -> dict[str, Any]:
        """The cell of a record."""
        data = self._images(cell.dataset)
        if cell.experts != "people":
            return cell.as_dict(data.digest())
        people = self._annotations(cell.dataset)
        columns = {name: people.columns[name] for name in default_columns(people)}
        # The file alone decides these, so that a cell can be known before its classifier is trained.
        right = [round(float((said == people.truth).mean()), 4) for said in columns.values()]
        digest = hashlib.sha256()
        for name, said in columns.items():
            digest.update(f"{name} {said.size};".encode() + said.astype("<i8").tobytes())
        more: dict[str, Any] = {
            "coverage": right,
            "people": digest.hexdigest()[:16],
            "classifier_rows": _classifier_rows(data),
            "test_fraction": TEST_FRACTION,
        }
        if cell.cost == "cost":
            # It means nothing where errors alone count: other prices leave such a cell as it is.
            more["price"] = self.request.price
        return cell.as_dict(data.digest()) | more

    def scenario(
        self, cell: Cell, seed: int, progress: Callable[[int, int, str], Any]
    ) -> tuple[ImageData, ExpertAnswers]:
        """Images and answers of a cell's experts; ``seed`` draws synthetic ones."""
        drawn = seed if cell.experts == "synthetic" else None
        key = (cell.dataset, cell.experts, cell.setup, drawn)
        if key in self._diverged:
            raise self._diverged[key]
        found = self._scenarios.pop(key, None)
        if found is None:
            try:
                found = self._scenario(cell, seed, progress)
            except DivergedError as error:
                self._diverged[key] = error
                raise
        while len(self._scenarios) >= KEPT:
            del self._scenarios[next(iter(self._scenarios))]
        self._scenarios[key] = found
        return found

    def _scenario(
        self, cell: Cell, seed: int, progress: Callable[[int, int, str], Any]
    ) -> tuple[ImageData, ExpertAnswers]:
        data = self._images(cell.dataset)
        if cell.experts == "synthetic":
            return data, synthetic_answers(data, cell.setup, seed, cell.ambiguous)
        if cell.expert_protocol is None or cell.expert_seed is None:
            raise InvalidInputError(
                f"{cell.experts} experts need a protocol and a seed of their own."
            )
        where: dict[str, Any] = {
            "seed": cell.expert_seed,
            "cache_dir": self.request.cache_dir,
            "device": self.device,
            "progress": progress,
        }
        if cell.experts == "real":
            return data, trained_answers(
                data, cell.setup, cell.expert_protocol, holdout=cell.holdout, **where
            )
        people = self._annotations(cell.dataset)
        return people_scenario(
            data,
            people,
            cell.expert_protocol,
            price=self.request.price,
            classifier_rows=_classifier_rows(data),
            **where,
        )

    def _images(self, dataset: str) -> ImageData:
        if self._data is None or self._data[0] != dataset:
            # Let go of the old ones first: two sets of images need not be held at once.
            self._data = None
            self._scenarios.clear()
            self._data = dataset, load_images(dataset, self.request.data_dir)
        return self._data[1]

    def _annotations(self, dataset: str) -> PeopleFile:
        if self.request.people_file is None:
            raise InvalidInputError("people_file must name a .npz file of annotations; got none.")
        if self._people is None or self._people[0] != dataset:
            people = read_people(self.request.people_file, dataset)
            check_people(people, self._images(dataset))
            self._people = dataset, people
        return self._people[1]


def _classifier_rows(data: ImageData) -> int:
    return min(CLASSIFIER_ROWS, len(data.train_labels) // 10)

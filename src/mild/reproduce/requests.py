"""What to reproduce: one table, its data sets, experts, costs, methods and seeds, and where things lie."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mild.exceptions import DataFileError, InvalidInputError, check_option
from mild.reproduce.data import DATASETS, PEOPLE
from mild.reproduce.experts import COSTS, EXPERTS, Setup, get_setup
from mild.reproduce.images.protocol import DEFAULT, PROTOCOLS, Protocol
from mild.reproduce.methods import READINGS, SCALES, Method

__all__ = ["DEVICES", "TABLES", "Request", "Table", "check_folders"]

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Table:
    """What a table consists of when nothing else is asked for.

    Data sets, setups and costs are the paper's where it has such a table.
    """

    datasets: tuple[str, ...]
    setups: tuple[str, ...]
    experts: tuple[str, ...]
    costs: tuple[str, ...]
    methods: tuple[Method, ...]


_USUAL = tuple(Method.parse(text) for text in ("tdef", "mild", "tuned"))
_IMAGES = ("cifar10", "cifar100", "svhn", "tiny-imagenet")

TABLES = {
    "table1": Table(_IMAGES, ("I", "II", "III"), ("synthetic",), COSTS, _USUAL),
    "table2": Table(_IMAGES[:3], ("I", "II", "III"), ("real",), COSTS, _USUAL),
    "severe": Table(_IMAGES[:3], ("severe",), ("synthetic", "real"), ("error",), _USUAL),
    "people": Table(("cifar10",), (), ("people",), COSTS, _USUAL),
    "readings": Table(("cifar10",), ("I",), ("synthetic",), ("error",), READINGS),
}


@dataclass(frozen=True)
class Request:
    """A table to reproduce, or a part of one. It checks itself.

    Parameters
    ----------
    table : one of TABLES
    datasets : names of data sets
    setups : who knows what; none for people
    experts : among "synthetic", "real" and "people"; people alone, and in their own table
    costs : among "error" and "cost"
    methods : what to compare
    seeds : how many: 0 to seeds - 1
    protocol : how routers are trained
    results : JSON lines file that every finished training is added to
    data_dir : folder of the data sets; digits need none
    cache_dir : folder of trained experts and of what tuning found; None keeps the latter beside the
        results, and trains experts anew each time
    checkpoint_dir : folder of unfinished trainings; None to lose them in a kill
    device : "auto", "cpu" or "cuda"
    holdout : whether real experts and the router learn from disjoint halves
    expert_seed : seed of trained experts: real ones, and the classifier beside people
    people_file : annotations of the training images, for the table "people"
    expert_protocol : how such experts are trained; None for ``protocol``
    scale : of the rewards: "raw" as in the paper, or "unit" for mean row sum 1
    price : what asking a person costs, for the table "people" and the cost type "cost"
    ambiguous : share of the rows on which a guess of a synthetic expert is right as well as the expert
        whose class it is; None for guesses drawn uniformly from all classes
    validation : whether routers are judged on a held-out tenth of the training rows, not on the test
    """

    table: str
    datasets: tuple[str, ...]
    setups: tuple[Setup, ...]
    experts: tuple[str, ...]
    costs: tuple[str, ...]
    methods: tuple[Method, ...]
    seeds: int
    protocol: Protocol
    results: Path
    data_dir: Path | None = None
    cache_dir: Path | None = None
    checkpoint_dir: Path | None = None
    device: str = "auto"
    holdout: bool = False
    expert_seed: int = 0
    people_file: Path | None = None
    expert_protocol: Protocol | None = None
    scale: str = "raw"
    price: float = 0.1
    ambiguous: float | None = None
    validation: bool = False

    def __post_init__(self) -> None:
        check_option("table", self.table, TABLES)
        check_option("device", self.device, DEVICES)
        check_option("scale", self.scale, SCALES)
        if not (math.isfinite(self.price) and self.price >= 0):
            raise InvalidInputError(f"price must be non-negative and finite; got {self.price}.")
        kinds: tuple[str, ...] = EXPERTS
        if self.table != "people" and not self.with_people:
            kinds = tuple(kind for kind in EXPERTS if kind != "people")
        for name, known in (("datasets", DATASETS), ("experts", kinds), ("costs", COSTS)):
            for value in _each(name, getattr(self, name)):
                check_option(name, value, known)
        if self.ambiguous is not None:
            if not 0 <= self.ambiguous < 1:
                raise InvalidInputError(
                    f"ambiguous must be a share of at least 0 and below 1; got {self.ambiguous}."
                )
            if tuple(self.experts) != ("synthetic",):
                raise InvalidInputError(
                    f"ambiguous must go with synthetic experts alone; got {self.experts[0]} ones. Leave "
                    f"it out."
                )
        _each("methods", [method.text for method in self.methods])
        _check_count("seeds", self.seeds, 1)
        _check_count("expert_seed", self.expert_seed, 0)
        if self.results.is_dir():
            raise InvalidInputError(
                f"results must be a file; {self.results} is a folder. Name a file in it."
            )
        self._check_people()
        self._check_training()
        if not self.with_people:
            _each("setups", [setup.name for setup in self.setups])
        for method in self.methods:
            for setup in self.setups:
                _check_margins(method, setup)

    @classmethod
    def of(cls, table: str, *, results: Path, **fields: Any) -> Self:
        """The table as TABLES has it, by the protocol "adamw" with five seeds, but for ``fields``.

        A field that is None stays as it is in the table.

        Examples
        --------
        >>> request = Request.of("severe", results=Path("severe.jsonl"), datasets=("digits",))
        >>> request.experts, [method.text for method in request.methods][0]
        (('synthetic', 'real'), 'tdef')
        """
        usual = TABLES[check_option("table", table, TABLES)]
        values: dict[str, Any] = {
            "datasets": usual.datasets,
            "setups": tuple(get_setup(name) for name in usual.setups),
            "experts": usual.experts,
            "costs": usual.costs,
            "methods": usual.methods,
            "seeds": 5,
            "protocol": PROTOCOLS[DEFAULT],
        }
        values |= {name: value for name, value in fields.items() if value is not None}
        return cls(table=table, results=results, **values)

    @property
    def with_people(self) -> bool:
        """Whether the experts are people."""
        return "people" in self.experts

    @property
    def with_trained(self) -> bool:
        """Whether any experts are trained: real ones, or the classifier beside people."""
        return set(self.experts) != {"synthetic"}

    @property
    def tuning_dir(self) -> Path:
        """Folder of what tuning found."""
        if self.cache_dir is not None:
            return self.cache_dir / "tuning"
        return self.results.with_name(f"{self.results.stem}-tuning")

    def _check_people(self) -> None:
        alone = tuple(self.experts) == ("people",)
        if alone != (self.table == "people") or (self.with_people and not alone):
            raise InvalidInputError(
                f"people must be the experts of the table 'people', and of no other; got experts "
                f"{', '.join(self.experts)} in the table {self.table!r}."
            )
        if not self.with_people:
            return
        if self.people_file is None:
            raise InvalidInputError(
                "people_file must name a .npz file of annotations for the table 'people'; got none. "
                "Pass --people-file."
            )
        if self.setups:
            raise InvalidInputError(
                f"setups must be left out for the table 'people', whose experts know no classes of "
                f"their own; got {self.setups[0].name}."
            )
        for name in self.datasets:
            check_option("datasets with people", name, PEOPLE)

    def _check_training(self) -> None:
        """Refuse what is about the training of experts where no expert is trained that way."""
        for name, meant in (
            ("holdout", "real" in self.experts),
            ("expert_seed", self.with_trained),
            ("expert_protocol", self.with_trained),
        ):
            if getattr(self, name) and not meant:
                raise InvalidInputError(
                    f"{name} must go with real experts; got {self.experts[0]} ones alone. Leave it "
                    f"out, or ask for real ones (--experts real)."
                )


def check_folders(request: Request) -> None:
    """Say before the first training that a folder could not be written to after it."""
    searched = any(method.searched for method in request.methods)
    beside = "the folder of what tuning finds, beside the results,"
    folders = [
        ("cache_dir", request.cache_dir if request.with_trained else None),
        ("checkpoint_dir", request.checkpoint_dir),
        (
            beside if request.cache_dir is None else "cache_dir",
            request.tuning_dir if searched else None,
        ),
    ]
    for name, folder in folders:
        if folder is None:
            continue
        place = folder.absolute()
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise DataFileError(
                f"{name} must be a folder that can be written to; got {folder}, and {place} is "
                f"{'not writable' if place.is_dir() else 'no folder'}. Name another one."
            )


def _each(name: str, values: Sequence[str]) -> Sequence[str]:
    """The values, if there are any and each is there once."""
    if isinstance(values, str) or not values:
        raise InvalidInputError(f"{name} must name at least one; got {values!r}.")
    for value in values:
        if list(values).count(value) > 1:
            raise InvalidInputError(f"{name} must be named once each; got {value!r} twice.")
    return values


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInputError(f"{name} must be an integer of at least {least}; got {value!r}.")


def _check_margins(method: Method, setup: Setup) -> None:
    if isinstance(method.margins, tuple) and len(method.margins) != len(setup.coverage):
        raise InvalidInputError(
            f"method {method.text} must have one margin per expert, {len(setup.coverage)} in setup "
            f"{setup.name}; got {len(method.margins)}."
        )

"""Run the cells of a table; each finished training is added to the results file at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.images.data import (
    DATASETS,
    PEOPLE,
    ImageData,
    PeopleFile,
    load_images,
    read_people,
)
from experiments.images.experts import (
    COSTS,
    EXPERTS,
    HELD_OUT_SEED,
    OTHERS,
    SETUPS,
    TEST_FRACTION,
    ExpertAnswers,
    Setup,
    classifier_rows,
    people_columns,
    people_scenario,
    synthetic_answers,
    train_classifier,
    trained_answers,
)
from experiments.images.methods import SCALES, Method, method_label, training_margins
from experiments.images.problem import Problem, outcomes, reference
from experiments.images.training import Protocol, TrainedNetwork, best_device, recipe
from experiments.records import SCHEMA, Record, Report, ResultsFile, cell_key, surroundings
from mild.errors import InvalidInputError, check_option

Progress = Callable[[int, int, str], Any]


@dataclass(frozen=True)
class Request:
    """A table of TABLES to run, or a part of one; the command's options say what the fields mean."""

    table: str
    datasets: tuple[str, ...]
    setups: tuple[Setup, ...]
    experts: tuple[str, ...]
    costs: tuple[str, ...]
    methods: tuple[Method, ...]
    protocol: Protocol
    results: Path
    seeds: int = 5
    data_dir: Path | None = None
    cache_dir: Path = Path("cache")
    device: str = "auto"
    holdout: bool = False
    expert_seed: int = 0
    people_file: Path | None = None
    expert_protocol: Protocol | None = None
    scale: str = "raw"
    price: float = 0.1
    ambiguous: float | None = None
    validation: bool = False
    others: float = OTHERS

    def __post_init__(self) -> None:
        check_option("scale", self.scale, SCALES)
        if self.seeds < 1:
            raise InvalidInputError(f"seeds must be an integer of at least 1; got {self.seeds}.")
        known = PEOPLE if self.table == "people" else DATASETS
        for name, choices in (("datasets", known), ("experts", EXPERTS), ("costs", COSTS)):
            for value in getattr(self, name):
                check_option(name, value, choices)
        if (self.experts == ("people",)) != (self.table == "people"):
            raise InvalidInputError(
                "people must be the experts of the table 'people', and of no other."
            )
        if self.table == "people" and self.people_file is None:
            raise InvalidInputError(
                "the table 'people' needs a .npz file of annotations. Pass --people."
            )
        if self.ambiguous is not None and not (
            0 <= self.ambiguous < 1 and self.experts == ("synthetic",)
        ):
            raise InvalidInputError(
                f"ambiguous must be a share of at least 0 and below 1, with synthetic experts; got "
                f"{self.ambiguous}."
            )
        for name, usual in (("holdout", False), ("others", OTHERS)):
            if getattr(self, name) != usual and "real" not in self.experts:
                raise InvalidInputError(f"{name} must go with real experts; got none of them.")
        if not 0 < self.others <= 1:
            raise InvalidInputError(
                f"others must be a share above 0 and at most 1; got {self.others}."
            )


@dataclass(frozen=True)
class Cell:
    """One router to train."""

    dataset: str
    experts: str
    setup: Setup
    seed: int
    cost: str
    method: Method

    @property
    def title(self) -> str:
        """The cell in a few words."""
        setup = "" if self.experts == "people" else f" {self.setup.name}"
        label = method_label(self.method.as_dict())
        return (
            f"{self.dataset}{setup}, {self.experts} experts, {self.cost}, {label}, seed {self.seed}"
        )


def plan(request: Request) -> list[Cell]:
    """All cells: methods of one seed follow one another, so that pairs are there early."""
    setups = request.setups if request.table != "people" else (Setup("people", ()),)
    parts = (
        request.datasets,
        request.experts,
        setups,
        range(request.seeds),
        request.costs,
        request.methods,
    )
    return [Cell(*values) for values in itertools.product(*parts)]


def cell_entry(request: Request, cell: Cell, digest: str) -> dict[str, Any]:
    """The cell of a record; ``digest`` is that of the images.

    Keys are made from it, so that a field that was added later is left out at its usual value.
    """
    trained = cell.experts != "synthetic"
    experts = request.expert_protocol or request.protocol
    entry: dict[str, Any] = {
        "table": request.table,
        "dataset": cell.dataset,
        "data": digest,
        "setup": cell.setup.name,
        "coverage": list(cell.setup.coverage),
        "experts": cell.experts,
        "cost": cell.cost,
        "scale": request.scale,
        "holdout": request.holdout and cell.experts == "real",
        "expert_seed": request.expert_seed if trained else None,
        "expert_protocol": experts.as_dict() if trained else None,
        "protocol": request.protocol.as_dict(),
        "method": cell.method.as_dict(),
        "seed": cell.seed,
        **recipe(),
    }
    if request.ambiguous is not None:
        entry["ambiguous"] = request.ambiguous
    if request.validation:
        entry["validation"] = True
    if cell.experts == "real" and request.others != OTHERS:
        entry["others"] = request.others
    return entry


def run(request: Request, progress: Progress | None = None) -> list[Record]:
    """Records of all cells of a request, in their order.

    A cell that the results file holds is not run again. A kill leaves what is finished in the file; the
    training under way starts anew next time.
    """
    results = ResultsFile(request.results)
    with results.locked():
        runner = Runner(request, results)
        cells = [(cell.title, partial(runner.record, cell)) for cell in plan(request)]
        return results.run(cells, progress)


class Runner:
    """Data, experts and trainings of one request; ``images`` are data sets that are loaded already."""

    def __init__(
        self,
        request: Request,
        results: ResultsFile,
        images: Mapping[str, ImageData] | None = None,
    ) -> None:
        self.request, self.results = request, results
        self._data = dict(images or {})
        self._scenarios: dict[Any, tuple[ImageData, ExpertAnswers]] = {}
        # What is wrong with the data shows before the first training.
        for dataset in request.datasets:
            data = self.data(dataset)
            for setup in request.setups:
                setup.owners(data.n_classes)
            if request.table == "people":
                self.people(dataset)

    @cached_property
    def device(self) -> str:
        """The device that trainings run on."""
        return choose_device(self.request.device)

    def data(self, dataset: str) -> ImageData:
        """Images of a data set; of those that it loads one is held at a time."""
        if dataset not in self._data:
            self._data = {dataset: load_images(dataset, self.request.data_dir)}
            self._scenarios.clear()
        return self._data[dataset]

    def people(self, dataset: str) -> PeopleFile:
        """Annotations of the training images."""
        return read_people(self.request.people_file or "", self.data(dataset))

    def entry(self, cell: Cell) -> dict[str, Any]:
        """The cell of a record, with what the annotations add to it."""
        data = self.data(cell.dataset)
        entry = cell_entry(self.request, cell, data.digest())
        if cell.experts == "people":
            people = self.people(cell.dataset)
            columns = people_columns(people)
            right = [float((people.columns[name] == people.truth).mean()) for name in columns]
            entry |= {
                "coverage": [round(value, 4) for value in right],
                "people": people.digest(columns),
                "classifier_rows": classifier_rows(data),
                "test_fraction": TEST_FRACTION,
            }
            if cell.cost == "cost":
                entry["price"] = self.request.price
        return entry

    def record(self, cell: Cell, report: Report) -> Record:
        """The record of a cell, from the results file or a training."""
        entry = self.entry(cell)
        key = cell_key(entry)
        if key in self.results.records:
            return self.results.records[key]
        chosen = self._search(cell, entry, report) if cell.method.searched else None
        method = cell.method
        if chosen is not None:
            method = method.with_margins(chosen["margins"], chosen["rewards"])
        problem, answers, note = self.problem(cell, cell.seed, report)
        training = _training_key(entry, method, problem)
        known = self.results.same_training(training)
        if known is not None:
            return self.results.add({**known, "key": key, "cell": entry, "chosen": chosen})
        network, objective = problem.train(method, cell.seed, report, curve=True)
        record = {
            "schema": SCHEMA,
            "key": key,
            "twin": training,
            "cell": entry,
            "margins": None if objective.margins is None else list(objective.margins),
            "outcomes": outcomes(
                network.scores(problem.test_images), problem.test_costs, objective
            ),
            "reference": reference(problem.test_costs),
            "chosen": chosen,
            "experts": {
                "names": list(answers.names),
                "prices": answers.prices.tolist(),
                "notes": dict(answers.notes),
            },
            "training": {**training_facts(network), "optimizer": self.request.protocol.optimizer},
            "curve": _curve(network),
            **surroundings(self.device),
            "note": note,
        }
        self.results.add(record)
        return record

    def problem(self, cell: Cell, seed: int, report: Report) -> tuple[Problem, ExpertAnswers, str]:
        """What the router of a cell is trained and judged on; ``seed`` draws synthetic experts."""
        request = self.request
        drawn = seed if cell.experts == "synthetic" else None
        place = (cell.dataset, cell.experts, cell.setup, drawn)
        if place not in self._scenarios:
            self._scenarios = {place: self._scenario(cell, seed, report)}
        data, answers = self._scenarios[place]
        rows = answers.router_rows
        problem = Problem(
            images=data.train_images[rows],
            costs=answers.costs("train", data.train_labels, cell.cost)[rows],
            test_images=data.test_images,
            test_costs=answers.costs("test", data.test_labels, cell.cost),
            largest=answers.largest(cell.cost),
            flip=data.flip,
            protocol=request.protocol,
            device=self.device,
            scale=request.scale,
            prices=answers.charged(cell.cost),
        )
        return problem.held_out() if request.validation else problem, answers, data.note

    def _scenario(self, cell: Cell, seed: int, report: Report) -> tuple[ImageData, ExpertAnswers]:
        request, data = self.request, self.data(cell.dataset)
        if cell.experts == "synthetic":
            return data, synthetic_answers(data, cell.setup, seed, request.ambiguous)
        protocol = request.expert_protocol or request.protocol
        options: dict[str, Any] = {
            "seed": request.expert_seed,
            "cache_dir": request.cache_dir,
            "device": self.device,
            "progress": lambda done, total, message: report(
                f"{message} ({done} of {total} epochs)"
            ),
        }
        request.cache_dir.mkdir(parents=True, exist_ok=True)
        if cell.experts == "real":
            answers = trained_answers(
                data,
                cell.setup,
                protocol,
                holdout=request.holdout,
                others=request.others,
                **options,
            )
            return data, answers
        people = self.people(cell.dataset)
        return people_scenario(data, people, protocol, price=request.price, **options)

    def _search(self, cell: Cell, entry: dict[str, Any], report: Report) -> dict[str, Any]:
        """What the search of a method's margins finds, once for all seeds."""
        what = {name: value for name, value in entry.items() if name not in ("table", "seed")}
        for record in self.results.records.values():
            same = {k: v for k, v in record["cell"].items() if k not in ("table", "seed")}
            if record.get("chosen") and same == what:
                return dict(record["chosen"])
        # Imported here: nothing else needs joblib.
        from experiments.images.search import search_grid, search_heads

        problem, _, _ = self.problem(cell, HELD_OUT_SEED, report)
        search = search_heads if cell.method.margins == "tuned" else search_grid
        start = time.perf_counter()
        found = search(cell.method, problem, report)
        return {**found, "seconds": round(time.perf_counter() - start, 3)}


def _training_key(entry: dict[str, Any], method: Method, problem: Problem) -> str:
    """Name of a training: the same for cells whose networks are the same."""
    same = {name: value for name, value in entry.items() if name not in ("table", "method")}
    loss: list[Any] = [method.name]
    if method.name in ("mild", "tdef"):
        margins = training_margins(method, problem.costs, problem.largest)
        loss = [method.rewards or "complement", [round(value, 9) for value in margins]]
        loss += [] if method.strength is None else [method.strength]
    return cell_key({**same, "loss": loss})


def training_facts(network: TrainedNetwork) -> dict[str, float]:
    """How long a training took, how fast it was, and where its loss ended."""
    return {
        "seconds": round(network.seconds, 3),
        "images_per_second": round(network.images_per_second, 1),
        "final_loss": float(network.history[-1]["loss"]),
    }


def _curve(network: TrainedNetwork) -> dict[str, list[float | None]]:
    """Losses after every epoch: the surrogate on training and test rows, the deferral loss by each rule."""
    names = {"loss": "train_surrogate", "test_surrogate": "test_surrogate"}
    names |= {"argmax": "argmax", "stationary": "stationary"}
    known = {name for record in network.history for name in record}
    return {
        label: [
            None if record.get(name) is None else round(record[name], 6)
            for record in network.history
        ]
        for name, label in names.items()
        if name in known
    }


def choose_device(name: str) -> str:
    """The device that "auto" stands for; an error where there is no GPU."""
    check_option("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and best_device() != "cuda":
        raise InvalidInputError("device must be 'cpu' or 'auto' here: torch finds no GPU.")
    return best_device() if name == "auto" else name


def run_classifier(
    data: ImageData,
    protocol: Protocol,
    seeds: int,
    device: str = "auto",
    progress: Progress | None = None,
    known: Mapping[str, dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Test accuracy of a plain classifier, per seed; records in ``known``, by key, are not made again."""
    place = choose_device(device)
    records: list[dict[str, Any]] = []
    for seed in range(seeds):
        cell: dict[str, Any] = {"table": "classifier", "dataset": data.name, "data": data.digest()}
        cell |= {"protocol": protocol.as_dict(), "seed": seed, **recipe()}
        if known and cell_key(cell) in known:
            records.append(known[cell_key(cell)])
            continue
        network = train_classifier(
            data.train_images,
            data.train_labels,
            data,
            protocol,
            seed,
            device=place,
            progress=progress,
        )
        answers = np.argmax(network.scores(data.test_images), axis=1)
        records.append(
            {
                "schema": SCHEMA,
                "key": cell_key(cell),
                "cell": cell,
                "accuracy": float((answers == data.test_labels).mean()),
                "training": training_facts(network),
                **surroundings(place),
                "note": data.note,
            }
        )
    return records


#: The tables with their usual setups, experts and costs.
TABLES: dict[str, tuple[tuple[Setup, ...], tuple[str, ...], tuple[str, ...]]] = {
    "table1": (tuple(SETUPS[name] for name in ("I", "II", "III")), ("synthetic",), COSTS),
    "table2": (tuple(SETUPS[name] for name in ("I", "II", "III")), ("real",), COSTS),
    "severe": ((SETUPS["severe"],), ("synthetic", "real"), ("error",)),
    "readings": ((SETUPS["I"],), ("synthetic",), ("error",)),
    "people": ((), ("people",), COSTS),
}

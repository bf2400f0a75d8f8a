"""Run the cells of a request; each finished one is added to the results file before the next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mild.exceptions import InvalidInputError
from mild.reproduce.cells import Cell, plan
from mild.reproduce.diverged import DivergedError
from mild.reproduce.experts import ExpertAnswers
from mild.reproduce.experts.splits import TUNING_SEED
from mild.reproduce.images.training import TrainedNetwork, best_device
from mild.reproduce.methods import Method
from mild.reproduce.objective import training_margins
from mild.reproduce.outcomes import outcomes, reference
from mild.reproduce.records import SCHEMA
from mild.reproduce.requests import Request, check_folders
from mild.reproduce.results import cell_key
from mild.reproduce.routing import RoutingProblem, forget_checkpoint, routing_problem, tidied
from mild.reproduce.supply import Supply
from mild.reproduce.surroundings import commit, hardware, versions
from mild.reproduce.tuning import TuningFile, found_method, tune
from mild.reproduce.turns import Ledger, Progress, Tell, check_place, run_cells

__all__ = ["choose_device", "reproduce", "training_facts"]


def reproduce(request: Request, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Records of all cells of a request, in their order.

    A cell that the results file holds already is not run again; nor is one whose network would be
    trained just as that of another cell in the same file: a method's search may find another method,
    and tables that share a results file share cells. A cell that another process is at is left to it,
    and looked for at the end. An interrupt or a kill leaves what is finished in the file; a cell that
    was under way goes on from its checkpoint next time. A cell whose training diverges does not keep
    the others from being run; the error comes at the end and names such cells.

    Parameters
    ----------
    request : what to run
    progress : called as ``progress(done, total, message)``, also while a cell is trained
    """
    check_place(request.results)
    runner = _Runner(request, choose_device(request.device))
    check_folders(request)
    runner.supply.check()
    with tidied(request.checkpoint_dir):
        return run_cells(plan(request), runner.record, request.results, progress)


class _Runner:
    """Runs cells of one request; each finished one goes to the results file at once."""

    def __init__(self, request: Request, device: str) -> None:
        self.request = request
        self.device = device
        self.supply = Supply(request, device)
        self.ledger = Ledger(request.results)
        # A search serves all seeds: one that diverged is not repeated for each of them.
        self._diverged: dict[str, DivergedError] = {}

    def record(self, cell: Cell, tell: Tell, wait: bool) -> dict[str, Any] | None:
        """The record of a cell, from the results file or a training; None if another process is at it."""
        entry = self.supply.entry(cell)
        key = cell_key(entry)
        known = self.ledger.known(key)
        if known is None:
            with self.ledger.claim(key, wait, tell) as ours:
                if not ours:
                    return None
                known = self.ledger.finished.get(key) or self._run(cell, entry, key, tell)
        # A kill between the record and its checkpoint's end leaves the latter behind.
        forget_checkpoint(self.request.checkpoint_dir, key)
        return known

    def _run(self, cell: Cell, entry: dict[str, Any], key: str, tell: Tell) -> dict[str, Any]:
        chosen = self._search(cell, entry, tell) if cell.method.searched else None
        task, answers, note = self._problem(cell, cell.seed, tell)
        method = found_method(cell.method, chosen)
        training = _training_key(entry, method, task)
        twin = self.ledger.twin(training)
        if twin is not None:
            return self.ledger.add({**twin, "key": key, "cell": entry, "chosen": chosen})
        network, objective = task.train(method, cell.seed, key, tell=tell, curve=True)
        scores = network.scores(task.test_images)
        record = {
            "schema": SCHEMA,
            "key": key,
            "twin": training,
            "cell": entry,
            "margins": None if objective.margins is None else list(objective.margins),
            "outcomes": outcomes(scores, task.test_costs, objective.margins),
            "reference": reference(task.test_costs),
            "chosen": chosen,
            "experts": {
                "names": list(answers.names),
                "prices": answers.prices.tolist(),
                "notes": dict(answers.notes),
            },
            "training": {**training_facts(network), "optimizer": cell.protocol.optimizer},
            "curve": curve(network),
            "versions": versions(),
            "hardware": hardware(self.device),
            "commit": commit(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "note": note,
        }
        return self.ledger.add(record)

    def _search(self, cell: Cell, entry: dict[str, Any], tell: Tell) -> dict[str, Any]:
        file = TuningFile(self.request.tuning_dir, entry)
        if file.key in self._diverged:
            raise self._diverged[file.key]
        try:
            # Another process at another seed may be at the same search: wait for what it finds.
            with self.ledger.claim(file.key, True, tell):
                return tune(
                    cell.method, lambda: self._problem(cell, TUNING_SEED, tell)[0], file, tell
                )
        except DivergedError as error:
            self._diverged[file.key] = error
            raise

    def _problem(
        self, cell: Cell, seed: int, tell: Tell
    ) -> tuple[RoutingProblem, ExpertAnswers, str]:
        data, answers = self.supply.scenario(cell, seed, lambda done, total, said: tell(said))
        folder = self.request.checkpoint_dir
        problem = routing_problem(
            data, answers, cell.cost, cell.protocol, self.device, folder, cell.scale
        )
        return problem.held_out() if cell.validation else problem, answers, data.note


def _training_key(entry: Mapping[str, Any], method: Method, task: RoutingProblem) -> str:
    """Name of a training: the same for cells whose networks are the same."""
    same = {name: value for name, value in entry.items() if name not in ("table", "method")}
    loss: list[Any] = [method.name]
    if method.name in ("mild", "tdef"):
        margins = training_margins(method, task.costs, task.largest)
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


def curve(network: TrainedNetwork) -> dict[str, list[float | None]]:
    """Losses after every epoch: the surrogate on training batches and on the test rows, and the
    deferral loss on the test rows by each rule. None for epochs of which it is not known.
    """
    names = {"loss": "train_surrogate"}
    names |= {name: name for name in ("test_surrogate", "argmax", "stationary")}
    known = {name for record in network.history for name in record}
    return {
        told: [
            None if record.get(name) is None else round(float(record[name]), 6)
            for record in network.history
        ]
        for name, told in names.items()
        if name in known
    }


def choose_device(name: str) -> str:
    """The device that "auto" stands for here; an error where there is no GPU to be had."""
    best = best_device()
    if name == "cuda" and best != "cuda":
        raise InvalidInputError("device must be 'cpu' or 'auto' here: torch finds no GPU.")
    return best if name == "auto" else name

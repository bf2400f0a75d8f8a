"""Run requests from a file, several trainings side by side, within a time; needs no command-line package.

    python -m experiments.images.batch REQUESTS.json --results FILE --jobs 2 --stop-after 500

REQUESTS.json is a list of objects; ``REQUEST`` says what their fields mean. Every finished training is one
record of FILE; those that it holds are not run again, so the same command goes on where a kill ended one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.images.data import ImageData, load_images
from experiments.images.experts import Setup
from experiments.images.methods import Method
from experiments.images.run import TABLES, Cell, Request, Runner, plan
from experiments.images.training import DEFAULT, PROTOCOLS, Protocol
from experiments.records import Record, ResultsFile, cell_key
from mild.errors import DataFileError, MildError, check_option

#: Fields of a request. Those that are left out are as in ``python -m experiments.images TABLE``.
REQUEST = {
    "table": "one of table1, table2, severe, readings, people",
    "datasets": "names of data sets",
    "setups": "I, II, III, severe, or coverages such as 0.6-0.3-0.1",
    "experts": "synthetic, real",
    "costs": "error, cost",
    "methods": "as --method: tdef, mild:total=mean1, ...",
    "protocol": "a protocol by name",
    "changes": "fields of the protocol with other values",
    "expert_protocol": "the same for trained experts; as the router's by default",
    "expert_changes": "fields of it with other values",
    **dict.fromkeys(
        ("seeds", "holdout", "expert_seed", "people_file", "scale", "price", "ambiguous"),
        "as in Request",
    ),
    "validation": "judge on held-out training rows",
    "others": "share of the other classes in the training rows of real experts",
}


def read_requests(path: Path, **options: Any) -> list[Request]:
    """The requests of a file; ``options`` are the fields of all of them that say where things are."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [_request(dict(entry), options) for entry in content]
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, MildError):
            raise
        raise DataFileError(f"{path} must be a JSON list of requests ({error}).") from error


def _request(entry: dict[str, Any], options: Mapping[str, Any]) -> Request:
    for name in entry:
        check_option("field of a request", name, REQUEST)
    table = check_option("table", entry.pop("table", None), TABLES)
    setups, experts, costs = TABLES[table]
    protocol = _protocol(entry, "protocol", "changes", DEFAULT)
    expert_protocol = _protocol(entry, "expert_protocol", "expert_changes", None)
    if "people_file" in entry:
        entry["people_file"] = Path(entry["people_file"])
    return Request(
        table,
        tuple(entry.pop("datasets", ("cifar10",))),
        tuple(map(Setup.parse, entry.pop("setups", ()))) or setups,
        tuple(entry.pop("experts", experts)),
        tuple(entry.pop("costs", costs)),
        tuple(map(Method.parse, entry.pop("methods", ("tdef", "mild:total=mean1")))),
        protocol or PROTOCOLS[DEFAULT],
        expert_protocol=expert_protocol,
        **entry,
        **options,
    )


def _protocol(
    entry: dict[str, Any], name: str, changes: str, default: str | None
) -> Protocol | None:
    known, changed = entry.pop(name, default), entry.pop(changes, {})
    if known is None:
        return None
    return PROTOCOLS[check_option("protocol", known, PROTOCOLS)].changed(**changed)


@dataclass(frozen=True)
class Task:
    """A cell that is to be trained: the place of its request, and what its time depends on."""

    place: int
    cell: Cell
    kind: str
    scenario: str


class _Kept(ResultsFile):
    """Records of a process that does not write them: the one that started it does."""

    def add(self, record: Record) -> Record:
        self.records[record["key"]] = record
        return record


# Of a worker: one runner per request, from the process that it was forked from.
_runners: list[Runner] = []


def _train(place: int, cell: Cell, fresh: Mapping[str, Record]) -> tuple[Record, float]:
    """The record of a cell, and the seconds that it took; ``fresh`` are the records of other workers."""
    start = time.monotonic()
    runner = _runners[place]
    runner.results.records.update(fresh)
    return runner.record(cell, lambda message: None), time.monotonic() - start


@dataclass
class Batch:
    """The trainings of some requests.

    Attributes
    ----------
    requests : what is asked for, most important first
    results : the results file, locked by this process
    jobs : trainings at once
    stop_after : seconds after which no training should still run; None for no limit
    expected : seconds that a training is expected to take where none of its kind has finished
    tell : called with a line for every training that ends
    """

    requests: Sequence[Request]
    results: ResultsFile
    jobs: int = 1
    stop_after: float | None = None
    expected: float = 0.0
    tell: Callable[[str], Any] = print
    start: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        images: dict[str, ImageData] = {}
        for request in self.requests:
            for name in request.datasets:
                if name not in images:
                    images[name] = load_images(name, request.data_dir)
        kept = _Kept(self.results.path)
        kept.records = dict(self.results.records)
        self.runners = [Runner(request, kept, images) for request in self.requests]
        self.seconds: dict[str, list[float]] = {}
        self.prepared: set[str] = set()
        self.fresh: dict[str, Record] = {}
        self.failed: list[str] = []
        self.left = self._tasks()

    def _tasks(self) -> list[Task]:
        """What the results file does not hold yet, each cell once."""
        tasks: dict[str, Task] = {}
        for place, (request, runner) in enumerate(zip(self.requests, self.runners, strict=True)):
            for cell in plan(request):
                entry = runner.entry(cell)
                key = cell_key(entry)
                if key not in self.results.records and key not in tasks:
                    kind = [cell.dataset, cell.experts, entry["protocol"], request.validation]
                    trained = [entry[name] for name in ("expert_protocol", "expert_seed")]
                    scenario = [cell.dataset, cell.setup.name, *trained, request.others]
                    waits = str(scenario) if cell.experts != "synthetic" else ""
                    tasks[key] = Task(place, cell, json.dumps(kind), waits)
        return list(tasks.values())

    def run(self) -> None:
        """Train until nothing is left, or nothing that would end in time."""
        global _runners
        _runners = self.runners
        # Forked workers share the images. This process must not touch the GPU before.
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(self.jobs, context) as pool:
            running: dict[Future[tuple[Record, float]], Task] = {}
            while True:
                while len(running) < self.jobs and (task := self._next(running.values())):
                    try:
                        future = pool.submit(_train, task.place, task.cell, self.fresh)
                    except BrokenProcessPool:
                        # A worker was killed, for memory perhaps: what is left is for another command.
                        return
                    self.left.remove(task)
                    running[future] = task
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    self._finish(running.pop(future), future)

    def expect(self, task: Task) -> float:
        """Seconds that a training is expected to take."""
        known = self.seconds.get(self._kind(task))
        return max(known[-3:]) if known else self.expected

    def _kind(self, task: Task) -> str:
        """What the time of a training depends on: the first router of some experts trains these, too."""
        return f"{task.kind} {bool(task.scenario) and task.scenario not in self.prepared}"

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def _next(self, running: Any) -> Task | None:
        """The first task that would end in time and whose experts no other one is training."""
        busy = {task.scenario for task in running} - self.prepared - {""}
        for task in self.left:
            late = (
                self.stop_after is not None and self.elapsed + self.expect(task) > self.stop_after
            )
            if not late and task.scenario not in busy:
                return task
        return None

    def _finish(self, task: Task, future: Future[tuple[Record, float]]) -> None:
        try:
            record, seconds = future.result()
        except Exception as error:
            self.failed.append(f"{task.cell.title}: {type(error).__name__}: {error}")
            self.tell(f"{self.elapsed:6.0f} s  FAILED {self.failed[-1]}")
            return
        self.results.add(record)
        self.fresh[record["key"]] = record
        self.seconds.setdefault(self._kind(task), []).append(seconds)
        self.prepared.add(task.scenario)
        losses = ", ".join(
            f"{rule} {found['loss']:.4f}" for rule, found in record["outcomes"].items()
        )
        trained = record["training"]["seconds"]
        self.tell(
            f"{self.elapsed:6.0f} s  {task.cell.title}: {losses} ({seconds:.0f} s, {trained:.0f} of them "
            f"epochs)"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requests of a file; 1 where a training failed."""
    parser = argparse.ArgumentParser(prog="experiments.images.batch", description=__doc__)
    parser.add_argument("requests", type=Path, help="JSON list of requests")
    parser.add_argument("--results", type=Path, required=True, help="results file")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data"), help="folder of the data sets"
    )
    parser.add_argument("--cache-dir", type=Path, default=Path("cache"), help="trained experts")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    parser.add_argument("--stop-after", type=float, help="start none that would end after this")
    parser.add_argument("--expect", type=float, default=0, help="seconds of the first of a kind")
    parser.add_argument(
        "--list", action="store_true", help="say what is to be done, and do nothing"
    )
    given = parser.parse_args(arguments)
    start = time.monotonic()
    try:
        requests = read_requests(
            given.requests,
            results=given.results,
            data_dir=given.data_dir,
            cache_dir=given.cache_dir,
            device=given.device,
        )
        with ResultsFile(given.results).locked() as results:
            batch = Batch(
                requests,
                results,
                jobs=given.jobs,
                stop_after=given.stop_after,
                expected=given.expect,
                tell=lambda line: print(line, flush=True),
                start=start,
            )
            batch.tell(f"{batch.elapsed:6.0f} s  {len(batch.left)} trainings to do")
            if not given.list:
                batch.run()
    except MildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for task in batch.left:
        batch.tell(f"left: {task.cell.title}")
    for failure in batch.failed:
        batch.tell(f"failed: {failure}")
    batch.tell(f"{batch.elapsed:6.0f} s  {len(batch.left)} left, {len(batch.failed)} failed")
    return 1 if batch.failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Workers that hold partitions of a dataset and compute sums over them, in this process or on Ray.

Every answer is a function of the partition and the arguments. Ray restarts an actor that died; it starts
empty and reads its partitions again. Sums are taken in the order of the partitions, so that neither the
number of workers nor a restart changes a single bit.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mild.artifact import fingerprint
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.costs import label_of
from mild.core.threads import cores
from mild.data import OutcomeTable
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import ROW_ONE, ScoreCounts
from mild.data.tables import naming
from mild.distributed.executors import result_of
from mild.distributed.partitions import Partition, changed
from mild.distributed.ray_connection import RETRIES, connect
from mild.distributed.shards.dataset import PIECE_ROWS, Dataset
from mild.errors import DataFileError, InvalidInputError
from mild.features import TextFeatures
from mild.features.hashing import HashingFeatures
from mild.routers.objective import (
    LABEL_LOSSES,
    LinearObjective,
    LossParameters,
    MarginSums,
    fixed_margins,
    margin_sums,
    raw_rewards,
    row_loss,
    row_targets,
    single_blas_thread,
)
from mild.tuning.training_rows import TrainingQueryIndex

# Bytes up to which features stay in memory.
IN_MEMORY = 256 << 20
# Seconds in which every actor must have started.
START = 120.0


@dataclass(frozen=True)
class CostStats:
    """Statistics of the costs of rows in which one is known."""

    rows: int
    asked: IntArray  # (p,) rows in which each expert was asked
    totals: FloatArray  # (p,) sum of the known costs of each expert
    always: BoolArray  # (p,) whether the expert costs least in every row
    largest: float
    differ: bool  # whether two experts that were asked differ in cost in any row
    unknown: int  # rows in which an expert was asked and no cost is known
    cheapest: IntArray  # (p,) rows in which no expert costs less

    @classmethod
    def of(cls, costs: FloatArray) -> CostStats:
        rows = len(costs)
        costs = costs[~np.isnan(costs).all(axis=1)]
        known = ~np.isnan(costs)
        least = np.where(known, costs, np.inf).min(axis=1)
        most = np.where(known, costs, -np.inf).max(axis=1)
        return cls(
            len(costs),
            known.sum(axis=0),
            np.where(known, costs, 0.0).sum(axis=0),
            (costs == least[:, None]).all(axis=0),
            float(most.max(initial=0.0)),
            bool((most > least).any()),
            rows - len(costs),
            (costs == least[:, None]).sum(axis=0),
        )

    def __add__(self, other: CostStats) -> CostStats:
        return CostStats(
            self.rows + other.rows,
            self.asked + other.asked,
            self.totals + other.totals,
            self.always & other.always,
            max(self.largest, other.largest),
            self.differ or other.differ,
            self.unknown + other.unknown,
            self.cheapest + other.cheapest,
        )


@dataclass(frozen=True)
class Moments:
    """Number, mean and summed squared deviation of features, (d,) each (Chan, Golub and LeVeque 1983)."""

    rows: int
    mean: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> Moments:
        rows = X.astype(np.float64)
        mean = rows.mean(axis=0) if len(rows) else np.zeros(X.shape[1])
        rows -= mean
        return cls(len(rows), mean, np.einsum("ij,ij->j", rows, rows))

    def __add__(self, other: Moments) -> Moments:
        rows = self.rows + other.rows
        if rows == 0:
            return self
        shift = other.mean - self.mean
        return Moments(
            rows,
            self.mean + shift * (other.rows / rows),
            self.spread + other.spread + shift**2 * (self.rows * other.rows / rows),
        )

    def scaler(self) -> Any:
        """The StandardScaler of all rows."""
        from sklearn.preprocessing import StandardScaler

        variance = self.spread / self.rows
        # As in scikit-learn, a feature that varies by no more than its rounding is constant.
        epsilon = float(np.finfo(np.float64).eps)
        bound = self.rows * epsilon * variance + (self.rows * self.mean * epsilon) ** 2
        scaler = StandardScaler(copy=False)
        scaler.mean_, scaler.var_ = self.mean, variance
        scaler.scale_ = np.where(variance <= bound, 1.0, np.sqrt(variance))
        scaler.n_features_in_, scaler.n_samples_seen_ = self.mean.size, self.rows
        return scaler


@dataclass(frozen=True)
class TargetSums:
    """Sums over some rows that the targets of a loss need."""

    labels: FloatArray  # (p,) rows on which each expert is cheapest
    rewards: FloatArray  # (p,) sums of the rewards, before they are scaled; of label losses 0
    margins: MarginSums | None  # for theory margins; None where margins are fixed

    @classmethod
    def of(
        cls,
        options: LossParameters,
        X: Any,
        costs: FloatArray,
        cost_scale: float,
        means: FloatArray | None = None,
    ) -> TargetSums:
        p = costs.shape[1]
        rewards, margins = np.zeros(p), None
        if options.loss not in LABEL_LOSSES:
            rewards = raw_rewards(options, costs, cost_scale).sum(axis=0, dtype=np.float64)
        if fixed_margins(options, p) is None:
            margins = margin_sums(options, X, costs, np.ones(len(costs)), cost_scale, means)
        labels = np.bincount(label_of(costs, means), minlength=p).astype(np.float64)
        return cls(labels, rewards, margins)

    def __add__(self, other: TargetSums) -> TargetSums:
        margins = self.margins
        if margins is not None and other.margins is not None:
            margins = margins + other.margins
        return TargetSums(self.labels + other.labels, self.rewards + other.rewards, margins)


def _plus(total: Any, term: Any) -> Any:
    """The sum, where None is nothing."""
    if total is None or term is None:
        return term if total is None else total
    return total + term


@dataclass(frozen=True)
class Setup:
    """What is known of the whole dataset so far."""

    step: TextFeatures
    rows: Mapping[int, int]  # number of the partition -> its rows in which a cost is known
    scaler: Any = None
    options: Any = None  # LossParameters
    whole: Any = None  # what the targets of a row need from all rows


class PartitionSummary(NamedTuple):
    """What is found while the features of a partition are made; moments only on request."""

    moments: Moments | None
    fingerprint: str
    sample: list[OutcomeTable]


@dataclass(eq=False)
class ShardWorker:
    """Computes sums over some partitions of a dataset; large features are kept in the folder, if any."""

    dataset: Dataset
    partitions: Sequence[Partition]
    terms: CostTerms
    folder: Path | None = None
    threads: int | None = None  # by default as many as BLAS would use

    def __post_init__(self) -> None:
        # Arrays by the number of a partition and a name, or the files that they are mapped from.
        self._arrays: dict[tuple[int, str], Any] = {}
        self._scaled: set[int] = set()
        self._lock = threading.Lock()

    def pid(self) -> int:
        """Process of this worker."""
        return os.getpid()

    def each(self, method: str, *arguments: Any) -> tuple[list[tuple[int, Any]], Any]:
        """Number and result of a method for each partition, and the sum of what it adds up to."""
        run = getattr(self, method)
        total: Any = None

        def work(part: Partition) -> tuple[int, Any]:
            nonlocal total
            result, term = run(part, *arguments)
            with self._lock:
                total = _plus(total, term)
            return part.number, result

        with single_blas_thread() as usual:
            threads = min(self.threads or usual, len(self.partitions))
            if threads <= 1:
                return [work(part) for part in self.partitions], total
            pool = ThreadPoolExecutor(threads)
            try:
                return list(pool.map(work, self.partitions)), total
            finally:
                pool.shutdown(cancel_futures=True)

    def survey(
        self, part: Partition, step: HashingFeatures | None
    ) -> tuple[tuple[CostStats, ScoreCounts], Any]:
        """Costs and scores, and the term counts of the texts for a step that needs them."""
        nothing = np.zeros((0, len(self.dataset.expert_names)))
        stats, cells, counts = CostStats.of(nothing), ScoreCounts.of(nothing), None
        for piece in self.dataset.read(part, contents=step is not None):
            with naming(part.path):
                costs = self.terms.costs(piece, piece=True)
            stats += CostStats.of(costs)
            piece, _ = _known(piece, costs)
            cells += ScoreCounts.of(piece.scores)
            if step is not None and piece.rows:
                counts = _plus(counts, step.count(piece.queries))
        return (stats, cells), counts

    def take(
        self, part: Partition, rows: Mapping[int, IntArray]
    ) -> tuple[list[OutcomeTable], None]:
        """Some rows, by their numbers among those in which a cost is known."""
        found: list[OutcomeTable] = []
        at = 0
        for piece, _ in self._pieces(part) if part.number in rows else ():
            found += _picked(rows[part.number], at, piece)
            at += piece.rows
            if at > rows[part.number][-1]:
                break
        return found, None

    def make_features(
        self, part: Partition, setup: Setup, moments: bool, rows: Mapping[int, IntArray]
    ) -> tuple[PartitionSummary, TrainingQueryIndex]:
        """Make the features, with a sample of these rows and hashes of the queries."""
        with self._lock:
            if not self._arrays:
                self._check_room(setup)
        step, n = setup.step, setup.rows[part.number]
        X = self._new(part, "X", (n, step.n_features_), np.float32)
        costs = self._new(part, "costs", (n, len(self.dataset.expert_names)), np.float64)
        total: Moments | None = None
        seen = TrainingQueryIndex(np.zeros(0, np.uint64))
        sample: list[OutcomeTable] = []
        at = 0
        for piece, known in self._pieces(part):
            if not piece.rows:
                continue
            end = at + piece.rows
            if end > n:
                raise changed(part)
            with naming(part.path):
                made = _transformed(step, piece)
            X[at:end], costs[at:end] = made, known
            seen += TrainingQueryIndex.of(piece)
            if moments:
                total = _plus(total, Moments.of(made))
            sample += _picked(rows.get(part.number, np.zeros(0, np.intp)), at, piece)
            at = end
        if at != n:
            raise changed(part)
        return PartitionSummary(total, fingerprint(X, costs), sample), seen

    def _pieces(self, part: Partition) -> Iterator[tuple[OutcomeTable, FloatArray]]:
        """The rows in which a cost is known, in pieces, with their costs."""
        for piece in self.dataset.read(part):
            with naming(part.path):
                costs = self.terms.costs(piece, piece=True)
            yield _known(piece, costs)

    def sums(
        self, part: Partition, setup: Setup, cost_scale: float, means: FloatArray | None
    ) -> tuple[TargetSums, None]:
        """Sums that the targets need; ``means`` as in ``Whole``."""
        X, costs = self._features(part, setup), np.asarray(self._get(part, "costs"))
        return TargetSums.of(setup.options, X, costs, cost_scale, means), None

    def evaluate(
        self, part: Partition, setup: Setup, W: FloatArray
    ) -> tuple[tuple[float, FloatArray], None]:
        """Value and gradient at W, without the penalty."""
        X = self._features(part, setup)
        if not len(X):
            return (0.0, np.zeros(W.shape)), None
        costs = np.asarray(self._get(part, "costs"))
        targets = row_targets(setup.options, costs, np.ones(len(costs)), setup.whole)
        return LinearObjective(X, row_loss(targets, np.float32), 0.0)(W), None

    def _check_room(self, setup: Setup) -> None:
        """Keep small features in memory, and refuse those that would fill the disk."""
        rows = sum(setup.rows[part.number] for part in self.partitions)
        p, d = len(self.dataset.expert_names), setup.step.n_features_
        wanted = rows * (4 * d + 8 * p)
        if self.folder is None or wanted <= IN_MEMORY:
            self.folder = None
            return
        free = shutil.disk_usage(self.folder).free
        if wanted > free:
            raise InvalidInputError(
                f"the features of all rows take {wanted / 1e9:.3g} GB of disk while they are fitted on; "
                f"{self.folder} has {free / 1e9:.3g} GB left. Name a roomier folder with --scratch, or use "
                f"--engine ray, which keeps them in its workers' memory."
            )

    def _new(self, part: Partition, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array, to be filled."""
        if self.folder is None or 0 in shape:
            self._arrays[part.number, name] = array = np.empty(shape, dtype)
            return array
        file = self.folder / f"{part.number:06d}.{name}.npy"
        self._arrays[part.number, name] = file
        return np.lib.format.open_memmap(file, mode="w+", dtype=np.dtype(dtype), shape=shape)

    def _get(self, part: Partition, name: str, mode: Any = "r") -> Any:
        """An array that was filled before; nothing stays mapped between two calls."""
        held = self._arrays[part.number, name]
        return np.lib.format.open_memmap(held, mode=mode) if isinstance(held, Path) else held

    def _features(self, part: Partition, setup: Setup) -> Any:
        """Features (n, d) of a partition, scaled if the setup says so; made again if missing."""
        number = part.number
        if (number, "X") not in self._arrays:
            self.make_features(part, setup, False, {})
        if setup.scaler is not None and number not in self._scaled:
            X = self._get(part, "X", "r+")
            for start in range(0, len(X), PIECE_ROWS):
                rows = slice(start, start + PIECE_ROWS)
                X[rows] = setup.scaler.transform(np.array(X[rows]))
            self._scaled.add(number)
        # A plain view: slices of a memmap are slow to make.
        return np.asarray(self._get(part, "X"))


def _known(piece: OutcomeTable, costs: FloatArray) -> tuple[OutcomeTable, FloatArray]:
    """The rows of a piece in which a cost is known, and their costs."""
    rows = ~np.isnan(costs).all(axis=1)
    return (piece, costs) if rows.all() else (piece.take(rows), costs[rows])


def _transformed(step: TextFeatures, piece: OutcomeTable) -> FloatArray:
    """Features (n, d) of a piece."""
    if step.kind != "vectors" or piece.vectors is None:
        return step.vectorize(piece.queries)
    if (width := piece.vectors.shape[1]) != step.n_features_:
        raise DataFileError(
            f"vectors must have {step.n_features_} numbers, as those before; row {piece.row_number(0)} has "
            f"{width} ({ROW_ONE})."
        )
    return step.vectorize(piece.vectors)


def _picked(rows: IntArray, at: int, piece: OutcomeTable) -> list[OutcomeTable]:
    """Those of the ascending rows that are in a piece, whose first row is ``at``: none or one table."""
    low, high = np.searchsorted(rows, [at, at + piece.rows])
    return [piece.take(rows[low:high] - at)] if high > low else []


@dataclass
class Workers:
    """The workers that together hold all partitions: one, in this process."""

    worker: ShardWorker

    def call(self, method: str, *arguments: Any) -> tuple[list[Any], Any]:
        """Results of a ``ShardWorker`` method in the order of the partitions, and the sum of its terms."""
        answers = self._answers(method, *arguments)
        results = sorted((one for own, _ in answers for one in own), key=lambda one: one[0])
        return [result for _, result in results], reduce(_plus, [term for _, term in answers])

    def _answers(self, method: str, *arguments: Any) -> list[Any]:
        return [self.worker.each(method, *arguments)]


class RayWorkers(Workers):
    """One worker in each of several actors."""

    def __init__(self, ray: Any, actors: list[Any]) -> None:
        self.ray, self.actors = ray, actors

    def _answers(self, method: str, *arguments: Any) -> list[Any]:
        refs = [self.ray.put(value) for value in arguments]
        answers = [actor.each.remote(method, *refs) for actor in self.actors]
        remedy = "Use more workers, on more machines, or smaller shards."
        return [result_of(answer.future(), "some shards", remedy) for answer in answers]


@contextmanager
def local_workers(
    dataset: Dataset, terms: CostTerms, folder: Path | None, threads: int | None = None
) -> Iterator[Workers]:
    """A worker in this process; for the parameters see ``ShardWorker``."""
    yield Workers(ShardWorker(dataset, dataset.partitions, terms, folder, threads))


@contextmanager
def ray_workers(
    dataset: Dataset, terms: CostTerms, address: str | None = None, workers: int | None = None
) -> Iterator[RayWorkers]:
    """Actors that share the partitions, by default one per processor of the cluster."""
    with connect(address, workers) as ray:
        processors = int(ray.cluster_resources().get("CPU", cores()))
        count = min(workers or processors, len(dataset.partitions))
        make = ray.remote(num_cpus=1, max_restarts=RETRIES, max_task_retries=RETRIES)(ShardWorker)
        shares = [dataset.partitions[k::count] for k in range(count)]
        actors = [make.remote(dataset, share, terms) for share in shares]
        try:
            # A cluster without a free processor would block for ever.
            pings = [actor.pid.remote() for actor in actors]
            ready, late = ray.wait(pings, num_returns=count, timeout=START)
            if late:
                raise InvalidInputError(
                    f"the Ray cluster started {len(ready)} of {count} workers within {START:.0f} s; the "
                    f"others found no free processor. Ask for fewer with --jobs, or wait until it has one.",
                    parameter="workers",
                )
            yield RayWorkers(ray, actors)
        finally:
            for actor in actors:
                ray.kill(actor)

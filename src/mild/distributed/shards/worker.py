"""A worker that holds some partitions of a dataset and computes sums over them.

Every answer is a function of the partition and the arguments. Results are cached, but a worker that was
just restarted gives the same answers.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mild.artifact import fingerprint
from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable
from mild.data.data_quality import Cells
from mild.distributed.partitions import Partition, changed
from mild.distributed.shards.dataset import PIECE_ROWS, Dataset, concatenate, naming
from mild.distributed.shards.sums import CostStats, Moments, TargetSums, merged_marks
from mild.errors import DataFileError, InvalidInputError
from mild.evaluation.tasks import CostTerms
from mild.evaluation.tasks.training_queries import TrainingQueryIndex
from mild.features import FEATURES, TextFeatures
from mild.features.encoder import EncoderFeatures
from mild.features.hashing import HashingFeatures
from mild.routers.objective import (
    LinearObjective,
    LossOptions,
    RowLoss,
    Whole,
    row_loss,
    row_targets,
    single_blas_thread,
)

__all__ = ["ArrayStore", "PartitionSummary", "Setup", "ShardWorker", "StepState"]

# Bytes up to which features stay in memory.
IN_MEMORY = 256 << 20

T = TypeVar("T")
Rows = Mapping[int, IntArray]


@dataclass(frozen=True)
class StepState:
    """A fitted feature step as it is saved, to be built again elsewhere."""

    kind: str
    settings: Mapping[str, Any]
    tensors: Mapping[str, Any]
    files: Mapping[str, bytes]
    cache: Any = None

    @classmethod
    def of(cls, step: TextFeatures) -> StepState:
        """State of a fitted step."""
        return cls(step.kind, *step.state(), step.files(), getattr(step, "cache", None))

    def build(self) -> TextFeatures:
        """The step."""
        step = FEATURES[self.kind].from_state(self.settings, self.tensors)
        if self.files:
            step.take_files(self.files)
        if isinstance(step, EncoderFeatures):
            # A loaded encoder has no cache; while fitting, encoded texts are cached.
            step.cache = self.cache
        return step


@dataclass(frozen=True)
class Setup:
    """What is known of the whole dataset so far.

    Attributes
    ----------
    step : how features are made
    rows : number of the partition -> its rows in which an expert was asked
    scaler : how features are scaled; None if they are not, or not yet
    options : options of the loss
    whole : what the targets of a row need from all rows
    """

    step: StepState
    rows: Mapping[int, int]
    scaler: Any = None
    options: LossOptions | None = None
    whole: Whole | None = None


@dataclass(frozen=True)
class PartitionSummary:
    """What is found while the features of a partition are made; moments only on request."""

    moments: Moments | None
    fingerprint: str
    sample: OutcomeTable | None


class ArrayStore:
    """Arrays by the number of a partition and a name, in memory or mapped from a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._held: dict[tuple[int, str], np.ndarray[Any, Any]] = {}

    def new(self, number: int, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array, to be filled."""
        if self.folder is None or 0 in shape:
            self._held[number, name] = np.empty(shape, dtype)
            return self._held[number, name]
        return np.lib.format.open_memmap(
            self._file(number, name), mode="w+", dtype=np.dtype(dtype), shape=shape
        )

    def get(self, number: int, name: str, write: bool = False) -> Any:
        """An array that was filled before; nothing stays mapped between two calls."""
        if (number, name) in self._held:
            return self._held[number, name]
        return np.lib.format.open_memmap(self._file(number, name), mode="r+" if write else "r")

    def has(self, number: int, name: str) -> bool:
        """Whether the array exists."""
        if (number, name) in self._held:
            return True
        return self.folder is not None and self._file(number, name).exists()

    def check_room(self, wanted: int) -> None:
        """Refuse to begin what would fill the disk."""
        if self.folder is None:
            return
        free = shutil.disk_usage(self.folder).free
        if wanted > free:
            raise InvalidInputError(
                f"the features of all rows take {wanted / 1e9:.3g} GB of disk while they are fitted on; "
                f"{self.folder} has {free / 1e9:.3g} GB left. Name a roomier folder with --scratch, or use "
                f"--engine ray, which keeps them in its workers' memory."
            )

    def _file(self, number: int, name: str) -> Path:
        if self.folder is None:
            raise KeyError((number, name))
        return self.folder / f"{number:06d}.{name}.npy"


class ShardWorker:
    """Computes sums over some partitions of a dataset.

    Parameters
    ----------
    dataset, partitions : the dataset, and which of its partitions
    terms : terms of the cost
    folder : where features are kept; None for memory
    threads : number of threads; None for as many as BLAS would use
    """

    def __init__(
        self,
        dataset: Dataset,
        partitions: Sequence[Partition],
        terms: CostTerms,
        folder: Path | None = None,
        threads: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.partitions = list(partitions)
        self.terms = terms
        self.store = ArrayStore(folder)
        self.threads = threads
        self._losses: dict[int, RowLoss] = {}
        self._scaled: set[int] = set()
        self._step: tuple[StepState, TextFeatures] | None = None

    def pid(self) -> int:
        """Process of this worker."""
        return os.getpid()

    def survey(
        self, step: HashingFeatures | None
    ) -> tuple[list[tuple[int, tuple[CostStats, Cells]]], Any]:
        """Costs and scores of each partition; term counts of all texts, for a step that needs them."""
        counts = _Total()

        def look(part: Partition) -> tuple[CostStats, Cells]:
            nothing = np.zeros((0, len(self.dataset.expert_names)))
            stats, cells = CostStats.of(nothing), Cells.of(nothing)
            for piece in self.dataset.read(part, contents=step is not None):
                with naming(part.path):
                    stats += CostStats.of(self.terms.costs(piece))
                cells += Cells.of(piece.scores)
                if step is not None and piece.rows:
                    counts.add(step.count(piece.queries))
            return stats, cells

        return self._each(look), counts.value

    def take(self, rows: Rows) -> list[tuple[int, OutcomeTable | None]]:
        """Some rows of the partitions, by their numbers among those in which an expert was asked."""

        def pick(part: Partition) -> OutcomeTable | None:
            picker = _Picker(rows.get(part.number))
            for piece in self.dataset.read(part) if picker.wanted.size else ():
                picker.see(piece)
                if picker.done:
                    break
            return picker.found()

        return self._each(pick)

    def make_features(
        self, setup: Setup, moments: bool, rows: Rows
    ) -> tuple[list[tuple[int, PartitionSummary]], TrainingQueryIndex]:
        """Make the features of every partition, with a sample of these rows and hashes of the queries."""
        self._make_room(setup)
        seen = _Total(merged_marks(), merged_marks)

        def make(part: Partition) -> PartitionSummary:
            summary, own = self._make(part, setup, moments, rows.get(part.number))
            seen.add(own)
            return summary

        return self._each(make), seen.value

    def sums(self, setup: Setup, cost_scale: float) -> list[tuple[int, TargetSums]]:
        """Sums of each partition that the targets need."""
        options = setup.options
        if options is None:
            raise TypeError("sums need the options of the loss")

        def total(part: Partition) -> TargetSums:
            X, costs = self._features(part, setup), self.store.get(part.number, "costs")
            return TargetSums.of(options, X, np.asarray(costs), cost_scale)

        return self._each(total)

    def evaluate(self, setup: Setup, W: FloatArray) -> list[tuple[int, tuple[float, FloatArray]]]:
        """Value and gradient of each partition's rows at W, without the penalty."""

        def total(part: Partition) -> tuple[float, FloatArray]:
            X = self._features(part, setup)
            if not len(X):
                return 0.0, np.zeros(W.shape)
            return LinearObjective(X, self._loss(part, setup), 0.0)(W)

        return self._each(total)

    def _each(self, work: Callable[[Partition], T]) -> list[tuple[int, T]]:
        """Number and result of each partition, in order, with as many threads as there should be."""
        numbers = [part.number for part in self.partitions]
        with single_blas_thread() as usual:
            threads = min(self.threads or usual, len(self.partitions))
            if threads <= 1:
                results = [work(part) for part in self.partitions]
            else:
                pool = ThreadPoolExecutor(threads)
                try:
                    results = list(pool.map(work, self.partitions))
                finally:
                    pool.shutdown(cancel_futures=True)
        return list(zip(numbers, results, strict=True))

    def _make_room(self, setup: Setup) -> None:
        """Keep small features in memory, even where there is a folder for more."""
        rows = sum(setup.rows[part.number] for part in self.partitions)
        p, d = len(self.dataset.expert_names), self._built(setup.step).n_features
        # Features, costs, rewards, and which experts were asked.
        wanted = rows * (4 * d + 8 * p + 4 * p + p)
        if wanted <= IN_MEMORY:
            self.store = ArrayStore()
        else:
            self.store.check_room(wanted)

    def _features(self, part: Partition, setup: Setup) -> Any:
        """Features (n, d) of a partition, scaled if the setup says so; made again if missing."""
        number = part.number
        if not self.store.has(number, "X"):
            self._make(part, setup, False, None)
        if setup.scaler is not None and number not in self._scaled:
            X = self.store.get(number, "X", write=True)
            for start in range(0, len(X), PIECE_ROWS):
                rows = slice(start, start + PIECE_ROWS)
                X[rows] = setup.scaler.transform(np.array(X[rows]))
            self._scaled.add(number)
        # A plain view: slices of a memmap are slow to make.
        return np.asarray(self.store.get(number, "X"))

    def _make(
        self, part: Partition, setup: Setup, moments: bool, rows: IntArray | None
    ) -> tuple[PartitionSummary, TrainingQueryIndex]:
        step = self._built(setup.step)
        number, n = part.number, setup.rows[part.number]
        X = self.store.new(number, "X", (n, step.n_features), np.float32)
        costs = self.store.new(number, "costs", (n, len(self.dataset.expert_names)), np.float64)
        self._scaled.discard(number)
        picker = _Picker(rows)
        total: Moments | None = None
        seen: list[TrainingQueryIndex] = []
        at = 0
        for piece in self.dataset.read(part):
            if not piece.rows:
                continue
            end = at + piece.rows
            if end > n:
                raise changed(part)
            with naming(part.path):
                made = _transformed(step, piece)
                costs[at:end] = self.terms.costs(piece)
            X[at:end] = made
            seen.append(TrainingQueryIndex.of(piece))
            if moments:
                total = Moments.of(made) if total is None else total + Moments.of(made)
            picker.see(piece)
            at = end
        if at != n:
            raise changed(part)
        return PartitionSummary(total, fingerprint(X, costs), picker.found()), merged_marks(*seen)

    def _loss(self, part: Partition, setup: Setup) -> RowLoss:
        """The loss of a partition's rows; its arrays are in the store."""
        number, options, whole = part.number, setup.options, setup.whole
        if options is None or whole is None:
            raise TypeError("a loss needs its options and the sums of all rows")
        if number not in self._losses:
            costs = np.asarray(self.store.get(number, "costs"))
            loss = row_loss(row_targets(options, costs, np.ones(len(costs)), whole), np.float32)
            self.store.new(number, "rewards", loss.rewards.shape, np.float32)[:] = loss.rewards
            if loss.asked is not None:
                self.store.new(number, "asked", loss.asked.shape, np.bool_)[:] = loss.asked
            nothing = np.zeros((0, 0), np.float32)
            self._losses[number] = replace(loss, rewards=nothing, asked=None)
        asked = self.store.has(number, "asked")
        return replace(
            self._losses[number],
            rewards=np.asarray(self.store.get(number, "rewards")),
            asked=np.asarray(self.store.get(number, "asked")) if asked else None,
        )

    def _built(self, state: StepState) -> TextFeatures:
        if self._step is None or self._step[0] is not state:
            self._step = state, state.build()
        return self._step[1]


def _transformed(step: TextFeatures, piece: OutcomeTable) -> FloatArray:
    """Features (n, d) of a piece."""
    if step.kind != "vectors" or piece.vectors is None:
        return step.transform(piece.queries)
    width = piece.vectors.shape[1]
    if width != step.n_features:
        raise DataFileError(
            f"vectors must have {step.n_features} numbers, as those before; row {piece.place(0)} has "
            f"{width}."
        )
    return step.transform(piece.vectors)


class _Total:
    """A sum that several threads add to; its terms must commute."""

    def __init__(self, value: Any = None, plus: Callable[[Any, Any], Any] = add) -> None:
        self.value = value
        self._plus = plus
        self._lock = threading.Lock()

    def add(self, term: Any) -> None:
        with self._lock:
            self.value = term if self.value is None else self._plus(self.value, term)


class _Picker:
    """Picks rows out of consecutive pieces, by their ascending numbers."""

    def __init__(self, rows: IntArray | None) -> None:
        self.wanted = np.zeros(0, np.intp) if rows is None else rows
        self.at = 0
        self.pieces: list[OutcomeTable] = []

    @property
    def done(self) -> bool:
        """Whether later pieces hold none of the rows."""
        return not self.wanted.size or self.at > self.wanted[-1]

    def see(self, piece: OutcomeTable) -> None:
        low, high = np.searchsorted(self.wanted, [self.at, self.at + piece.rows])
        if high > low:
            self.pieces.append(piece.take(self.wanted[low:high] - self.at))
        self.at += piece.rows

    def found(self) -> OutcomeTable | None:
        return concatenate(self.pieces) if self.pieces else None

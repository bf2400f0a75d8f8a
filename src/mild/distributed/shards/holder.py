"""Some of the parts of a dataset, and everything that is asked about them.

Every answer is a function of the part and of what comes with the question. What was worked out before is
kept, but a holder that was just started, in place of one that died, gives the same answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mild.artifact import fingerprint
from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable
from mild.data.data_quality import Cells
from mild.distributed.shards.dataset import PIECE_ROWS, Dataset, Part, changed, naming
from mild.distributed.shards.joining import joined
from mild.distributed.shards.setup import Read, Setup, StepState
from mild.distributed.shards.store import Store
from mild.distributed.shards.sums import Moments, Survey, TargetSums, merged_marks
from mild.errors import DataFileError
from mild.evaluation.tasks import CostTerms
from mild.evaluation.tasks.training_queries import TrainingQueryIndex
from mild.features import TextFeatures
from mild.features.hashing import HashingFeatures
from mild.routers.objective import LinearObjective, RowLoss, single_blas_thread
from mild.routers.path import row_loss
from mild.routers.targets import row_targets

__all__ = ["Holder"]

# Bytes up to which features stay in memory.
IN_MEMORY = 256 << 20

T = TypeVar("T")
Rows = Mapping[int, IntArray]


class Holder:
    """Holds parts of a dataset.

    Parameters
    ----------
    dataset : where they are
    parts : which
    terms : what counts as a cost
    folder : where features are kept; None for memory
    threads : how many; None for as many as BLAS would use
    """

    def __init__(
        self,
        dataset: Dataset,
        parts: Sequence[Part],
        terms: CostTerms,
        folder: Path | None = None,
        threads: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.parts = list(parts)
        self.terms = terms
        self.store = Store(folder)
        self.threads = threads
        self._losses: dict[int, Any] = {}
        self._scaled: set[int] = set()
        self._step: tuple[StepState, TextFeatures] | None = None

    def survey(self, step: HashingFeatures | None) -> tuple[list[tuple[int, Survey, Cells]], Any]:
        """Survey and scores of each part; counts of a step that learns from counts of all texts."""

        counted = _Total()

        def look(part: Part) -> tuple[int, Survey, Cells]:
            nothing = np.zeros((0, len(self.dataset.expert_names)))
            found, cells = Survey.of(nothing), Cells.of(nothing)
            for piece in self.dataset.read(part, contents=step is not None):
                with naming(part.file):
                    found += Survey.of(self.terms.costs(piece))
                cells += Cells.of(piece.scores)
                if step is not None and piece.rows:
                    counted.add(step.count(piece.queries))
            return part.number, found, cells

        return self._each(look), counted.value

    def take(self, rows: Rows) -> list[tuple[int, OutcomeTable]]:
        """Some rows of the parts, by their numbers among those in which somebody was asked."""

        def pick(part: Part) -> tuple[int, OutcomeTable] | None:
            picker = _Picker(rows.get(part.number))
            for piece in self.dataset.read(part) if picker.wanted.size else ():
                picker.see(piece)
                if picker.done:
                    break
            found = picker.found()
            return None if found is None else (part.number, found)

        return [found for found in self._each(pick) if found is not None]

    def read(
        self, setup: Setup, moments: bool, rows: Rows
    ) -> tuple[list[Read], TrainingQueryIndex]:
        """Make the features of every part, and tell what a fit wants to know about them."""
        self._make_room(setup)
        seen = _Total(merged_marks(), merged_marks)

        def look(part: Part) -> Read:
            told, own = self._read(part, setup, moments, rows.get(part.number))
            seen.add(own)
            return told

        return self._each(look), seen.value

    def sums(self, setup: Setup, cost_scale: float) -> list[tuple[int, TargetSums]]:
        """What the targets take from each part."""

        def total(part: Part) -> tuple[int, TargetSums]:
            X, costs = self._features(part, setup), self.store.get(part.number, "costs")
            options = setup.options
            if options is None:
                raise TypeError("sums are asked for without options")
            return part.number, TargetSums.of(options, X, np.asarray(costs), cost_scale)

        return self._each(total)

    def evaluate(self, setup: Setup, W: FloatArray) -> list[tuple[int, float, FloatArray]]:
        """Value and gradient of each part's rows at W, the penalty aside."""

        def total(part: Part) -> tuple[int, float, FloatArray]:
            X = self._features(part, setup)
            if not len(X):
                return part.number, 0.0, np.zeros(W.shape)
            value, gradient = LinearObjective(X, self._loss(part, setup), 0.0)(W)
            return part.number, value, gradient

        return self._each(total)

    def _each(self, work: Callable[[Part], T]) -> list[T]:
        """An answer per part, in order, by as many threads as this process should use."""
        with single_blas_thread() as usual:
            hands = min(self.threads or usual, len(self.parts))
            if hands <= 1:
                return [work(part) for part in self.parts]
            pool = ThreadPoolExecutor(hands)
            try:
                return list(pool.map(work, self.parts))
            finally:
                pool.shutdown(cancel_futures=True)

    def _make_room(self, setup: Setup) -> None:
        """Keep a few features in memory, even where there is a folder for more."""
        rows = sum(setup.rows[part.number] for part in self.parts)
        p, d = len(self.dataset.expert_names), self._built(setup.step).n_features
        # Features, costs, rewards, and who was asked.
        wanted = rows * (4 * d + 8 * p + 4 * p + p)
        if wanted <= IN_MEMORY:
            self.store = Store()
        else:
            self.store.check_room(wanted)

    def _features(self, part: Part, setup: Setup) -> Any:
        """Features (n, d) of a part, scaled if the setup says so; read again where they are not there."""
        number = part.number
        if not self.store.has(number, "X"):
            self._read(part, setup, False, None)
        if setup.scaler is not None and number not in self._scaled:
            X = self.store.get(number, "X", write=True)
            for start in range(0, len(X), PIECE_ROWS):
                X[start : start + PIECE_ROWS] = setup.scaler.transform(
                    np.array(X[start : start + PIECE_ROWS])
                )
            self._scaled.add(number)
        # A plain view: blocks of a mapped array are made many times over.
        return np.asarray(self.store.get(number, "X"))

    def _read(
        self, part: Part, setup: Setup, moments: bool, rows: IntArray | None
    ) -> tuple[Read, TrainingQueryIndex]:
        step = self._built(setup.step)
        number, n = part.number, setup.rows[part.number]
        p, d = len(self.dataset.expert_names), step.n_features
        X = self.store.new(number, "X", (n, d), np.float32)
        costs = self.store.new(number, "costs", (n, p), np.float64)
        self._scaled.discard(number)
        picker = _Picker(rows)
        found: Moments | None = None
        seen: list[TrainingQueryIndex] = []
        at = 0
        for piece in self.dataset.read(part):
            if not piece.rows:
                continue
            if at + piece.rows > n:
                raise changed(part)
            with naming(part.file):
                made = _transformed(step, piece)
                costs[at : at + piece.rows] = self.terms.costs(piece)
            X[at : at + piece.rows] = made
            seen.append(TrainingQueryIndex.of(piece))
            if moments:
                here = Moments.of(made)
                found = here if found is None else found + here
            picker.see(piece)
            at += piece.rows
        if at != n:
            raise changed(part)
        told = Read(number, found, fingerprint(X, costs), picker.found())
        return told, merged_marks(*seen)

    def _loss(self, part: Part, setup: Setup) -> Any:
        """The loss of a part's rows; its arrays lie where the features lie."""
        number = part.number
        options, whole = setup.options, setup.whole
        if options is None or whole is None:
            raise TypeError("a loss is asked for without targets")
        if number not in self._losses:
            costs = np.asarray(self.store.get(number, "costs"))
            targets = row_targets(options, costs, np.ones(len(costs)), whole)
            loss = row_loss(targets, np.float32)
            rewards = self.store.new(number, "rewards", loss.rewards.shape, np.float32)
            rewards[:] = loss.rewards
            if loss.asked is not None:
                self.store.new(number, "asked", loss.asked.shape, np.bool_)[:] = loss.asked
            # All but the arrays, which are fetched when they are needed.
            self._losses[number] = (
                loss.groups,
                loss.surrogate,
                loss.scale,
                loss.offset,
                (loss.own_offset),
                loss.asked is not None,
            )
        *rest, masked = self._losses[number]
        return RowLoss(
            np.asarray(self.store.get(number, "rewards")),
            np.asarray(self.store.get(number, "asked")) if masked else None,
            *rest,
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
    """A sum that several threads add to, in whatever order: for sums that do not depend on it."""

    def __init__(self, value: Any = None, plus: Callable[[Any, Any], Any] = add) -> None:
        self.value = value
        self._plus = plus
        self._lock = threading.Lock()

    def add(self, term: Any) -> None:
        with self._lock:
            self.value = term if self.value is None else self._plus(self.value, term)


class _Picker:
    """Picks rows out of pieces that go by, by their numbers in all of them."""

    def __init__(self, rows: IntArray | None) -> None:
        self.wanted = np.zeros(0, np.intp) if rows is None else rows
        self.at = 0
        self.pieces: list[OutcomeTable] = []

    @property
    def done(self) -> bool:
        """Whether nothing is wanted of what is to come."""
        return not self.wanted.size or self.at > self.wanted[-1]

    def see(self, piece: OutcomeTable) -> None:
        low, high = np.searchsorted(self.wanted, [self.at, self.at + piece.rows])
        if high > low:
            self.pieces.append(piece.take(self.wanted[low:high] - self.at))
        self.at += piece.rows

    def found(self) -> OutcomeTable | None:
        return joined(self.pieces) if self.pieces else None

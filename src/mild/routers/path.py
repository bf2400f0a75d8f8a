"""Solutions of related problems on the same rows, each started from the last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.core.margins import margin_groups
from mild.core.surrogates import Surrogate
from mild.routers.objective import LinearObjective, RowLoss
from mild.routers.solver import (
    SAMPLE,
    Objective,
    Preconditioner,
    Solution,
    minimise,
    sample_rows,
    second_moments,
)
from mild.routers.targets import LossOptions, Targets

__all__ = [
    "Beginning",
    "LinearPath",
    "curvature_between",
    "make_beginning",
    "row_loss",
    "tell_apart",
]

# Tolerance on the sample before a single fit; in a search it is a tenth of the search's.
SAMPLE_TOL = 1e-4
# With more experts than this the curvature between their scores is estimated at a rough solution, and
# the sample is solved to a finer tolerance.
MANY = 8
ROUGH_TOL = 1e-3
MANY_TOL = 1e-5
# Rows, and rows times pairs of experts, from which the curvature is estimated.
LEAST_ROWS, MOST_ROWS = 64, 256
PAIRS = 2**17
# Tolerance of a search among few rows, where evaluations are cheap.
FINE = 1e-5
# Starts that a search accepts unchecked after one that was four times better than required.
TRUST = 3
# Options that are equal for candidates that differ in margins alone.
SHARED = (
    "loss", "rewards", "strength", "surrogate", "cost_scale", "sampling", "random_state",
)  # fmt: skip


class LinearPath:
    """Solves linear problems on one X, one after another.

    With many rows every problem is first solved on a sample of them. The first problem starts at the
    sample's solution; a later one at the last solution plus the difference between the sample's
    solutions. A neighbour in a search then needs one evaluation over all rows, or none: after a start
    that is four times better than required, the next few starts are accepted unchecked.

    Parameters
    ----------
    X : dense or CSR rows
    sample_weight : (n,) weights, for the second moments
    """

    def __init__(self, X: Any, sample_weight: FloatArray) -> None:
        self.X = X
        self.rows = sample_rows(X.shape[0], SAMPLE)
        self.sampled = X.shape[0] > 2 * len(self.rows)
        self.sample = X[self.rows] if self.sampled else X
        rows = self.rows if self.sampled else slice(None)
        self.moments = second_moments(self.sample, sample_weight[rows])
        self.sample_solution: FloatArray | None = None
        self.solution: FloatArray | None = None
        self._last: tuple[Targets, RowLoss] | None = None
        self._key: tuple[Any, ...] | None = None
        self._trust = 0
        self._zero_value: float | None = None

    def solve(
        self,
        targets: Targets,
        alpha: float,
        fit_intercept: bool,
        tol: float,
        max_iter: int,
        threads: int,
        start: FloatArray | None = None,
        search_tol: float | None = None,
    ) -> Solution:
        """Minimise the objective of ``targets`` to the relative tolerance ``tol``.

        With ``search_tol`` it is a step of a search: with many rows the tolerance is relative to the
        distance from the value at zero weights.
        """
        loss = self._row_loss(targets)
        preconditioner = Preconditioner(self.moments, targets.curvature(), alpha, fit_intercept)
        every = LinearObjective(self.X, loss, alpha, fit_intercept, threads)
        part = self._sample_objective(loss, every)
        known = self.solution if part is None else self.sample_solution
        known = known if start is None else start
        few, whole = part or every, part is None
        begin = make_beginning(few, preconditioner, self.moments, known, max_iter, whole)
        if search_tol is None or part is None:
            if search_tol is not None:
                tol = max(tol, min(search_tol, FINE))
            if start is None:
                start = self._start(part, begin, begin.sample_tol, max_iter)
            solution = begin.solve(every, start, tol, max_iter)
            self._trust = 0
        else:
            if self._zero_value is None:
                self._zero_value = part(np.zeros(part.shape))[0]
            zero_value = self._zero_value
            moved = self.solution is not None
            start = self._start(part, begin, search_tol / 10, max_iter, zero_value)
            if self._trust > 0:
                self._trust -= 1
                solution = Solution(start, np.nan, 0, True)
            else:
                solution = minimise(
                    every, begin.preconditioner, start, search_tol, max_iter, zero_value
                )
                self._trust = TRUST if moved and solution.gap <= search_tol / 4 else 0
        self.solution = solution.W
        return solution

    def _sample_objective(self, loss: RowLoss, every: LinearObjective) -> LinearObjective | None:
        """The objective on the sample; None if there is no sample, or it has no rewards."""
        weight = float(loss.rewards[:, self.rows].sum()) if self.sampled else 0.0
        if weight == 0:
            return None
        return replace(every, X=self.sample, loss=loss.take(self.rows, 1 / weight))

    def _start(
        self,
        part: LinearObjective | None,
        begin: Beginning,
        tol: float,
        max_iter: int,
        reference: float = 0.0,
    ) -> FloatArray:
        if part is None:
            return begin.W
        before = self.sample_solution
        self.sample_solution = minimise(
            part, begin.preconditioner, begin.W, tol, max_iter, reference
        ).W
        if before is None or self.solution is None:
            return self.sample_solution
        return self.solution + self.sample_solution - before

    def _row_loss(self, targets: Targets) -> RowLoss:
        """The loss with experts first; neighbours that share rewards share the arrays."""
        if self._last is not None and self._last[0].rewards is targets.rewards:
            loss = replace(self._last[1], groups=margin_groups(targets.margins))
        else:
            self._trust = 0
            self._zero_value = None
            loss = row_loss(targets, self.X.dtype)
        self._last = targets, loss
        return loss

    def reusable(self, options: LossOptions) -> Targets | None:
        """The last targets, if these options differ from the last ones in nothing but margins."""
        key = tuple(getattr(options, name) for name in SHARED)
        same = key == self._key and self._last is not None
        self._key = key
        return self._last[0] if same and self._last is not None else None


def row_loss(targets: Targets, dtype: Any) -> RowLoss:
    """The loss of targets with experts first, in the precision of the features."""
    return RowLoss(
        np.ascontiguousarray(targets.rewards.T, dtype=dtype),
        None if targets.asked is None else np.ascontiguousarray(targets.asked.T),
        margin_groups(targets.margins),
        targets.surrogate,
        *(
            None if value is None else value.astype(dtype)
            for value in (targets.scale, targets.offset, targets.own_offset)
        ),
    )


@dataclass(frozen=True)
class Beginning:
    """Preconditioner and start of a solver, and the iterations over all rows ``spent`` on finding them."""

    preconditioner: Preconditioner
    W: FloatArray
    spent: int = 0

    @property
    def sample_tol(self) -> float:
        """Tolerance on the sample before a single fit."""
        return SAMPLE_TOL if self.preconditioner.between is None else MANY_TOL

    def solve(self, every: Objective, start: FloatArray, tol: float, max_iter: int) -> Solution:
        """Minimise over all rows from ``start``; ``spent`` counts as iterations."""
        solution = minimise(every, self.preconditioner, start, tol, max_iter - self.spent)
        return replace(solution, n_iter=solution.n_iter + self.spent)


def make_beginning(
    few: LinearObjective,
    preconditioner: Preconditioner,
    moments: FloatArray,
    known: FloatArray | None,
    max_iter: int,
    whole: bool,
) -> Beginning:
    """Start at ``known``, or from ``few`` rows; ``whole`` if these are all rows."""
    preconditioner, W, spent = tell_apart(few, preconditioner, moments, known, max_iter)
    if W is None:
        W = first_start(few, preconditioner, max_iter)
    return Beginning(preconditioner, W, spent if whole else 0)


def tell_apart(
    few: LinearObjective,
    preconditioner: Preconditioner,
    moments: FloatArray,
    begin: FloatArray | None,
    max_iter: int,
) -> tuple[Preconditioner, FloatArray | None, int]:
    """For many experts, a preconditioner with the curvature between them near the solution.

    Returns it with a start, a rough solution of ``few`` if none was given, and the iterations that took.
    With few experts, and the hinge, which has no curvature, nothing changes.
    """
    loss = few.loss
    if not isinstance(loss, RowLoss) or few.shape[0] <= MANY or loss.surrogate.form == "hinge":
        return preconditioner, begin, 0
    spent = 0
    if begin is None:
        rough = minimise(few, preconditioner, np.zeros(few.shape), ROUGH_TOL, max_iter)
        begin, spent = rough.W, rough.n_iter
    between = curvature_between(few.X, loss, begin)
    if np.isfinite(between).all() and between.trace() > 0:
        preconditioner = Preconditioner(moments, between, few.alpha, few.fit_intercept)
    return preconditioner, begin, spent


def curvature_between(X: Any, loss: RowLoss, W: FloatArray) -> FloatArray:
    """Curvature (p, p) of the loss between the scores of experts at W, estimated from a few rows."""
    p, n = loss.rewards.shape
    size = min(n, max(LEAST_ROWS, min(MOST_ROWS, PAIRS // p**2, n // 8)))
    rows = np.arange(size) * n // size
    scores = np.asarray(X[rows] @ W[:, :-1].T).T + W[:, -1:]
    weight = float(loss.rewards[:, rows].sum())
    factor = float(loss.rewards.sum()) / weight if weight > 0 else 1.0
    return loss.take(rows, factor).curvature(scores)


def first_start(
    objective: LinearObjective, preconditioner: Preconditioner, max_iter: int
) -> FloatArray:
    """Zero; for the hinge the logistic solution: at zero all scores tie."""
    zero = np.zeros(objective.shape)
    loss = objective.loss
    if not isinstance(loss, RowLoss) or loss.surrogate.form != "hinge":
        return zero
    stand_in = replace(objective, loss=replace(loss, surrogate=Surrogate("comp_sum", 1.0)))
    return minimise(stand_in, preconditioner, zero, 1e-3, max_iter).W

"""Solutions of related problems on the same rows, each started from the last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mild.arrays import FloatArray
from mild.margins import margin_groups
from mild.routers.objective import LinearObjective, RowLoss
from mild.routers.solver import (
    SAMPLE,
    Preconditioner,
    Solution,
    minimise,
    sample_rows,
    second_moments,
)
from mild.routers.targets import LossOptions, Targets
from mild.surrogates import Surrogate

__all__ = ["LinearPath"]

# A sample is solved this well; where a search asks for much less, some starts go unchecked.
SAMPLE_TOL = 3e-5
LOOSE = 10 * SAMPLE_TOL
TRUST = 3


class LinearPath:
    """Solves linear problems on one X, one after another.

    With many rows every problem is first solved on a sample of them, which costs little. A first
    problem starts where its sample ended; a later one where the last one ended, moved as the sample's
    solution moved from that problem to this. A neighbour in a search then needs one evaluation over all
    rows, or none: after a start that proved four times better than asked, the next few starts of a loose
    search are taken as they are.

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

    def solve(
        self,
        targets: Targets,
        alpha: float,
        fit_intercept: bool,
        tol: float,
        max_iter: int,
        threads: int,
        start: FloatArray | None = None,
    ) -> Solution:
        """Minimise the objective of ``targets`` to the relative tolerance ``tol``."""
        loss = self._row_loss(targets)
        preconditioner = Preconditioner(self.moments, targets.curvature(), alpha, fit_intercept)
        every = LinearObjective(self.X, loss, alpha, fit_intercept, threads)
        if start is None:
            start = self._start(loss, preconditioner, every, max_iter)
            if self._trust > 0 and tol >= LOOSE:
                self._trust -= 1
                self.solution = start
                return Solution(start, np.nan, 0, True)
        moved = self.solution is not None and self.sampled
        solution = minimise(every, preconditioner, start, tol, max_iter)
        self._trust = TRUST if moved and solution.gap <= tol / 4 else 0
        self.solution = solution.W
        return solution

    def _start(
        self,
        loss: RowLoss,
        preconditioner: Preconditioner,
        every: LinearObjective,
        max_iter: int,
    ) -> FloatArray:
        weight = float(loss.rewards[:, self.rows].sum()) if self.sampled else 0.0
        if weight == 0:
            if self.solution is None:
                return _first_start(every, loss, preconditioner, max_iter)
            return self.solution
        part = loss.take(self.rows, 1 / weight)
        few = replace(every, X=self.sample, loss=part)
        before = self.sample_solution
        begin = _first_start(few, part, preconditioner, max_iter) if before is None else before
        self.sample_solution = minimise(few, preconditioner, begin, SAMPLE_TOL, max_iter).W
        if before is None or self.solution is None:
            return self.sample_solution
        return self.solution + self.sample_solution - before

    def _row_loss(self, targets: Targets) -> RowLoss:
        """The loss with experts first; neighbours that share rewards share the arrays."""
        groups = margin_groups(targets.margins)
        if self._last is not None and self._last[0].rewards is targets.rewards:
            loss = replace(self._last[1], groups=groups)
        else:
            self._trust = 0
            dtype = self.X.dtype
            loss = RowLoss(
                np.ascontiguousarray(targets.rewards.T, dtype=dtype),
                None if targets.asked is None else np.ascontiguousarray(targets.asked.T),
                groups,
                targets.surrogate,
                *(
                    None if value is None else value.astype(dtype)
                    for value in (targets.scale, targets.offset, targets.own_offset)
                ),
            )
        self._last = targets, loss
        return loss

    def reusable(self, options: LossOptions) -> Targets | None:
        """The last targets, if these options differ from the last ones in nothing but margins."""
        key = tuple(
            getattr(options, name)
            for name in ("loss", "rewards", "surrogate", "cost_scale", "sampling", "random_state")
        )
        same = key == self._key and self._last is not None
        self._key = key
        return self._last[0] if same and self._last is not None else None


def _first_start(
    objective: LinearObjective, loss: RowLoss, preconditioner: Preconditioner, max_iter: int
) -> FloatArray:
    """Zero; for the hinge the logistic solution: at zero all scores tie and no step need go down."""
    zero = np.zeros(objective.shape)
    if loss.surrogate.form != "hinge":
        return zero
    stand_in = replace(objective, loss=replace(loss, surrogate=Surrogate("comp_sum", 1.0)))
    return minimise(stand_in, preconditioner, zero, 1e-3, max_iter).W

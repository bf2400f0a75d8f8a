"""Guarantees: the loss of quality is certified on rows that were used for nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.artifact.targets import Target
from mild.core.arrays import FloatArray
from mild.core.rounding import tie_ranks
from mild.metrics.operating_points import (
    CASCADE,
    EXPERT,
    TRADE_OFF,
    OperatingPoint,
    Setting,
)
from mild.metrics.results import Results, side_by_side
from mild.metrics.risk_control import Certificate, betting_p_values, certify
from mild.policies import TradeoffPolicy
from mild.tuning.held_out import HeldOut, group_rows
from mild.tuning.settings import cascade_outcomes, outcomes_of_choices
from mild.tuning.tasks import Task


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Rows that are kept to certify a limit.

    Attributes
    ----------
    task : the rows
    X : (n_samples, n_features) their features, as the router reads them
    """

    task: Task
    X: Any

    def outcomes(self, tuned: TradeoffPolicy, settings: Sequence[Setting]) -> Results:
        """Return the outcomes (n_samples, m) of m settings of a tuned policy on these rows."""
        return side_by_side([self._outcomes_of(tuned, setting) for setting in settings])

    def _outcomes_of(self, tuned: TradeoffPolicy, setting: Setting) -> Results:
        n_rows = len(self.task.table)
        if setting.kind == CASCADE:
            cascade: Any = tuned.cascades[setting.index]
            return cascade_outcomes(self.task, self.X, [cascade], np.arange(n_rows))
        if setting.kind == EXPERT:
            chosen = np.full(n_rows, setting.index)
        elif setting.kind == TRADE_OFF:
            chosen = tuned.heads.with_prices(price_weight=setting.number).predict(self.X)
        else:
            chosen = tuned.routers[setting.index].predict(self.X)
        return outcomes_of_choices(self.task, chosen[:, None])


@dataclass(frozen=True, eq=False)
class HoldLimit:
    """The cheapest point whose loss of quality is certified to be at most ``target.max_quality_loss``.

    Which kind of settings is taken, and the order in which its points are tested, are fixed on the rows
    that the settings were fitted on: from the point that is safest there to cheaper ones. They are tested
    in this order on the calibration rows until one fails (Learn-then-Test). Where nothing is certified, the
    best expert is always asked.
    """

    target: Target
    calibration: CalibrationRows
    tuned: TradeoffPolicy
    seed: int = 0

    def certified(self, held_out: HeldOut) -> CertifiedPoint:
        """Test the points in their fixed order, and return the cheapest one that is certified.

        The test starts at the point with the smallest p-value on the rows that the settings were fitted
        on, which is the safest there.
        """
        frontier = held_out.frontier
        path = self._points_to_test(held_out)
        rng = np.random.default_rng([self.seed, 2])
        limit = self.target.max_quality_loss or 0.0
        guarantee = self.target.guarantee or 0.0
        losses = rng.permutation(self._losses(held_out, path, held_out.rows.task))
        p_values = betting_p_values(losses, limit, 1 - guarantee)
        order = np.lexsort((tie_ranks(losses.mean(axis=0)), tie_ranks(p_values)))
        safest = int(order[0])
        path = path[safest:]
        losses = rng.permutation(self._losses(held_out, path, self.calibration.task))
        certificate = certify(losses, limit, guarantee)
        certified_points = path[: certificate.n_certified]
        if not certified_points:
            return CertifiedPoint(frontier.reference, certificate)
        dollar_ranks = tie_ranks([point.dollars for point in certified_points])
        return CertifiedPoint(certified_points[int(np.argmin(dollar_ranks))], certificate)

    def _points_to_test(self, held_out: HeldOut) -> list[OperatingPoint]:
        """Return the points of the path that meets the target most cheaply, the best one first."""
        frontier = held_out.frontier
        chosen = self.target.choose(frontier).point
        numbers = [number for number in np.unique(frontier.path) if number >= 0]
        for number in numbers:
            points = [frontier.point(int(k)) for k in np.flatnonzero(frontier.path == number)]
            settings = {setting for point in points for setting in (point.first, point.second)}
            if chosen.first in settings and chosen.second in settings:
                return points[::-1]
        return [frontier.reference]

    def _losses(
        self, held_out: HeldOut, points: Sequence[OperatingPoint], task: Task
    ) -> FloatArray:
        """Return the loss of quality (n_groups, m) of m points against the best expert, on a task."""
        settings = list(
            dict.fromkeys(setting for point in points for setting in (point.first, point.second))
        )
        if task is self.calibration.task:
            outcomes = self.calibration.outcomes(self.tuned, settings)
            is_known = ~np.isnan(task.table.scores).any(axis=1)
        else:
            outcomes = held_out.outcomes_at(settings)
            is_known = held_out.is_known
        groups = task.groups[is_known]
        assert outcomes.scores is not None
        scores = outcomes.scores
        if len(scores) != len(groups):
            scores = scores[is_known]
        reference = task.table.scores[is_known, held_out.frontier.best_expert]
        columns = []
        for point in points:
            first = scores[:, settings.index(point.first)]
            second = scores[:, settings.index(point.second)]
            columns.append(reference - (1 - point.share) * first - point.share * second)
        return group_rows(np.column_stack(columns), groups)


@dataclass(frozen=True, eq=False)
class CertifiedPoint:
    """A point, and the certificate of the points that were tested before it and with it."""

    point: OperatingPoint
    certificate: Certificate

    @property
    def is_certified(self) -> bool:
        """Whether a point was certified; otherwise the point is the best expert."""
        return self.certificate.n_certified > 0

    @property
    def rows_needed(self) -> int | None:
        """About how many calibration queries would certify the next point; None if no number is known."""
        needed = self.certificate.rows_needed
        if needed is None or math.isinf(needed):
            return None
        return int(needed)

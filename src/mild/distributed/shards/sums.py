"""Statistics of all rows that a fit needs, as sums over partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.costs import cheapest_of
from mild.evaluation.tasks.training_queries import MOST_MARKS, TrainingQueryIndex
from mild.routers.objective import (
    LABEL_LOSSES,
    LossOptions,
    MarginSums,
    fixed_margins,
    margin_sums,
    raw_rewards,
)

__all__ = ["CostStats", "Moments", "TargetSums", "merged_marks"]


@dataclass(frozen=True)
class CostStats:
    """Statistics of the costs of some rows.

    Attributes
    ----------
    rows : rows in which an expert was asked
    asked : (p,) rows in which each expert was asked
    totals : (p,) sum of the known costs of each expert
    always : (p,) whether the expert costs least in every row
    largest : largest cost; 0 without rows
    differ : whether two experts that were asked differ in cost in any row
    """

    rows: int
    asked: IntArray
    totals: FloatArray
    always: BoolArray
    largest: float
    differ: bool

    @classmethod
    def of(cls, costs: FloatArray) -> CostStats:
        """Statistics of costs (n, p), at least one of them known in every row."""
        known = ~np.isnan(costs)
        if not len(costs):
            p = costs.shape[1]
            return cls(0, np.zeros(p, np.intp), np.zeros(p), np.ones(p, np.bool_), 0.0, False)
        least, most = np.nanmin(costs, axis=1), np.nanmax(costs, axis=1)
        return cls(
            len(costs),
            known.sum(axis=0),
            np.where(known, costs, 0.0).sum(axis=0),
            (costs == least[:, None]).all(axis=0),
            float(most.max()),
            bool((most > least).any()),
        )

    def __add__(self, other: CostStats) -> CostStats:
        return CostStats(
            self.rows + other.rows,
            self.asked + other.asked,
            self.totals + other.totals,
            self.always & other.always,
            max(self.largest, other.largest),
            self.differ or other.differ,
        )


@dataclass(frozen=True)
class Moments:
    """Number, mean and summed squared deviation of features, (d,) each (Chan, Golub and LeVeque 1983)."""

    rows: int
    mean: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> Moments:
        """Moments of rows (n, d), in double precision."""
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
    """Sums over some rows that the targets of a loss need.

    Attributes
    ----------
    labels : (p,) rows on which each expert is cheapest
    rewards : (p,) sums of the rewards, before they are scaled; of label losses 0
    margins : sums for theory margins; None where margins are fixed
    """

    labels: FloatArray
    rewards: FloatArray
    margins: MarginSums | None

    @classmethod
    def of(cls, options: LossOptions, X: Any, costs: FloatArray, cost_scale: float) -> TargetSums:
        """Sums over rows with features X (n, d) and costs (n, p)."""
        p = costs.shape[1]
        weight = np.ones(len(costs))
        rewards = np.zeros(p)
        if options.loss not in LABEL_LOSSES:
            rewards = raw_rewards(options, costs, cost_scale).sum(axis=0, dtype=np.float64)
        fixed = fixed_margins(options, p)
        margins = None if fixed is not None else margin_sums(options, X, costs, weight, cost_scale)
        labels = np.bincount(cheapest_of(costs), minlength=p).astype(np.float64)
        return cls(labels, rewards, margins)

    def __add__(self, other: TargetSums) -> TargetSums:
        margins = self.margins
        if margins is not None and other.margins is not None:
            margins = margins + other.margins
        return TargetSums(self.labels + other.labels, self.rewards + other.rewards, margins)


def merged_marks(*lots: TrainingQueryIndex) -> TrainingQueryIndex:
    """Hashes of several sets of queries together."""
    if not lots:
        return TrainingQueryIndex(np.zeros(0, np.uint64))
    marks = np.unique(np.concatenate([lot.marks for lot in lots]))
    whole = all(lot.complete for lot in lots) and marks.size <= MOST_MARKS
    return TrainingQueryIndex(marks[:MOST_MARKS], whole)

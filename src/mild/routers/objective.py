"""The objective of a router: what a loss makes of costs, and its value over blocks of rows.

    F(W, b) = sum_i loss_i(W x_i + b) + alpha * ||W||^2

Sample weights and the reward scale (mean row sum 1) are in the rewards. The scores of a block stay in cache
between the two matrix products: X is read once per evaluation and never copied.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from mild.core import losses as by_label
from mild.core.arrays import BoolArray, FloatArray, IntArray, check_margins
from mild.core.costs import (
    ALL_REWARDS,
    LABEL_TIES,
    cheapest_labels,
    mean_known_costs,
    unchecked_rewards,
)
from mild.core.losses import accumulate_loss
from mild.core.margins import (
    COUNTS,
    NORMS,
    membership,
    squared_norms,
    theory_margins,
    uniform_margins,
)
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.core.threads import cores
from mild.errors import check_option

LABEL_LOSSES = ("ce", "cwce", "ldam", "logit_adjusted", "temperature")
LOSSES = ("mild", "tdef", *LABEL_LOSSES)
LDAM_SCALE = 30.0
# Rows that are scored at once.
BLOCK = 1024


class LossParameters(Protocol):
    """The parameters of a router that define its targets."""

    loss: str
    rewards: str
    strength: float
    surrogate: Any
    margins: Any
    counts: str
    norms: str
    total: float | None
    share_below: float
    cost_scale: float | None
    sampling: str | None
    random_state: Any
    ties: str | None


@dataclass(frozen=True)
class Targets:
    """Everything that a loss needs besides the scores f (n, p).

    The loss is the surrogate of the transformed scores ``scale * f + offset``, plus ``label_offset`` at the
    expert that is the label. Only label-based losses have such a transformation.

    Attributes
    ----------
    rewards : (n, p) array, times the sample weights, with the sum 1
    asked : (n, p) array, whether the cost is known; None if all are
    margins : (p,) array
    surrogate : Surrogate
    sample_weight : (n,) array
    scale, offset, label_offset : (p,) arrays; None for 1, 0 and 0
    """

    rewards: FloatArray
    asked: BoolArray | None
    margins: FloatArray
    surrogate: Surrogate
    sample_weight: FloatArray
    scale: FloatArray | None = None
    offset: FloatArray | None = None
    label_offset: FloatArray | None = None

    def curvature_of(self, reward_sums: FloatArray) -> float:
        """Return the mean curvature of the loss in one score at equal scores, from the reward sums (p,).

        At equal scores each of p experts has the softmax 1 / p, so the curvature in one score is

            scale^2 * sum_k r_k / rho_k^2 * (1 - 1 / p) / p

        for the logistic surrogate, and p^(1 - tau) times that for others.
        """
        p = self.margins.size
        squared_scale = 1.0
        if self.scale is not None:
            squared_scale = float(np.square(self.scale).mean())
        growth = 1.0
        if self.surrogate.form == "comp_sum":
            growth = float(p) ** (1 - self.surrogate.tau)
        weighted = float((reward_sums / np.square(self.margins)).sum())
        return max(weighted * squared_scale * growth * (1 - 1 / p) / p, 1e-12)


@dataclass(frozen=True)
class DataStatistics:
    """Statistics over all rows that the targets of a row depend on.

    Attributes
    ----------
    margins : (p,) array
    counts : (p,) array, weight of the rows on which each expert is the label
    cost_scale : largest possible cost, for complement rewards; None for the largest of the rows
    means : (p,) array, mean costs that decide between equal costs, as in
        ``cheapest_labels``; None for the index
    """

    margins: FloatArray
    counts: FloatArray
    cost_scale: float | None = None
    means: FloatArray | None = None


def training_targets(
    options: LossParameters,
    X: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    reusable: Targets | None = None,
) -> Targets:
    """Return what the loss of a router needs besides its scores, for all training rows.

    Parameters
    ----------
    options : LossParameters
        The router, or anything else with its loss parameters.
    X : array of shape (n, d)
        Features, on whose norms some margins depend.
    costs : array of shape (n, p)
        NaN where unknown.
    sample_weight : array of shape (n,) or None
        Weights of the rows.
    reusable : Targets, default=None
        Targets of the same rows for options that differ only in their margins: then only the margins are
        computed.

    Returns
    -------
    targets : Targets
        Rewards, margins, surrogate and weights of the rows.
    """
    check_option("loss", options.loss, LOSSES)
    if reusable is not None:
        margins = training_margins(options, X, costs, reusable.sample_weight)
        return replace(reusable, margins=margins)
    n, p = costs.shape
    weight: FloatArray = np.ones(n)
    if sample_weight is not None:
        weight = sample_weight.astype(np.float64)
    if options.loss in LABEL_LOSSES:
        means = tie_means(options, costs, weight)
        labels = cheapest_labels(costs, means)
        weight = _resampled(options, labels, weight, p)
        counts = np.bincount(labels, weights=weight, minlength=p).astype(np.float64)
        statistics = DataStatistics(np.ones(p), counts, means=means)
        return row_targets(options, costs, weight, statistics)

    if options.sampling is not None:
        labels = cheapest_labels(costs, tie_means(options, costs, weight))
        weight = _resampled(options, labels, weight, p)
    if not weight.all():
        # The largest cost sets the scale of rewards: no row of weight 0 may have a larger one.
        largest = np.nanmax(costs[weight > 0])
        costs = np.where(weight[:, None] > 0, costs, np.minimum(costs, largest))
    margins = training_margins(options, X, costs, weight)
    # Only losses on labels use the counts.
    unused_counts = np.ones(p)
    statistics = DataStatistics(margins, unused_counts, options.cost_scale)
    return row_targets(options, costs, weight, statistics)


def _resampled(
    options: LossParameters, labels: IntArray, weight: FloatArray, n_experts: int
) -> FloatArray:
    """Return the weights (n,) after the rows are resampled by their label, if ``sampling`` is set."""
    if options.sampling is None:
        return weight
    rng = np.random.default_rng(options.random_state)
    return weight * by_label.resampling_weights(labels, n_experts, options.sampling, rng)


def row_targets(
    options: LossParameters, costs: FloatArray, weight: FloatArray, statistics: DataStatistics
) -> Targets:
    """Return the targets of some rows, from the statistics over all rows."""
    asked: BoolArray | None = ~np.isnan(costs)
    if np.all(asked):
        asked = None
    counts = statistics.counts
    raw = raw_rewards(options, costs, statistics.cost_scale, counts, statistics.means)
    rewards = raw * weight[:, None]
    total = float(rewards.sum())
    if total > 0:
        rewards = rewards / total
    surrogate = parse_surrogate(options.surrogate)
    targets = Targets(rewards, asked, statistics.margins, surrogate, weight)
    if options.loss not in LABEL_LOSSES:
        return targets

    p = costs.shape[1]
    targets = replace(targets, margins=np.ones(p), surrogate=parse_surrogate("logistic"))
    if options.loss == "ldam":
        label_offset = -LDAM_SCALE * by_label.ldam_margins(counts)
        return replace(targets, scale=np.full(p, LDAM_SCALE), label_offset=label_offset)
    if options.loss == "logit_adjusted":
        floored = by_label.floored_counts(counts)
        return replace(targets, offset=np.log(floored / floored.sum()))
    if options.loss == "temperature":
        return replace(targets, scale=1 / by_label.temperatures(counts))
    return targets


def tie_rule(options: LossParameters, of_margins: bool = False) -> str:
    """Return the rule by which labels, or ``of_margins`` the counts "best", break ties in cost."""
    if options.ties is None and of_margins:
        return "first"
    if options.ties is None:
        return "mean"
    return check_option("ties", options.ties, LABEL_TIES)


def tie_means(
    options: LossParameters,
    costs: FloatArray,
    weight: FloatArray | None,
    of_margins: bool = False,
) -> FloatArray | None:
    """Return the mean costs (p,) that break ties in cost; None where the first expert is taken."""
    if tie_rule(options, of_margins) == "first":
        return None
    return mean_known_costs(costs, weight)


def raw_rewards(
    options: LossParameters,
    costs: FloatArray,
    cost_scale: float | None,
    counts: FloatArray | None = None,
    means: FloatArray | None = None,
) -> FloatArray:
    """Return rewards (n, p) before they are weighted and scaled.

    Those of label-based losses are 1 at the label, or its class weight from ``counts`` (p,).
    """
    if options.loss in LABEL_LOSSES:
        one_hot = np.eye(costs.shape[1])
        if options.loss == "cwce" and counts is not None:
            one_hot = np.diag(by_label.class_weights(counts))
        return one_hot[cheapest_labels(costs, means)]
    kind = options.rewards
    if options.loss == "tdef":
        kind = "complement"
    check_option("rewards", kind, ALL_REWARDS)
    return unchecked_rewards(costs, kind, cost_scale, options.strength)


def training_margins(
    options: LossParameters, X: Any, costs: FloatArray, weight: FloatArray
) -> FloatArray:
    """Return the margins (p,) that the options mean for these training data."""
    fixed = fixed_margins(options, costs.shape[1])
    if fixed is not None:
        return fixed
    means = tie_means(options, costs, weight, of_margins=True)
    return margin_sums(options, X, costs, weight, options.cost_scale, means).margins(options)


def fixed_margins(options: LossParameters, n_experts: int) -> FloatArray | None:
    """Return the margins (p,) if they do not depend on the data; None for theory margins."""
    if options.loss != "mild":
        return np.ones(n_experts)
    if not isinstance(options.margins, str):
        return check_margins(options.margins, n_experts)
    if check_option("margins", options.margins, ("theory", "uniform")) == "uniform":
        return uniform_margins(n_experts, options.total)
    return None


@dataclass(frozen=True)
class MarginSums:
    """Sums over rows that theory margins depend on.

    Rows count for an expert by their reward, or if it is the cheapest (the parameter ``counts``).

    Attributes
    ----------
    mass : (p,) array, total weight of the rows that count for each expert
    squared_norms : (p,) array, sum of their squared feature norms
    largest_norms : (p,) array, their largest squared feature norm
    all_weight, all_squared_norms, all_largest_norm : the same over all rows, whatever they count for
    """

    mass: FloatArray
    squared_norms: FloatArray
    largest_norms: FloatArray
    all_weight: float = 0.0
    all_squared_norms: float = 0.0
    all_largest_norm: float = 0.0

    def margins(self, options: LossParameters) -> FloatArray:
        """Return the theory margins (p,) that follow from these sums."""
        if not self.mass.any():
            return uniform_margins(self.mass.size, options.total)
        norms = None
        if options.norms != "none":
            norms = np.maximum(np.sqrt(self._squared(options.norms)), 1e-12)
        return theory_margins(self.mass, norms, options.total, options.share_below)

    def _squared(self, kind: str) -> FloatArray:
        """Return the largest or mean squared feature norm (p,); of all rows for an expert without any."""
        has_rows = self.mass > 0
        if kind == "max":
            return np.where(has_rows, self.largest_norms, self.all_largest_norm)
        mean_squared = self.squared_norms / np.where(has_rows, self.mass, 1)
        all_mean_squared = self.all_squared_norms / max(self.all_weight, 1e-300)
        return np.where(has_rows, mean_squared, all_mean_squared)


def margin_sums(
    options: LossParameters,
    X: Any,
    costs: FloatArray,
    weight: FloatArray,
    cost_scale: float | None,
    means: FloatArray | None = None,
) -> MarginSums:
    """Return the sums over some rows that theory margins depend on.

    ``cost_scale`` and ``means`` are as in ``DataStatistics``.
    """
    check_option("counts", options.counts, COUNTS)
    check_option("norms", options.norms, NORMS)
    check_option("rewards", options.rewards, ALL_REWARDS)
    row_mass = membership(
        costs, options.rewards, options.counts, cost_scale, options.strength, means
    )
    row_mass *= weight[:, None]
    mass = row_mass.sum(axis=0)
    if options.norms == "none":
        zero = np.zeros(costs.shape[1])
        return MarginSums(mass, zero, zero)
    squared = squared_norms(X)
    return MarginSums(
        mass,
        squared_norms=(row_mass * squared[:, None]).sum(axis=0),
        largest_norms=np.where(row_mass > 0, squared[:, None], 0).max(axis=0),
        all_weight=float(weight.sum()),
        all_squared_norms=float(weight @ squared),
        all_largest_norm=float(squared[weight > 0].max(initial=0.0)),
    )


class BlockLoss(Protocol):
    """A loss on blocks of rows, with rewards of shape (p, n)."""

    @property
    def rewards(self) -> FloatArray: ...

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]: ...


@dataclass(frozen=True)
class RowLoss:
    """Loss of rows on their scores; the fields of ``Targets`` with experts first, (p, n).

    ``scores' = scale * scores + offset (+ label_offset where the expert's reward is positive)``, then the
    reward-weighted surrogate. Label-based baselines are one-hot rewards with such a transformation.
    """

    rewards: FloatArray
    asked: BoolArray | None
    margins: FloatArray
    surrogate: Surrogate
    scale: FloatArray | None = None
    offset: FloatArray | None = None
    label_offset: FloatArray | None = None

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]:
        """Return the summed loss and its gradient (p, m) for a block; ``scores`` (p, m) is overwritten."""
        rewards = self.rewards[:, rows]
        scores = self._transformed(scores, rewards)
        if self.asked is not None:
            scores[~self.asked[:, rows]] = -np.inf
        gradient = np.zeros_like(scores)
        values = accumulate_loss(scores, rewards, self.margins, self.surrogate, gradient)
        if self.scale is not None:
            gradient *= self.scale[:, None]
        return float(values.sum(dtype=np.float64)), gradient

    def _transformed(self, scores: FloatArray, rewards: FloatArray) -> FloatArray:
        """Return the scores (p, m) as the surrogate sees them, in the same array."""
        if self.scale is not None:
            scores *= self.scale[:, None]
        if self.offset is not None:
            scores += self.offset[:, None]
        if self.label_offset is not None:
            scores += np.where(rewards > 0, self.label_offset[:, None], 0)
        return scores

    def curvature(self, scores: FloatArray) -> FloatArray:
        """Return the Hessian (p, p) of the loss in the scores (p, n) of a row, summed over all rows."""
        exact = replace(self, rewards=self.rewards.astype(np.float64))
        with np.errstate(invalid="ignore", over="ignore"):
            if self.surrogate.form == "comp_sum" and self.surrogate.tau == 1:
                return exact._logistic_curvature(scores)
            return exact._differenced_curvature(scores)

    def _logistic_curvature(self, scores: FloatArray) -> FloatArray:
        """Return the Hessian (p, p) of the logistic loss, summed over rows.

        It is ``sum_k r_k / rho_k^2 (diag(s_k) - s_k s_k^T)``, with s_k the softmax of scores / rho_k.
        """
        transformed = self._transformed(scores.astype(np.float64), self.rewards)
        if self.asked is not None:
            transformed[~self.asked] = -np.inf
        transformed -= transformed.max(axis=0)
        hessian = np.zeros((len(scores), len(scores)))
        # Experts of the same margin rho have the same softmax s.
        for rho in np.unique(self.margins):
            s = np.exp(transformed / rho)
            s /= s.sum(axis=0)
            weighted_s = s * (self.rewards[self.margins == rho].sum(axis=0) / rho**2)
            hessian += np.diag(weighted_s.sum(axis=1)) - weighted_s @ s.T
        hessian = (hessian + hessian.T) / 2
        if self.scale is not None:
            hessian *= np.outer(self.scale, self.scale)
        return hessian

    def _differenced_curvature(self, scores: FloatArray) -> FloatArray:
        """Return the Hessian of any surrogate, from differences of gradients."""
        largest_scale = 1.0
        if self.scale is not None:
            largest_scale = float(self.scale.max())
        step = 1e-4 * float(self.margins.min()) / largest_scale
        gradient = self._summed_gradient(scores.copy())
        hessian = np.empty((len(scores), len(scores)))
        for expert in range(len(scores)):
            moved = scores.copy()
            moved[expert] += step
            hessian[expert] = (self._summed_gradient(moved) - gradient) / step
        return (hessian + hessian.T) / 2

    def _summed_gradient(self, scores: FloatArray) -> FloatArray:
        """Return the gradient (p,) summed over all rows; ``scores`` (p, n) is overwritten."""
        _, gradient = self.evaluate(scores, slice(None))
        return gradient.sum(axis=1)

    def take(self, rows: IntArray, factor: float) -> RowLoss:
        """Return the loss of some of the rows, with rewards multiplied by ``factor``."""
        rewards = np.ascontiguousarray(self.rewards[:, rows]) * self.rewards.dtype.type(factor)
        asked = self.asked
        if asked is not None:
            asked = np.ascontiguousarray(asked[:, rows])
        return replace(self, rewards=rewards, asked=asked)


def row_loss(targets: Targets, dtype: Any) -> RowLoss:
    """Return the loss of targets with experts first, in the precision of the features."""
    asked = targets.asked
    if asked is not None:
        asked = np.ascontiguousarray(asked.T)
    return RowLoss(
        np.ascontiguousarray(targets.rewards.T, dtype=dtype),
        asked,
        targets.margins,
        targets.surrogate,
        scale=_as_dtype(targets.scale, dtype),
        offset=_as_dtype(targets.offset, dtype),
        label_offset=_as_dtype(targets.label_offset, dtype),
    )


def _as_dtype(values: FloatArray | None, dtype: Any) -> FloatArray | None:
    """Return values (p,) in this precision; None if there are none."""
    if values is None:
        return None
    return values.astype(dtype)


@dataclass
class LinearObjective:
    """Value and gradient of F at ``W`` (p, d + 1), the last column being the intercept."""

    X: Any
    loss: BlockLoss
    alpha: float
    fit_intercept: bool = True
    threads: int = 1
    evaluations: int = field(default=0, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of W."""
        return self.loss.rewards.shape[0], self.X.shape[1] + 1

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]:
        self.evaluations += 1
        n = self.X.shape[0]
        dtype = self.X.dtype
        coef = np.ascontiguousarray(W[:, :-1], dtype=dtype)
        intercept = W[:, -1].astype(dtype)
        n_parts = min(self.threads, max(1, n // BLOCK))
        bounds = [n * part // n_parts for part in range(n_parts + 1)]
        if n_parts == 1:
            value, gradient = self._value_of_rows(coef, intercept, 0, n)
        else:
            value, gradient = self._value_of_parts(coef, intercept, bounds)
        value += self.alpha * float(np.square(W[:, :-1]).sum())
        gradient[:, :-1] += 2 * self.alpha * W[:, :-1]
        if not self.fit_intercept:
            gradient[:, -1] = 0
        return value, gradient

    def _value_of_parts(
        self, coef: FloatArray, intercept: FloatArray, bounds: list[int]
    ) -> tuple[float, FloatArray]:
        """Return value and gradient over all rows, without the penalty: one thread per part of them."""
        value = 0.0
        gradient = np.zeros(self.shape)
        with ThreadPoolExecutor(len(bounds) - 1) as pool:
            futures = []
            for start, stop in pairwise(bounds):
                futures.append(pool.submit(self._value_of_rows, coef, intercept, start, stop))
            # In the order of the parts, so that the sums do not depend on which is done first.
            for future in futures:
                part_value, part_gradient = future.result()
                value += part_value
                gradient += part_gradient
        return value, gradient

    def _value_of_rows(
        self, coef: FloatArray, intercept: FloatArray, start: int, stop: int
    ) -> tuple[float, FloatArray]:
        """Return value and gradient over the rows from start to stop, without the penalty."""
        value = 0.0
        gradient = np.zeros(self.shape)
        is_sparse = hasattr(self.X, "tocsr")
        for begin in range(start, stop, BLOCK):
            rows = slice(begin, min(begin + BLOCK, stop))
            block = self.X[rows]
            scores = np.ascontiguousarray((block @ coef.T).T) if is_sparse else coef @ block.T
            scores += intercept[:, None]
            block_value, slope = self.loss.evaluate(scores, rows)
            value += block_value
            if is_sparse:
                gradient[:, :-1] += (block.T @ slope.T).T
            else:
                gradient[:, :-1] += slope @ block
            gradient[:, -1] += slope.sum(axis=1)
        return value, gradient


_blas_lock = threading.Lock()
# One limit per fit that runs; the first set it, and the last lifts it.
_blas_limits: list[Any] = []


@cache
def _controller() -> ThreadpoolController:
    """Return the controller of the libraries' threads; finding them takes time, so it is done once."""
    return ThreadpoolController()


@contextmanager
def single_blas_thread() -> Iterator[int]:
    """Limit BLAS to one thread, as our own threads call it; yields the threads it would have used.

    That number honours OMP_NUM_THREADS and enclosing limits. Concurrent fits of one process get one each.
    """
    with _blas_lock:
        controller = _controller()
        counts = [lib["num_threads"] for lib in controller.info() if lib["user_api"] == "blas"]
        first = _blas_limits[0] if _blas_limits else controller.limit(limits=1, user_api="blas")
        _blas_limits.append(first)
    try:
        yield max(1, min(max(counts, default=1), cores()))
    finally:
        with _blas_lock:
            _blas_limits.pop()
            if not _blas_limits:
                first.restore_original_limits()

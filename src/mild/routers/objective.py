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
from mild.core.costs import ALL_REWARDS, LABEL_TIES, label_of, mean_known_costs, rewards_of
from mild.core.losses import accumulate_loss
from mild.core.margins import (
    COUNTS,
    NORMS,
    MarginGroup,
    margin_groups,
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
    """Everything a loss needs beyond the scores, for rewards (n, p) with sample weights, which sum to 1.

    The loss sees ``scale * f + offset``, plus ``own_offset`` at the expert that is the label.
    """

    rewards: FloatArray
    asked: BoolArray | None
    margins: FloatArray
    surrogate: Surrogate
    sample_weight: FloatArray
    scale: FloatArray | None = None
    offset: FloatArray | None = None
    own_offset: FloatArray | None = None

    def curvature_of(self, reward_sums: FloatArray) -> float:
        """Mean curvature of the loss in one score, at equal scores, from the sums (p,) of all rewards."""
        p = self.margins.size
        steep = 1.0 if self.scale is None else float(np.square(self.scale).mean())
        growth = float(p) ** (1 - self.surrogate.tau) if self.surrogate.form == "comp_sum" else 1.0
        raw = float((reward_sums / np.square(self.margins)).sum())
        return max(raw * steep * growth * (1 - 1 / p) / p, 1e-12)


@dataclass(frozen=True)
class Whole:
    """Statistics over all rows that the targets of a row depend on.

    ``counts`` (p,) is the weight of the rows on which each expert is cheapest, ``cost_scale`` the largest
    possible cost, for complement rewards. ``means`` (p,) are the mean costs that decide between equal
    costs, as in ``label_of``.
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
    known: Targets | None = None,
) -> Targets:
    """Targets of a loss; rewards scaled to mean row sum 1 over the weighted samples.

    ``known`` are targets of the same data and options except the margins, which are recomputed.
    """
    check_option("loss", options.loss, LOSSES)
    if known is not None:
        margins = training_margins(options, X, costs, known.sample_weight)
        return replace(known, margins=margins)
    n, p = costs.shape
    weight = np.ones(n) if sample_weight is None else sample_weight.astype(np.float64)
    if options.sampling is not None or options.loss in LABEL_LOSSES:
        means = tie_means(options, costs, weight)
        labels = label_of(costs, means)
    if options.sampling is not None:
        rng = np.random.default_rng(options.random_state)
        weight = weight * by_label.resampling_weights(labels, p, options.sampling, rng)
    if options.loss in LABEL_LOSSES:
        counts = np.bincount(labels, weights=weight, minlength=p).astype(np.float64)
        return row_targets(options, costs, weight, Whole(np.ones(p), counts, means=means))
    if not weight.all():
        # Rows of weight 0 do not set the scale of the others.
        largest = np.nanmax(costs[weight > 0])
        costs = np.where(weight[:, None] > 0, costs, np.minimum(costs, largest))
    margins = training_margins(options, X, costs, weight)
    return row_targets(options, costs, weight, Whole(margins, np.ones(p), options.cost_scale))


def row_targets(
    options: LossParameters, costs: FloatArray, weight: FloatArray, whole: Whole
) -> Targets:
    """Targets of some rows, given the statistics over all rows."""
    asked = ~np.isnan(costs)
    p, counts = costs.shape[1], whole.counts
    rewards = raw_rewards(options, costs, whole.cost_scale, counts, whole.means) * weight[:, None]
    total = float(rewards.sum())
    targets = Targets(
        rewards / total if total > 0 else rewards,
        None if asked.all() else asked,
        whole.margins,
        parse_surrogate(options.surrogate),
        weight,
    )
    if options.loss not in LABEL_LOSSES:
        return targets
    targets = replace(targets, margins=np.ones(p), surrogate=parse_surrogate("logistic"))
    if options.loss == "ldam":
        own_offset = -LDAM_SCALE * by_label.ldam_margins(counts)
        return replace(targets, scale=np.full(p, LDAM_SCALE), own_offset=own_offset)
    if options.loss == "logit_adjusted":
        floored = by_label.floored_counts(counts)
        return replace(targets, offset=np.log(floored / floored.sum()))
    if options.loss == "temperature":
        return replace(targets, scale=1 / by_label.temperatures(counts))
    return targets


def tie_rule(options: LossParameters, of_margins: bool = False) -> str:
    """How labels, or ``of_margins`` the counts "best", are decided between equal costs."""
    if options.ties is None:
        return "first" if of_margins else "mean"
    return check_option("ties", options.ties, LABEL_TIES)


def tie_means(
    options: LossParameters,
    costs: FloatArray,
    weight: FloatArray | None,
    of_margins: bool = False,
) -> FloatArray | None:
    """Mean costs (p,) that decide between equal costs; None where the first expert is taken."""
    first = tie_rule(options, of_margins) == "first"
    return None if first else mean_known_costs(costs, weight)


def raw_rewards(
    options: LossParameters,
    costs: FloatArray,
    cost_scale: float | None,
    counts: FloatArray | None = None,
    means: FloatArray | None = None,
) -> FloatArray:
    """Rewards (n, p) before they are weighted and scaled; for label losses one-hot, by ``counts``."""
    if options.loss in LABEL_LOSSES:
        one_hot = np.eye(costs.shape[1])
        if options.loss == "cwce" and counts is not None:
            one_hot = np.diag(by_label.class_weights(counts))
        return one_hot[label_of(costs, means)]
    kind = "complement" if options.loss == "tdef" else options.rewards
    check_option("rewards", kind, ALL_REWARDS)
    return rewards_of(costs, kind, cost_scale, options.strength)


def training_margins(
    options: LossParameters, X: Any, costs: FloatArray, weight: FloatArray
) -> FloatArray:
    """Margins (p,) of the options, given the training data."""
    fixed = fixed_margins(options, costs.shape[1])
    if fixed is not None:
        return fixed
    means = tie_means(options, costs, weight, of_margins=True)
    return margin_sums(options, X, costs, weight, options.cost_scale, means).margins(options)


def fixed_margins(options: LossParameters, n_experts: int) -> FloatArray | None:
    """Margins that do not depend on the data; None for theory margins."""
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

    ``mass`` (p,) is the weight with which the rows count for each expert; ``squares`` and ``tops`` are the
    sum over these of the squared feature norm, and its largest; the other fields the same over all rows.
    """

    mass: FloatArray
    squares: FloatArray
    tops: FloatArray
    weight: float = 0.0
    square: float = 0.0
    top: float = 0.0

    def margins(self, options: LossParameters) -> FloatArray:
        """Margins (p,) from these sums."""
        if not self.mass.any():
            return uniform_margins(self.mass.size, options.total)
        norms = None
        if options.norms != "none":
            known = self.mass > 0
            if options.norms == "max":
                squared = np.where(known, self.tops, self.top)
            else:
                share = self.squares / np.where(known, self.mass, 1)
                squared = np.where(known, share, self.square / max(self.weight, 1e-300))
            norms = np.maximum(np.sqrt(squared), 1e-12)
        return theory_margins(self.mass, norms, options.total, options.share_below)


def margin_sums(
    options: LossParameters,
    X: Any,
    costs: FloatArray,
    weight: FloatArray,
    cost_scale: float | None,
    means: FloatArray | None = None,
) -> MarginSums:
    """Sums over some rows; ``means`` as in ``Whole``, ``cost_scale`` None is their largest cost."""
    check_option("counts", options.counts, COUNTS)
    check_option("norms", options.norms, NORMS)
    check_option("rewards", options.rewards, ALL_REWARDS)
    form = options.rewards, options.counts, cost_scale, options.strength
    member = membership(costs, *form, means)
    member *= weight[:, None]
    mass = member.sum(axis=0)
    if options.norms == "none":
        zero = np.zeros(costs.shape[1])
        return MarginSums(mass, zero, zero)
    squared = squared_norms(X)
    return MarginSums(
        mass,
        (member * squared[:, None]).sum(axis=0),
        np.where(member > 0, squared[:, None], 0).max(axis=0),
        float(weight.sum()),
        float(weight @ squared),
        float(squared[weight > 0].max(initial=0.0)),
    )


class BlockLoss(Protocol):
    """A loss on blocks of rows, with rewards of shape (p, n)."""

    @property
    def rewards(self) -> FloatArray: ...

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]: ...


@dataclass(frozen=True)
class RowLoss:
    """Loss of rows on their scores; the fields of ``Targets`` with experts first, (p, n).

    ``scores' = scale * scores + offset (+ own_offset where the expert's reward is positive)``, then the
    reward-weighted surrogate. Label-based baselines are one-hot rewards with such a transformation.
    """

    rewards: FloatArray
    asked: BoolArray | None
    groups: list[MarginGroup]
    surrogate: Surrogate
    scale: FloatArray | None = None
    offset: FloatArray | None = None
    own_offset: FloatArray | None = None

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]:
        """Summed loss and gradient (p, m) of a block; ``scores`` (p, m) is overwritten."""
        rewards = self.rewards[:, rows]
        scores = self._transformed(scores, rewards)
        if self.asked is not None:
            scores[~self.asked[:, rows]] = -np.inf
        gradient = np.zeros_like(scores)
        values = accumulate_loss(scores, rewards, self.groups, self.surrogate, gradient)
        if self.scale is not None:
            gradient *= self.scale[:, None]
        return float(values.sum(dtype=np.float64)), gradient

    def _transformed(self, scores: FloatArray, rewards: FloatArray) -> FloatArray:
        """Scores (p, m), overwritten, as the surrogate sees them."""
        if self.scale is not None:
            scores *= self.scale[:, None]
        if self.offset is not None:
            scores += self.offset[:, None]
        if self.own_offset is not None:
            scores += np.where(rewards > 0, self.own_offset[:, None], 0)
        return scores

    def curvature(self, scores: FloatArray) -> FloatArray:
        """Curvature (p, p) between the scores (p, n) of all rows, summed."""
        exact = replace(self, rewards=self.rewards.astype(np.float64))
        with np.errstate(invalid="ignore", over="ignore"):
            if self.surrogate.form == "comp_sum" and self.surrogate.tau == 1:
                return exact._logistic_curvature(scores)
            return exact._differenced_curvature(scores)

    def _logistic_curvature(self, scores: FloatArray) -> FloatArray:
        """``sum_k r_k / rho_k^2 (diag(s_k) - s_k s_k^T)``, ``s_k`` the softmax of ``scores / rho_k``."""
        seen = self._transformed(scores.astype(np.float64), self.rewards)
        if self.asked is not None:
            seen[~self.asked] = -np.inf
        seen -= seen.max(axis=0)
        result = np.zeros((len(seen), len(seen)))
        for margin, members in self.groups:
            share = np.exp(seen / margin)
            share /= share.sum(axis=0)
            pulled = share * (self.rewards[members].sum(axis=0) / margin**2)
            result += np.diag(pulled.sum(axis=1)) - pulled @ share.T
        result = (result + result.T) / 2
        return result if self.scale is None else result * np.outer(self.scale, self.scale)

    def _differenced_curvature(self, scores: FloatArray) -> FloatArray:
        """The same for any surrogate, from differences of gradients."""
        steepest = 1.0 if self.scale is None else float(self.scale.max())
        step = 1e-4 * min(group.margin for group in self.groups) / steepest
        result = np.empty((len(scores), len(scores)))
        level = self.evaluate(scores.copy(), slice(None))[1].sum(axis=1)
        for k in range(len(scores)):
            moved = scores.copy()
            moved[k] += step
            result[k] = (self.evaluate(moved, slice(None))[1].sum(axis=1) - level) / step
        return (result + result.T) / 2

    def take(self, rows: IntArray, factor: float) -> RowLoss:
        """The loss of some of the rows, rewards multiplied by ``factor``."""
        return replace(
            self,
            rewards=np.ascontiguousarray(self.rewards[:, rows]) * self.rewards.dtype.type(factor),
            asked=None if self.asked is None else np.ascontiguousarray(self.asked[:, rows]),
        )


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
        parts = min(self.threads, max(1, n // BLOCK))
        spans = list(pairwise(n * part // parts for part in range(parts + 1)))
        if parts == 1:
            results = [self._span(coef, intercept, *spans[0])]
        else:
            with ThreadPoolExecutor(parts) as pool:
                futures = [pool.submit(self._span, coef, intercept, *span) for span in spans]
                results = [future.result() for future in futures]
        value = sum(result[0] for result in results)
        gradient = sum((result[1] for result in results[1:]), results[0][1])
        return add_penalty(value, gradient, W, self.alpha, self.fit_intercept)

    def _span(
        self, coef: FloatArray, intercept: FloatArray, start: int, stop: int
    ) -> tuple[float, FloatArray]:
        value = 0.0
        gradient = np.zeros(self.shape)
        sparse = hasattr(self.X, "tocsr")
        for begin in range(start, stop, BLOCK):
            rows = slice(begin, min(begin + BLOCK, stop))
            block = self.X[rows]
            scores = np.ascontiguousarray((block @ coef.T).T) if sparse else coef @ block.T
            scores += intercept[:, None]
            part, slope = self.loss.evaluate(scores, rows)
            value += part
            gradient[:, :-1] += (block.T @ slope.T).T if sparse else slope @ block
            gradient[:, -1] += slope.sum(axis=1)
        return value, gradient


def add_penalty(
    value: float, gradient: FloatArray, W: FloatArray, alpha: float, fit_intercept: bool
) -> tuple[float, FloatArray]:
    """Value and gradient with ``alpha ||W||^2``; ``gradient`` is overwritten."""
    value += alpha * float(np.square(W[:, :-1]).sum())
    gradient[:, :-1] += 2 * alpha * W[:, :-1]
    if not fit_intercept:
        gradient[:, -1] = 0
    return value, gradient


_blas_lock = threading.Lock()
# One limit per fit that runs; the first set it, and the last lifts it.
_blas_limits: list[Any] = []


@cache
def _controller() -> ThreadpoolController:
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

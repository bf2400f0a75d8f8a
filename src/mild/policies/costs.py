"""Policies that estimate costs: constant, linear, with separate prices, and of nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray, check_strength, float_vector
from mild.core.costs import cheapest_expected
from mild.core.rounding import OUTCOME_TOLERANCE
from mild.policies.base import CostPolicy, Decisions, blocks, dense
from mild.policies.decoder import ranks_of

# Every STRIDE-th distance is sampled first, to rule out most of the others.
STRIDE = 16
# Equal distances may differ by this many units in the last place of the largest term.
ROUNDED_UNITS = 8
# This many inputs after the last neighbour are sorted, too, because they may tie with it.
SPARE = 32
# How many distances, or costs of neighbours, are held at a time.
HELD = 8_000_000


@dataclass(eq=False, repr=False)
class ConstantPolicy(CostPolicy, kind="constant"):
    """Always the same expert: ``named``, or the one with the lowest mean cost.

    Without ranks, ties go to the lowest index.
    """

    mean_costs: FloatArray
    n_features: int
    named: int | None = None

    setting_names = ("n_features", "named")
    tensor_names = ("mean_costs",)
    is_constant = True

    def __post_init__(self) -> None:
        self.n_experts = self.mean_costs.size
        if self.named is not None:
            self.expert = self.named
            return
        ranks = self.ranks
        if ranks is None:
            ranks = np.arange(self.n_experts)
        self.expert = int(cheapest_expected(self.mean_costs[None], ranks)[0])

    def expected_costs(self, X: Any) -> FloatArray:
        return np.tile(self.mean_costs, (X.shape[0], 1))

    def decision_function(self, X: Any) -> FloatArray:
        scores = -self.expected_costs(X)
        scores[:, self.expert] = scores.max(axis=1) + 1
        return scores

    def predict(self, X: Any) -> IntArray:
        return np.full(X.shape[0], self.expert, np.intp)

    def decide(self, X: Any) -> Decisions:
        return replace(super().decide(X), chosen=self.predict(X), by="constant")

    def decide_one(self, x: FloatArray) -> int:
        return self.expert

    def with_experts(self, experts: IntArray) -> ConstantPolicy:
        named = None
        if self.named is not None and self.named in experts:
            named = int(np.flatnonzero(experts == self.named)[0])
        ranks = ranks_of(self.ranks, experts, np.arange(self.n_experts))
        return replace(self, mean_costs=self.mean_costs[experts], named=named, ranks=ranks)


@dataclass(eq=False, repr=False)
class LinearCostPolicy(CostPolicy, kind="linear_costs"):
    """``E[c_k | x] = coef_k . x + intercept_k``."""

    coef: FloatArray
    intercept: FloatArray

    tensor_names = ("coef", "intercept")

    def __post_init__(self) -> None:
        self.n_experts, self.n_features = self.coef.shape

    def expected_costs(self, X: Any) -> FloatArray:
        costs = np.asarray(X @ self.coef.T)
        costs += self.intercept
        return costs

    def slopes(self, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
        return np.asarray(self.coef[other] - self.coef[chosen], np.float64)

    def with_experts(self, experts: IntArray) -> LinearCostPolicy:
        return replace(
            self,
            coef=self.coef[experts],
            intercept=self.intercept[experts],
            ranks=self._ranks_of(experts),
        )


@dataclass(eq=False, repr=False)
class PricedPolicy(CostPolicy, kind="priced"):
    """Separate heads for error and price: ``error_k(x) + price_weight * (price_k(x) + beta_k)``.

    ``kind_of_error`` says how the error head's output is read: "ridge" as it is, "logistic" as
    ``error_scale`` times its sigmoid.
    """

    error_coef: FloatArray
    error_intercept: FloatArray
    price_coef: FloatArray
    price_intercept: FloatArray
    betas: FloatArray
    price_weight: float
    kind_of_error: str
    error_scale: float = 1.0

    setting_names = ("price_weight", "kind_of_error", "error_scale")
    tensor_names = ("error_coef", "error_intercept", "price_coef", "price_intercept", "betas")

    def __post_init__(self) -> None:
        self.price_weight = float(self.price_weight)
        self.error_scale = float(self.error_scale)
        self.n_experts, self.n_features = self.error_coef.shape

    @property
    def has_prices(self) -> bool:
        return True

    @property
    def has_errors(self) -> bool:
        return True

    def expected_errors(self, X: Any) -> FloatArray:
        raw = np.asarray(X @ self.error_coef.T) + self.error_intercept
        if self.kind_of_error == "logistic":
            return self.error_scale * np.exp(-np.logaddexp(0, -raw))
        return np.maximum(raw, 0)

    def expected_prices(self, X: Any) -> FloatArray:
        """Expected price (n, p) of each expert, in the units that the router was fitted with."""
        raw = np.asarray(X @ self.price_coef.T) + self.price_intercept
        return np.maximum(raw, 0) + self.betas

    def expected_costs(self, X: Any) -> FloatArray:
        return self.expected_errors(X) + self.price_weight * self.expected_prices(X)

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> PricedPolicy:
        """New constant prices replace the price head; a new weight replaces the old."""
        weight = self.price_weight
        if price_weight is not None:
            weight = check_strength("price_weight", price_weight)
        if betas is None:
            return replace(self, price_weight=weight)
        return replace(
            self,
            price_coef=np.zeros_like(self.price_coef),
            price_intercept=np.zeros_like(self.price_intercept),
            betas=float_vector("betas", betas, self.n_experts).astype(self.betas.dtype),
            price_weight=weight,
        )

    def with_experts(self, experts: IntArray) -> PricedPolicy:
        heads = {name: getattr(self, name)[experts] for name in self.tensor_names}
        return replace(self, **heads, ranks=self._ranks_of(experts))


class Distances(NamedTuple):
    """Distances of n inputs x_i to m stored inputs s_j, in a form that keeps their order.

    ``|x_i - s_j|^2 / 2 - |x_i|^2 / 2 = level_j - x_i . s_j`` with ``level_j = |s_j|^2 / 2``.
    """

    values: FloatArray  # (n, m)
    level: FloatArray  # (m,)
    norms: FloatArray  # (n,) of the inputs

    def take(self, rows: Any) -> Distances:
        """The distances of some of the inputs."""
        return Distances(self.values[rows], self.level, self.norms[rows])


@dataclass(eq=False, repr=False)
class NearestPolicy(CostPolicy, kind="nearest"):
    """Mean cost of each expert over the nearest stored inputs, by Euclidean distance.

    A weight stands for that many copies of a stored input: neighbours are taken until their weights
    reach ``n_neighbors``. Inputs that tie for the last places, up to rounding, share the weight that is
    left for these, so that neither rounding nor the order of the stored inputs decides between them. An
    expert whose cost is known for none of the neighbours gets its mean over all stored inputs.
    """

    inputs: Any  # (m, n_features) stored inputs, dense or sparse
    costs: FloatArray  # (m, n_experts), NaN where unknown
    n_neighbors: int
    weights: FloatArray  # (m,)
    # (n_features,) what was subtracted from dense stored inputs, and is from new ones: distances near the
    # origin keep their digits in float32
    centre: FloatArray | None = None

    setting_names = ("n_neighbors",)
    tensor_names = ("inputs", "costs", "weights", "centre")

    def __post_init__(self) -> None:
        self.n_features = self.inputs.shape[1]
        self.n_experts = self.costs.shape[1]
        is_known = ~np.isnan(self.costs)
        # Weight, and weight times cost, of each known cost, side by side: one product sums both.
        known_weights = self.weights[:, None] * is_known
        weighted_costs = known_weights * np.where(is_known, self.costs, 0)
        self._weights_and_costs = np.hstack([known_weights, weighted_costs])
        mass, total = np.hsplit(self._weights_and_costs.sum(axis=0, dtype=np.float64), 2)
        self._means = (total / np.where(mass > 0, mass, 1)).astype(self.costs.dtype)
        self._norms = _norms(self.inputs)
        # Weight of the k + 1 lightest stored inputs: any k + 1 of them weigh at least that.
        self._lightest = np.cumsum(np.sort(self.weights), dtype=np.float64)

    def expected_costs(self, X: Any) -> FloatArray:
        (costs,) = self.costs_by_neighbours(X, [self.n_neighbors])
        return costs

    def costs_by_neighbours(self, X: Any, counts: Sequence[int]) -> FloatArray:
        """Expected costs (len(counts), n, n_experts) for several numbers of neighbours.

        Distances, which take most of the time, are computed once.
        """
        costs = np.empty((len(counts), X.shape[0], self.n_experts), self.costs.dtype)
        widths = [self._width(count) for count in counts]
        for rows in self._parts(X, max(widths)):
            distances = self._distances(X[rows])
            near = by_distance(distances.values, max(widths))
            for index, (count, width) in enumerate(zip(counts, widths, strict=True)):
                costs[index, rows] = self._mean_costs(distances, near[:, :width], count)
        return costs

    def _width(self, count: int) -> int:
        """How many of the nearest inputs are sorted: those that reach the weight, and some that may tie."""
        n_needed = int(np.searchsorted(self._lightest, count)) + 1
        return min(n_needed + SPARE, len(self.costs))

    def _rows_at_once(self, width: int) -> int:
        """Inputs whose distances, and costs of ``width`` neighbours, take at most HELD entries."""
        return max(1, HELD // max(len(self.costs), 2 * width * self.n_experts, 1))

    def _parts(self, X: Any, width: int) -> Iterator[slice]:
        """Slices of X that are done at once."""
        step = self._rows_at_once(width)
        for rows in blocks(X):
            stop = min(rows.stop, X.shape[0])
            for start in range(rows.start, stop, step):
                yield slice(start, min(start + step, stop))

    def _distances(self, X: Any) -> Distances:
        """Distances of inputs (n, n_features) to the stored ones."""
        shift: FloatArray | float = 0.0
        if self.centre is not None:
            if hasattr(X, "toarray"):
                # A sparse X stays sparse: its distances are corrected instead.
                shift = self.inputs @ self.centre
            else:
                X = X - self.centre
        level = 0.5 * self._norms**2 + shift
        return Distances(level - dense(X @ self.inputs.T), level, _norms(X))

    def _mean_costs(self, distances: Distances, near: IntArray, count: int) -> FloatArray:
        """Mean costs (n, n_experts) over the first of the inputs ``near`` (n, width), in order.

        They are weighted by their ``shares``: 1 for inputs nearer than the last one that is needed to
        reach the weight ``count``, a part for those that tie with it, 0 for the others.
        """
        shares, is_tied = self._shares(distances, near, count)
        sums = np.einsum("nr,nrk->nk", shares, self._weights_and_costs[near])
        mass, total = np.hsplit(sums, 2)
        costs = np.where(mass > 0, total / np.where(mass > 0, mass, 1), self._means)
        if near.shape[1] == len(self.costs):
            return costs
        # Where the last of them ties, so may inputs that have not been looked at: look at more.
        is_cut = np.flatnonzero(is_tied[:, -1])
        width = min(4 * near.shape[1], len(self.costs))
        size = self._rows_at_once(width)
        for start in range(0, len(is_cut), size):
            rows = is_cut[start : start + size]
            cut = distances.take(rows)
            costs[rows] = self._mean_costs(cut, by_distance(cut.values, width), count)
        return costs

    def _shares(
        self, distances: Distances, near: IntArray, count: int
    ) -> tuple[FloatArray, BoolArray]:
        """Shares (n, width) of the weights of the inputs ``near``, and which of them tie for the last."""
        values = np.take_along_axis(distances.values, near, axis=1)
        weights = self.weights[near]
        is_reached = np.cumsum(weights, axis=1, dtype=np.float64) >= count * (1 - OUTCOME_TOLERANCE)
        last = np.where(is_reached[:, -1], is_reached.argmax(axis=1), near.shape[1] - 1)
        last_value = np.take_along_axis(values, last[:, None], axis=1)
        # Equal distances differ by the rounding of the terms that they are the sum of.
        terms = np.abs(distances.level[near]) + distances.norms[:, None] * self._norms[near]
        tolerance = ROUNDED_UNITS * np.finfo(values.dtype).eps * terms
        is_nearer = values < last_value - tolerance
        is_tied = (values <= last_value + tolerance) & ~is_nearer
        weight_left = count - (weights * is_nearer).sum(axis=1)
        tied_weight = (weights * is_tied).sum(axis=1)
        tied_share = np.clip(weight_left / np.where(tied_weight > 0, tied_weight, 1), 0, 1)
        shares = is_nearer + tied_share[:, None] * is_tied
        return shares.astype(self.costs.dtype), is_tied

    def with_experts(self, experts: IntArray) -> NearestPolicy:
        return replace(self, costs=self.costs[:, experts], ranks=self._ranks_of(experts))


def _norms(X: Any) -> FloatArray:
    """Euclidean norms (n,) of the rows of X, dense or sparse."""
    if hasattr(X, "multiply"):
        return np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).reshape(-1))
    return np.linalg.norm(X, axis=1)


def by_distance(distances: FloatArray, count: int) -> IntArray:
    """Indices (n, count) of the smallest distances of each row (n, m), ascending."""
    near = nearest(distances, count)
    order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def nearest(distances: FloatArray, count: int) -> IntArray:
    """Indices (n, count) of the smallest distances of each row (n, m), unordered.

    A quantile of a sample of each row bounds them, so that few are left to partition. This takes a quarter
    of the time of a partition of the whole row.

    >>> nearest(np.array([[3.0, 1.0, 2.0]]), 2)
    array([[1, 2]])
    """
    size = distances.shape[1]
    expected_in_sample = count / STRIDE
    # Four standard deviations and some more: the bound rarely leaves too few.
    rank = int(expected_in_sample + 4 * expected_in_sample**0.5) + 8
    sample = distances[:, ::STRIDE]
    if 2 * rank >= sample.shape[1]:
        return np.argpartition(distances, min(count, size) - 1, axis=1)[:, :count]
    bounds = np.partition(sample, rank, axis=1)[:, rank]
    indices = np.empty((len(distances), count), np.intp)
    for row, bound in enumerate(bounds):
        values = distances[row]
        candidates = np.flatnonzero(values <= bound)
        if candidates.size < count:
            candidates = np.arange(size)
        smallest = np.argpartition(values[candidates], count - 1)[:count]
        indices[row] = candidates[smallest]
    return indices

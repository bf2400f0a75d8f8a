"""Policies that estimate costs: constant, linear, with separate prices, and of nearest neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray, check_strength, float_vector
from mild.core.rounding import ESTIMATES, OUTCOMES, first_least
from mild.policies.base import CostPolicy, Decisions, blocks, dense

# Units in the last place, of sums of as many terms as there are features, by which equal distances differ.
ROUNDED_UNITS = 16


@dataclass(eq=False)
class ConstantPolicy(CostPolicy, kind="constant"):
    """Always the same expert: ``named``, or that of least mean cost."""

    mean_costs: FloatArray
    n_features: int
    named: int | None = None

    setting_names = ("n_features", "named")
    tensor_names = ("mean_costs",)
    is_constant = True

    def __post_init__(self) -> None:
        self.n_experts = self.mean_costs.size
        if self.named is None:
            self.expert = first_least(self.mean_costs, ESTIMATES)
        else:
            self.expert = self.named

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

    def without(self, expert: int) -> ConstantPolicy:
        self._check_drop(expert)
        named = self.named
        if named is not None:
            named = None if named == expert else named - (named > expert)
        return replace(self, mean_costs=np.delete(self.mean_costs, expert), named=named)


@dataclass(eq=False)
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

    def calibrated(self, slopes: FloatArray, offsets: FloatArray) -> LinearCostPolicy:
        coef, intercept = scaled_head(self.coef, self.intercept, slopes, offsets)
        return replace(self, coef=coef, intercept=intercept)

    def without(self, expert: int) -> LinearCostPolicy:
        keep = self._kept(expert)
        return replace(self, coef=self.coef[keep], intercept=self.intercept[keep])


@dataclass(eq=False)
class GroupPolicy(CostPolicy, kind="groups"):
    """``E[c_k | x] = sum_g P(g | x) costs_gk``, ``P(. | x)`` the softmax of ``coef x + intercept``."""

    coef: FloatArray
    intercept: FloatArray
    costs: FloatArray

    tensor_names = ("coef", "intercept", "costs")

    def __post_init__(self) -> None:
        self.n_groups, self.n_features = self.coef.shape
        self.n_experts = self.costs.shape[1]

    def memberships(self, X: Any) -> FloatArray:
        """Probability (n, n_groups) that an input belongs to each group."""
        scores = np.asarray(X @ self.coef.T) + self.intercept
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores

    def expected_costs(self, X: Any) -> FloatArray:
        return self.memberships(X) @ self.costs

    def calibrated(self, slopes: FloatArray, offsets: FloatArray) -> GroupPolicy:
        # The memberships of an input add up to 1.
        return replace(self, costs=(slopes * self.costs + offsets).astype(self.costs.dtype))

    def without(self, expert: int) -> GroupPolicy:
        return replace(self, costs=self.costs[:, self._kept(expert)])


@dataclass(eq=False)
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
        self.price_weight, self.error_scale = float(self.price_weight), float(self.error_scale)
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

    def calibrated(self, slopes: FloatArray, offsets: FloatArray) -> PricedPolicy:
        """The error head calibrated, by its log-odds if it is logistic; prices stay as they are."""
        coef, intercept = scaled_head(self.error_coef, self.error_intercept, slopes, offsets)
        return replace(self, error_coef=coef, error_intercept=intercept)

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

    def without(self, expert: int) -> PricedPolicy:
        keep = self._kept(expert)
        return replace(self, **{name: getattr(self, name)[keep] for name in self.tensor_names})


@dataclass(eq=False)
class NearestPolicy(CostPolicy, kind="nearest"):
    """Mean cost of each expert over the nearest stored inputs, by Euclidean distance.

    A weight stands for that many copies of a stored input: neighbours are taken until their weights
    reach ``n_neighbors``. Inputs that tie for the last places, up to rounding, share the weight that is
    left for these, so that neither rounding nor the order of the stored inputs decides between them. An
    expert whose cost is known for none of the neighbours gets its mean over all stored inputs. Dense inputs
    are less the ``centre``: distances near the origin keep their digits in float32.
    """

    inputs: Any
    costs: FloatArray
    n_neighbors: int
    weights: FloatArray
    centre: FloatArray | None = None

    setting_names = ("n_neighbors",)
    tensor_names = ("inputs", "costs", "weights", "centre")

    def __post_init__(self) -> None:
        inputs, costs, weights = self.inputs, self.costs, self.weights
        self.n_features, self.n_experts = inputs.shape[1], costs.shape[1]
        asked = ~np.isnan(costs)
        # Weight, and weight times cost, of each known cost, side by side: one product sums both.
        known = weights[:, None] * asked
        self._known_and_costs = np.hstack([known, known * np.where(asked, costs, 0)])
        mass, total = np.hsplit(self._known_and_costs.sum(axis=0, dtype=np.float64), 2)
        self._means = (total / np.where(mass > 0, mass, 1)).astype(costs.dtype)
        self._half_norms = 0.5 * _squared_norms(inputs)
        self._alike = bool((weights == 1).all())

    def expected_costs(self, X: Any) -> FloatArray:
        (costs,) = self.costs_by_neighbours(X, [self.n_neighbors])
        return costs

    def costs_by_neighbours(self, X: Any, counts: Sequence[int]) -> FloatArray:
        """Expected costs (len(counts), n, n_experts) for several numbers of neighbours.

        Distances, which take most of the time, are computed once.
        """
        result = np.empty((len(counts), X.shape[0], self.n_experts), self.costs.dtype)
        for part in self._parts(X):
            distances, tolerance = self._distances(X[part])
            reaches = self._reaches(distances, counts)
            for index, count in enumerate(counts):
                shares = self._shares(distances, reaches[:, [index]], tolerance, count)
                result[index, part] = self._mean_costs(shares)
        return result

    def _parts(self, X: Any) -> Iterator[slice]:
        """Slices of X whose distances take at most 8,000,000 entries."""
        step = max(1, 8_000_000 // max(len(self.costs), 1))
        for rows in blocks(X):
            stop = min(rows.stop, X.shape[0])
            for start in range(rows.start, stop, step):
                yield slice(start, min(start + step, stop))

    def _distances(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Half the squared distances (n, m) minus half the squared norm of x, which keeps the order.

        Also the differences (n, 1) between them that are rounding: those of the sums behind them.
        """
        shift: FloatArray | float = 0.0
        if self.centre is not None:
            if hasattr(X, "toarray"):
                shift = self.inputs @ self.centre
            else:
                X = X - self.centre
        level = self._half_norms + shift
        distances = level - dense(X @ self.inputs.T)
        largest_product = np.sqrt(_squared_norms(X) * 2 * self._half_norms.max())
        largest_term = np.abs(level).max() + largest_product[:, None]
        unit = np.finfo(distances.dtype).eps * math.sqrt(self.n_features)
        return distances, ROUNDED_UNITS * unit * largest_term

    def _reaches(self, distances: FloatArray, counts: Sequence[int]) -> FloatArray:
        """Distances (n, len(counts)) within which the weights reach each number of neighbours."""
        last = len(self.costs) - 1
        if self._alike:
            places = [min(int(count) - 1, last) for count in counts]
            return np.partition(distances, sorted(set(places)), axis=1)[:, places]
        order = np.argsort(distances, axis=1, kind="stable")
        ordered = np.take_along_axis(distances, order, axis=1)
        reached = np.cumsum(self.weights[order], axis=1, dtype=np.float64)
        columns = []
        for count in counts:
            is_reached = reached >= count * (1 - OUTCOMES)
            place = np.where(is_reached[:, -1], is_reached.argmax(axis=1), last)
            columns.append(ordered[np.arange(len(ordered)), place])
        return np.column_stack(columns)

    def _shares(
        self, distances: FloatArray, reach: FloatArray, tolerance: FloatArray, count: int
    ) -> FloatArray:
        """Share (n, m) with which each stored input counts as a neighbour: 1, 0, or one that ties."""
        is_nearer = distances < reach - tolerance
        is_tied = (distances <= reach + tolerance) & ~is_nearer
        shares = is_nearer.astype(self.costs.dtype)
        left = count - shares @ self.weights
        ties = is_tied @ self.weights
        shares += is_tied * (np.clip(left / ties, 0, 1)[:, None]).astype(self.costs.dtype)
        return shares

    def _mean_costs(self, shares: FloatArray) -> FloatArray:
        mass, total = np.hsplit(shares @ self._known_and_costs, 2)
        return np.where(mass > 0, total / np.where(mass > 0, mass, 1), self._means)

    def calibrated(self, slopes: FloatArray, offsets: FloatArray) -> NearestPolicy:
        return replace(self, costs=(slopes * self.costs + offsets).astype(self.costs.dtype))

    def without(self, expert: int) -> NearestPolicy:
        self._check_drop(expert)
        return replace(self, costs=np.delete(self.costs, expert, axis=1))


def scaled_head(
    coef: FloatArray, intercept: FloatArray, slopes: FloatArray, offsets: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights and intercepts of ``slope * f + offset`` for linear estimates f, in their own dtype."""
    return (
        (slopes[:, None] * coef).astype(coef.dtype),
        (slopes * intercept + offsets).astype(intercept.dtype),
    )


def _squared_norms(X: Any) -> FloatArray:
    """Squared Euclidean norms (n,) of the rows of X, dense or sparse."""
    if hasattr(X, "multiply"):
        return np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
    return np.einsum("ij,ij->i", X, X)

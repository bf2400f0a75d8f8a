"""A confidence cascade: the alternative to routing that the paper's appendix discusses.

It is a baseline. ``mild.CascadeRouter`` reads the experts' answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray, check_integer, float_vector, invalid
from mild.core.rounding import first_smallest, tie_ranks
from mild.metrics import chosen_costs
from mild.metrics.rows import known_rows, row_weights
from mild.policies import Policy
from mild.policies.base import dense
from mild.routers.base import BaseRouter, from_policy
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import Heads, known_weights, logistic_heads

# An expert is good enough on a row when it costs no more than the cheapest asked one, up to rounding.
GOOD_ENOUGH = 1e-12


@dataclass(eq=False)
class ScoreCascadePolicy(Policy):
    """Stops at the first expert in ``order`` whose confidence reaches its threshold.

    Confidence is a linear-logistic estimate of 'this expert is good enough here', or a column of X
    with the expert's own confidence. The last expert in the order takes the remaining rows.
    """

    coef: FloatArray
    intercept: FloatArray
    order: IntArray
    thresholds: FloatArray
    columns: IntArray | None
    n_features: int

    # Without a kind of its own among the saved ones: it is not served.
    kind = "score cascade"

    def __post_init__(self) -> None:
        self.order = np.asarray(self.order, dtype=np.intp)
        self.columns = None if self.columns is None else np.asarray(self.columns, dtype=np.intp)
        self.n_experts = self.order.size

    def confidence(self, X: Any) -> FloatArray:
        """Confidence (n, p) in each expert."""
        if self.columns is not None:
            return np.asarray(dense(X[:, self.columns]))
        return np.exp(-np.logaddexp(0, -(np.asarray(X @ self.coef.T) + self.intercept)))

    def decision_function(self, X: Any) -> FloatArray:
        """Confidences, with the chosen expert's raised above the others."""
        scores = self.confidence(X).copy()
        chosen = self._choose(scores)
        top = scores.max(axis=1)
        scores[np.arange(len(chosen)), chosen] = top + 1 + np.abs(top)
        return scores

    def predict_proba(self, X: Any) -> FloatArray:
        """Confidences divided by their sum; the largest need not be the cascade's choice."""
        confidence = np.clip(self.confidence(X), 1e-12, None)
        return confidence / confidence.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> IntArray:
        return self._choose(self.confidence(X))

    def _choose(self, confidence: FloatArray) -> IntArray:
        chosen = np.full(len(confidence), self.order[-1], np.intp)
        for place in range(self.n_experts - 2, -1, -1):
            expert = self.order[place]
            chosen[confidence[:, expert] >= self.thresholds[place]] = expert
        return chosen

    def with_experts(self, experts: IntArray) -> ScoreCascadePolicy:
        kept = np.isin(self.order, experts)
        new_index = {expert: index for index, expert in enumerate(experts.tolist())}
        names = ("coef", "intercept") if self.columns is None else ("columns",)
        return replace(
            self,
            order=np.array([new_index[expert] for expert in self.order[kept].tolist()]),
            thresholds=np.append(self.thresholds, 0.0)[kept][:-1],
            **{name: getattr(self, name)[experts] for name in names},
        )


@dataclass(eq=False, repr=False)
class ScoreCascadeRouter(BaseRouter):
    """Asks experts in a fixed order and stops at the first that is trusted enough.

    The row goes to the first expert k in the order whose confidence reaches its threshold ``t_k``; the
    last one takes what is left. Thresholds minimise the mean cost on the training data: coordinate
    descent over quantiles of each expert's confidence, from the last place to the first, until no
    threshold changes; there NaN costs are replaced by the expert's mean. By design it depends on the
    order and never compares two experts on one input.

    Parameters
    ----------
    order : indices or names of all experts; None for ascending ``prices``, or without these for
        descending mean costs: the best constant comes last
    prices : (n_experts,) what asking costs, in the units of the costs, or None; the costs are taken to
        hold the price of the expert that answers
    confidence_columns : for each expert the column of X with its own confidence; None to learn it: a
        logistic estimate that the expert costs no more than the cheapest one asked about that row
    alpha : float, L2 strength of the learned confidence
    n_thresholds : int, quantiles tried per expert; 'always' and 'never stop here' are tried too
    pay_for_asked : bool, whether a row also pays the prices of the experts that were asked before the one
        that answers, both when thresholds are chosen and in ``score``

    Attributes
    ----------
    prices_ : (n_experts,) array, zeros without ``prices``

    Examples
    --------
    >>> X, costs = [[0.0], [1.0], [2.0], [3.0]], [[0.1, 0.5], [0.1, 0.5], [1.1, 0.5], [1.1, 0.5]]
    >>> ScoreCascadeRouter(order=[0, 1]).fit(X, costs).predict([[-1.0], [4.0]])
    array([0, 1])
    """

    order: Sequence[int | str] | None = None
    prices: Any = None
    confidence_columns: Sequence[int] | None = None
    alpha: float = 1e-3
    n_thresholds: int = 33
    pay_for_asked: bool = True

    order_ = from_policy("order", "(n_experts,) experts in the order in which they are asked.")
    thresholds_ = from_policy("thresholds", "(n_experts - 1,) confidence at which a place stops.")

    def _fit(
        self, X: Any, costs: FloatArray, sample_weight: FloatArray | None
    ) -> ScoreCascadePolicy:
        p = costs.shape[1]
        prices = np.zeros(p) if self.prices is None else self.prices
        self.prices_ = float_vector("prices", prices, p)
        weights = known_weights("costs", costs, sample_weight)
        means = mean_costs(costs, sample_weight)
        order = self._order(means)
        columns = self._columns(p, X.shape[1])
        never = np.full(max(p - 1, 0), np.finfo(X.dtype).max, X.dtype)
        heads = Heads(np.zeros((0, X.shape[1]), X.dtype), np.zeros(0, X.dtype))
        if columns is None:
            best = np.nanmin(costs, axis=1, keepdims=True)
            good = np.where(np.isnan(costs), np.nan, costs <= best + GOOD_ENOUGH)
            heads = logistic_heads(X, good, weights, self.alpha)
        policy = ScoreCascadePolicy(heads.coef, heads.intercept, order, never, columns, X.shape[1])
        total = np.where(np.isnan(costs), means, costs) + self._paid_before(order)
        policy.thresholds = cascade_thresholds(
            policy.confidence(X)[:, order],
            total[:, order],
            row_weights(sample_weight, len(costs)),
            check_integer("n_thresholds", self.n_thresholds),
        ).astype(X.dtype)
        return policy

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean cost of the chosen experts, and of those paid on the way to them."""
        chosen = self.predict(X)
        costs = chosen_costs(np.asarray(y), chosen) + self._paid_before(self.order_)[chosen]
        known = known_rows(costs, "skip")
        weight = row_weights(sample_weight, len(costs))[known]
        if not weight.any():
            raise invalid("sample_weight", "must be positive in a row whose cost is known.")
        return -float(weight @ costs[known] / weight.sum())

    def without(self, expert: int | str) -> Self:
        """The cascade with one expert gone from its order, by index or name, without a refit."""
        router = super().without(expert)
        router.prices_ = np.delete(self.prices_, self._expert_index(expert))
        return router

    def _paid_before(self, order: IntArray) -> FloatArray:
        """What was paid, by expert, before that expert is asked."""
        paid = np.zeros(len(order))
        if self.pay_for_asked:
            prices = self.prices_[order]
            paid[order] = np.cumsum(prices) - prices
        return paid

    def _order(self, means: FloatArray) -> IntArray:
        if self.order is None:
            # Ties: in the order of the columns; the best constant (lowest index) is last by means.
            if self.prices is not None:
                return np.argsort(tie_ranks(self.prices_), kind="stable")
            return np.argsort(tie_ranks(means), kind="stable")[::-1].copy()
        order = np.array([self._expert_index(expert) for expert in self.order], dtype=np.intp)
        if sorted(order.tolist()) != list(range(self.n_experts_)):
            raise invalid(
                "order",
                f"must name each of the {self.n_experts_} experts once; got {self.order!r}.",
            )
        return order

    def _columns(self, p: int, n_features: int) -> IntArray | None:
        if self.confidence_columns is None:
            return None
        columns = np.asarray(self.confidence_columns)
        good = columns.shape == (p,) and np.issubdtype(columns.dtype, np.integer)
        if not (good and ((columns >= 0) & (columns < n_features)).all()):
            raise invalid(
                "confidence_columns",
                f"must be {p} column indices in [0, {n_features}), one per expert; got "
                f"{self.confidence_columns!r}.",
            )
        return columns.astype(np.intp)


def cascade_thresholds(
    confidence: FloatArray, costs: FloatArray, weights: FloatArray, n_thresholds: int
) -> FloatArray:
    """Thresholds (p - 1,) of least mean cost found by coordinate descent.

    Columns of confidence and costs (n_samples, n_experts) are in the cascade's order, without NaN.
    """
    p = costs.shape[1]
    never = float(np.finfo(confidence.dtype).max)
    thresholds = np.full(max(p - 1, 0), never)
    present = weights > 0
    confidence, costs, weights = confidence[present], costs[present], weights[present]
    tried = [
        np.append(_cuts(confidence[:, place], weights, n_thresholds), never)
        for place in range(p - 1)
    ]
    for _ in range(100):
        before = thresholds.copy()
        for place in range(p - 2, -1, -1):
            reached = (confidence[:, :place] < thresholds[:place]).all(axis=1)
            later = np.full(len(costs), p - 1)
            for after in range(p - 2, place, -1):
                later[confidence[:, after] >= thresholds[after]] = after
            gain = costs[:, place] - costs[np.arange(len(costs)), later]
            gain *= weights * reached
            thresholds[place] = _best_threshold(
                confidence[:, place], gain, tried[place], thresholds[place]
            )
        if (thresholds == before).all():
            break
    return thresholds


def _best_threshold(
    confidence: FloatArray, gain: FloatArray, tried: FloatArray, current: float
) -> float:
    """The tried threshold with the least summed gain above it; the current one unless it is worse."""
    order = np.argsort(confidence, kind="stable")
    above = np.append(np.cumsum(gain[order][::-1])[::-1], 0.0)
    ordered = confidence[order]
    sums = above[np.searchsorted(ordered, tried, side="left")]
    now = above[np.searchsorted(ordered, current, side="left")]
    best = first_smallest(sums)
    # Rounding must not keep the descent going.
    return float(tried[best]) if sums[best] < now - 1e-12 * np.abs(gain).sum() else current


def _cuts(values: FloatArray, weights: FloatArray, count: int) -> FloatArray:
    """Thresholds just below ``count`` weighted quantiles, and one below everything.

    A threshold lies halfway down to the next lower value, so that rounding moves no row across.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cumulative = np.cumsum(weights[order])
    levels = (np.arange(count) + 0.5) / count * cumulative[-1]
    quantiles = ordered[np.searchsorted(cumulative, levels).clip(max=len(ordered) - 1)]
    limit = np.finfo(values.dtype)
    apart = 100 * limit.eps * np.abs(ordered).max()
    at = np.searchsorted(ordered, quantiles - apart)
    at = at[at > 0]
    return np.unique(np.append((ordered[at] + ordered[at - 1]) / 2, limit.min))

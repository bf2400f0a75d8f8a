"""Shares of the experts among choices, and recall of the cheapest expert.

Shapes: ``costs`` is (n_samples, n_experts) with NaN where an expert was never asked, ``chosen``
(n_samples,) expert indices, ``sample_weight`` (n_samples,) non-negative numbers or None.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray, check_choices, invalid
from mild.metrics.rows import evaluated_costs, number_vector, row_weights

__all__ = [
    "balanced_recall",
    "expert_recall",
    "expert_shares",
    "oracle_shares",
    "share_entropy",
    "worst_recall",
]


def expert_shares(
    chosen: ArrayLike, n_experts: int, sample_weight: ArrayLike | None = None
) -> FloatArray:
    """(n_experts,) shares of the rows: ``share_k = sum_i w_i 1[chosen_i = k] / sum_i w_i``.

    Examples
    --------
    >>> expert_shares([0, 2, 2, 2], 3)
    array([0.25, 0.  , 0.75])
    """
    n_samples = np.size(chosen)
    if n_samples == 0:
        raise invalid("chosen", "must have at least one row to average over; got 0.")
    experts = check_choices(chosen, n_samples, n_experts)
    weights = row_weights(sample_weight, n_samples)
    return _mass(experts, weights, n_experts) / weights.sum()


def oracle_shares(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> FloatArray:
    """Share of the rows on which each expert is the cheapest asked one, ties to the lowest index.

    Where many rows tie, these shares depend on the order of the experts: list the preferred first.

    Examples
    --------
    >>> oracle_shares([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [np.nan, 2.0]])
    array([0.5, 0.5])
    """
    array = evaluated_costs(costs)
    return expert_shares(np.nanargmin(array, axis=1), array.shape[1], sample_weight)


def share_entropy(shares: ArrayLike, normalised: bool = True) -> float:
    """Entropy of the shares: 0 when one expert gets everything.

    ``H = -sum_k s_k log s_k``, in nats, or divided by ``log(n_experts)`` so that an even split
    gives 1. With one expert it is 0 either way.

    Examples
    --------
    >>> share_entropy([0.5, 0.5, 0.0, 0.0])
    0.5
    """
    s = number_vector("shares", shares)
    if len(s) == 0 or (s < 0).any() or abs(s.sum() - 1) > 1e-6:
        raise invalid("shares", f"must be non-negative and sum to 1; got {s.tolist()}.")
    used = s[s > 0]
    if len(used) == 1:
        return 0.0
    entropy = -float(used @ np.log(used))
    return entropy / float(np.log(len(s))) if normalised else entropy


def expert_recall(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: ArrayLike | None = None
) -> FloatArray:
    """Of the rows on which expert k is cheapest, the share that was sent to k; (n_experts,).

    ``recall_k = sum_i w_i 1[best_i = k] 1[chosen_i = k] / sum_i w_i 1[best_i = k]`` with ``best_i``
    the cheapest asked expert, ties to the lowest index. NaN for an expert that is never cheapest. A
    choice that ties with the cheapest counts as a miss although it costs nothing.

    Examples
    --------
    >>> expert_recall([[0, 1, 2], [0, 1, 2], [1, 0, 2]], [0, 1, 1])
    array([0.5, 1. , nan])
    """
    array = evaluated_costs(costs)
    n_samples, n_experts = array.shape
    experts = check_choices(chosen, n_samples, n_experts)
    weights = row_weights(sample_weight, n_samples)
    best = np.nanargmin(array, axis=1)
    mass = _mass(best, weights, n_experts)
    hits = _mass(best, weights * (best == experts), n_experts)
    return np.divide(hits, mass, out=np.full(n_experts, np.nan), where=mass > 0)


def balanced_recall(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Mean of ``expert_recall`` over the experts that are cheapest somewhere.

    A router that always asks the majority expert scores 1 over the number of these experts.

    Examples
    --------
    >>> balanced_recall([[0, 1, 2], [0, 1, 2], [1, 0, 2]], [0, 1, 1])
    0.75
    """
    return float(np.nanmean(expert_recall(costs, chosen, sample_weight)))


def worst_recall(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Least of ``expert_recall`` over the experts that are cheapest somewhere: ``min_k recall_k``.

    Examples
    --------
    >>> worst_recall([[0, 1, 2], [0, 1, 2], [1, 0, 2]], [0, 1, 1])
    0.5
    """
    return float(np.nanmin(expert_recall(costs, chosen, sample_weight)))


def _mass(experts: IntArray, weights: FloatArray, n_experts: int) -> FloatArray:
    """Weight of the rows of each expert."""
    return np.bincount(experts, weights, minlength=n_experts).astype(np.float64, copy=False)

"""A bias per expert, fitted on out-of-fold scores."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last

__all__ = ["cross_fitted_bias", "find_bias"]

# Values that are tried, in units of the margin.
STEPS = np.linspace(-2, 2, 33)
# Rounds of the coordinate search at most.
ROUNDS = 3
# Rows that are used at most.
ROWS = 20_000


def find_bias(
    scores: FloatArray, costs: FloatArray, sample_weight: FloatArray | None, margin: float
) -> FloatArray:
    """Bias (n_experts,) with which the largest score costs least, by coordinate search on a grid.

    Its minimum is 0, as only differences matter. Rows with an unknown cost are left out. Ties go to the
    value nearest to 0.

    Parameters
    ----------
    scores : (n_samples, n_experts) scores of a router with equal margins
    costs : (n_samples, n_experts) array
    margin : the margin that all experts share

    Examples
    --------
    >>> find_bias(np.array([[0.0, 0.5], [0.0, 2.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]), None, 1.0)
    array([0.625, 0.   ])
    """
    rows = np.flatnonzero(~np.isnan(costs).any(axis=1))
    rows = rows[np.linspace(0, len(rows), min(len(rows), ROWS), endpoint=False, dtype=np.intp)]
    scores, costs = scores[rows].astype(np.float64), costs[rows].astype(np.float64)
    if sample_weight is not None:
        costs = costs * sample_weight[rows, None]
    bias = np.zeros(scores.shape[1])
    every = np.arange(len(rows))
    for _ in range(ROUNDS):
        before = bias.copy()
        for k in range(bias.size):
            others = scores + bias
            others[:, k] = -np.inf
            rival = argmax_last(others)
            # The expert is chosen from the first step above this gap on.
            gap = (others[every, rival] - scores[:, k]) / margin
            change = costs[:, k] - costs[every, rival]
            place = np.searchsorted(STEPS, gap, side="right")
            total = np.bincount(place, change, STEPS.size + 1)[:-1].cumsum().round(9)
            bias[k] = STEPS[np.lexsort((np.abs(STEPS), total))[0]] * margin
        if (bias == before).all():
            break
    result: FloatArray = bias - bias.min()
    return result


def cross_fitted_bias(
    scores: FloatArray,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    folds: list[tuple[IntArray, IntArray]],
    margin: float,
) -> tuple[FloatArray, IntArray]:
    """The bias from all held-out scores, and choices (n,) with the bias from the other folds.

    ``scores`` are NaN in rows that no fold holds out, where the choice is -1.
    """
    covered = np.isfinite(scores[:, 0])
    chosen = np.full(len(scores), -1, dtype=np.intp)

    def found(rows: IntArray) -> FloatArray:
        weight = None if sample_weight is None else sample_weight[rows]
        return find_bias(scores[rows], costs[rows], weight, margin)

    for _, test in folds:
        other = covered.copy()
        other[test] = False
        chosen[test] = argmax_last(scores[test] + found(np.flatnonzero(other)))
    return found(np.flatnonzero(covered)), chosen

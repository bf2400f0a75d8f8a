"""A bias per expert, found on scores of rows that the router has not seen."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last

__all__ = ["cross_fitted_bias", "find_bias"]

# Values that are tried, in units of the margin: differences of log-probabilities.
STEPS = np.linspace(-2, 2, 33)
# Times that every expert has its turn, at most.
ROUNDS = 3
# A few numbers need no more rows than this.
ROWS = 20_000


def find_bias(
    scores: FloatArray, costs: FloatArray, sample_weight: FloatArray | None, margin: float
) -> FloatArray:
    """Bias (n_experts,) with which the largest score costs least, by coordinate search on a grid.

    The least of them is 0: only differences matter. Rows with an unknown cost take no part. Of values
    that cost the same the one nearest to 0 is taken.

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
            # The expert is chosen from the first step on that is above this gap.
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
    """The bias that all held-out scores ask for, and choices (n,) with that of the other folds' rows.

    ``scores`` are NaN in rows that no fold judges, and the choice there is -1.
    """
    judged = np.isfinite(scores[:, 0])
    chosen = np.full(len(scores), -1, dtype=np.intp)

    def found(rows: IntArray) -> FloatArray:
        weight = None if sample_weight is None else sample_weight[rows]
        return find_bias(scores[rows], costs[rows], weight, margin)

    for _, test in folds:
        other = judged.copy()
        other[test] = False
        chosen[test] = argmax_last(scores[test] + found(np.flatnonzero(other)))
    return found(np.flatnonzero(judged)), chosen

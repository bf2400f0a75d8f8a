"""Weights with which the beliefs of several routers are blended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from mild.arrays import FloatArray, IntArray
from mild.exceptions import UnsupportedError
from mild.policies import Policy
from mild.routers.constant import mean_costs

__all__ = ["blend", "level_weights"]


def blend(
    beliefs: FloatArray,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    folds: Sequence[tuple[IntArray, IntArray]],
) -> tuple[FloatArray, IntArray]:
    """Weights of the members and of the mean costs, and what the blend chooses for held-out rows.

    Minimises ``sum_ik w_i (c_ik - sum_m v_m e_mik)^2`` over ``v >= 0``, with costs c and beliefs e as
    differences to their row's mean over the experts that were asked.

    Parameters
    ----------
    beliefs : (members, n, p) expected costs of rows that the member has not seen
    costs : (n, p), NaN where an expert was never asked
    sample_weight : (n,) or None
    folds : (seen, held out) rows; the choice for a fold rests on weights from the other folds, or from
        its own where it is the only one; rows in no fold have no beliefs, and get -1

    Examples
    --------
    >>> costs = np.array([[0.0, 1.0], [1.0, 0.0]] * 4)
    >>> beliefs = np.stack([0.5 * costs, 1 - costs])
    >>> halves = [(np.arange(4), np.arange(4, 8)), (np.arange(4, 8), np.arange(4))]
    >>> weights, chosen = blend(beliefs, costs, None, halves)
    >>> weights.round(6).tolist(), chosen.tolist()
    ([2.0, 0.0, 0.0], [0, 1, 0, 1, 0, 1, 0, 1])
    """
    weight = np.ones(len(costs)) if sample_weight is None else sample_weight
    members = np.concatenate([beliefs, np.empty((1, *costs.shape), beliefs.dtype)])
    judged = np.sort(np.concatenate([held for _, held in folds]))
    chosen = np.full(len(costs), -1, np.intp)
    for seen, held in folds:
        members[-1, held] = mean_costs(costs[seen], weight[seen])
    for _, held in folds:
        others = np.setdiff1d(judged, held) if len(folds) > 1 else held
        found = _weights(members[:, others], costs[others], weight[others])
        chosen[held] = np.tensordot(found, _differences(members[:, held]), 1).argmin(axis=1)
    return _weights(members[:, judged], costs[judged], weight[judged]), chosen


def level_weights(policies: Sequence[Policy], X: Any) -> FloatArray:
    """Weights (members + 1,) of the members' mean expected costs: equal among those that know them.

    Where none does, the mean costs alone, which come last, say how much an input costs.
    """
    levels = np.zeros(len(policies) + 1)
    for number, policy in enumerate(policies):
        try:
            policy.expected_costs(X)
        except UnsupportedError:
            continue
        levels[number] = 1.0
    if not levels.any():
        levels[-1] = 1.0
    return levels / levels.sum()


def _differences(costs: FloatArray, known: Any = None) -> FloatArray:
    """Costs (..., p) minus the mean over the experts that are known; 0 for the others."""
    if known is None:
        return costs - costs.mean(axis=-1, keepdims=True)
    count = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    mean = np.where(known, costs, 0).sum(axis=-1, keepdims=True) / count
    return np.where(known, costs - mean, 0)


def _weights(members: FloatArray, costs: FloatArray, sample_weight: FloatArray) -> FloatArray:
    known = ~np.isnan(costs)
    root = np.sqrt(sample_weight)[:, None]
    target = (root * _differences(costs, known)).ravel()
    columns = np.column_stack(
        [(root * _differences(member, known)).ravel() for member in members]
    ).astype(float)
    # The triangle has the same inner products as all rows, and a handful of them.
    basis, triangle = np.linalg.qr(columns)
    found = np.asarray(nnls(triangle, basis.T @ target)[0], dtype=float)
    if not found.any():
        found[-1] = 1.0
    return found

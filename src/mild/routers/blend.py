"""Weights with which the beliefs of several routers are blended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear, nnls

from mild.core.arrays import FloatArray, IntArray
from mild.errors import UnsupportedError
from mild.policies import Policy
from mild.routers.constant import mean_costs

__all__ = ["blend", "level_weights"]


def blend(
    beliefs: FloatArray,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    folds: Sequence[tuple[IntArray, IntArray]],
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Weights of the members and of the mean costs, these, and what the blend chooses for held-out rows.

    Minimises ``sum_ik w_i (c_ik - sum_m v_m e_mik)^2`` over ``v >= 0``, with costs c and beliefs e as
    differences to their row's mean over the experts that were asked. Where some were not, mean costs are
    over different rows, and an expert that was asked about easy ones alone looks cheap, to the members
    as well: then a difference ``b_k`` per expert is fitted with the weights, within rows, not means.

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
    >>> weights, means, chosen = blend(beliefs, costs, None, halves)
    >>> weights.round(6).tolist(), means.tolist(), chosen.tolist()
    ([2.0, 0.0, 0.0], [0.5, 0.5], [0, 1, 0, 1, 0, 1, 0, 1])
    """
    weight = np.ones(len(costs)) if sample_weight is None else sample_weight
    fit = _with_means if not np.isnan(costs).any() else _with_differences
    judged = np.sort(np.concatenate([held for _, held in folds]))
    chosen = np.full(len(costs), -1, np.intp)
    for _, held in folds:
        others = np.setdiff1d(judged, held) if len(folds) > 1 else held
        found, means = fit(beliefs[:, others], costs[others], weight[others])
        believed = np.tensordot(found[:-1], _differences(beliefs[:, held]), 1)
        chosen[held] = (believed + found[-1] * (means - means.mean())).argmin(axis=1)
    weights, means = fit(beliefs[:, judged], costs[judged], weight[judged])
    return weights, means, chosen


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


def _with_means(
    members: FloatArray, costs: FloatArray, sample_weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights (members + 1,) of the members and of the mean costs, and these."""
    means = mean_costs(costs, sample_weight)
    everyone = np.concatenate([members, np.broadcast_to(means, (1, *costs.shape))])
    columns, target = _problem(everyone, costs, sample_weight)
    return _said(np.asarray(nnls(columns, target)[0], dtype=float)), means


def _with_differences(
    members: FloatArray, costs: FloatArray, sample_weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The same with holes: means that differ as the costs of one row do, on the average over rows."""
    count, experts = len(members), costs.shape[1]
    means = mean_costs(costs, sample_weight)
    alike = np.broadcast_to(np.eye(experts)[:, None, :], (experts, *costs.shape))
    columns, target = _problem(np.concatenate([members, alike]), costs, sample_weight)
    # The weight of one row against differences that nothing tells.
    still = np.sqrt(sample_weight.mean()) * np.eye(count + experts)[count:]
    found = lsq_linear(
        np.concatenate([columns, still]),
        np.concatenate([target, np.zeros(experts)]),
        (np.r_[np.zeros(count), np.full(experts, -np.inf)], np.inf),
    ).x
    if not columns.any():
        return _said(np.zeros(count + 1)), means
    differences = found[count:]
    return np.append(found[:count], 1.0), differences - differences.mean() + means.mean()


def _problem(
    members: FloatArray, costs: FloatArray, sample_weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Least squares on differences: a triangle has the same inner products as all rows, and few of them."""
    known = ~np.isnan(costs)
    root = np.sqrt(sample_weight)[:, None]
    target = (root * _differences(costs, known)).ravel()
    columns = np.column_stack(
        [(root * _differences(member, known)).ravel() for member in members]
    ).astype(float)
    basis, triangle = np.linalg.qr(columns)
    return triangle, basis.T @ target


def _said(weights: FloatArray) -> FloatArray:
    """The weights; the mean costs alone where nobody says anything."""
    if not weights.any():
        weights[-1] = 1.0
    return weights

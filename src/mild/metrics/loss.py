"""What a routing costs, and its yardsticks: constants, the oracle, shuffled choices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, check_choices
from mild.errors import InvalidInputError
from mild.metrics.rows import evaluated_costs, known_rows, row_weights
from mild.metrics.shares import expert_shares

__all__ = [
    "BestConstant",
    "balanced_deferral_loss",
    "best_constant",
    "chosen_costs",
    "constant_losses",
    "deferral_loss",
    "headroom",
    "oracle_loss",
    "shuffled_control",
]


class BestConstant(NamedTuple):
    """The expert that is cheapest on average, and its mean cost."""

    expert: int
    cost: float


def chosen_costs(costs: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Cost of each row at its chosen expert: ``costs[i, chosen[i]]``, one value per sample.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices

    Returns
    -------
    (n_samples,) float64 array, NaN where the chosen expert was never asked

    Examples
    --------
    >>> chosen_costs([[0.0, 1.0], [0.5, 0.25]], [0, 1])
    array([0.  , 0.25])
    """
    array = evaluated_costs(costs)
    experts = check_choices(chosen, *array.shape)
    return array[np.arange(len(array)), experts].astype(np.float64, copy=False)


def deferral_loss(
    costs: ArrayLike,
    chosen: ArrayLike,
    sample_weight: ArrayLike | None = None,
    missing: str = "error",
) -> float:
    """Mean cost of the chosen experts (paper, section 2).

    ``L = sum_i w_i * costs[i, chosen[i]] / sum_i w_i``.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional
    missing : "error" or "skip"
        What to do with rows that chose an expert that was never asked: refuse, or average over the
        other rows. The latter is unbiased only if asking had nothing to do with the cost.

    Examples
    --------
    >>> deferral_loss([[0.0, 1.0], [0.5, 0.25]], [0, 1])
    0.125
    >>> deferral_loss([[0.0, 1.0], [0.5, np.nan]], [1, 1], missing="skip")
    1.0
    """
    values = chosen_costs(costs, chosen)
    weights = row_weights(sample_weight, len(values))
    rows = known_rows(values, missing)
    mass = float(weights[rows].sum())
    if mass == 0:
        raise InvalidInputError(
            "sample_weight must be positive in at least one row whose chosen cost is known; "
            "got zeros only."
        )
    return float(weights[rows] @ values[rows]) / mass


def balanced_deferral_loss(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Deferral loss in which every expert that is cheapest somewhere counts alike.

    ``mean over k of sum_i w_i 1[best_i = k] costs[i, chosen_i] / sum_i w_i 1[best_i = k]`` with
    ``best_i`` the cheapest asked expert of the row, ties to the lowest index, over the experts k that
    are best in a row whose chosen cost is known; rows that chose an expert never asked are left out.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional

    Returns
    -------
    float; NaN if no chosen cost is known

    Examples
    --------
    >>> costs = [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    >>> deferral_loss(costs, [0, 0, 0, 0]), balanced_deferral_loss(costs, [0, 0, 0, 0])
    (0.25, 0.5)
    """
    array = evaluated_costs(costs)
    paid = chosen_costs(array, chosen)
    weights = np.where(np.isnan(paid), 0.0, row_weights(sample_weight, len(array)))
    best = np.nanargmin(array, axis=1)
    mass = np.bincount(best, weights)
    total = np.bincount(best, weights * np.nan_to_num(paid))
    used = mass > 0
    return float(np.mean(total[used] / mass[used])) if used.any() else float("nan")


def constant_losses(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> FloatArray:
    """Mean cost of always asking expert k, over the rows on which k was asked.

    ``L_k = sum_i w_i c_ik / sum_i w_i`` over i with known ``c_ik``; NaN for an expert never asked.

    Examples
    --------
    >>> constant_losses([[0.0, 1.0], [1.0, np.nan]])
    array([0.5, 1. ])
    """
    array = evaluated_costs(costs)
    weights = row_weights(sample_weight, len(array))
    asked = ~np.isnan(array)
    total = weights @ np.where(asked, array, 0).astype(np.float64, copy=False)
    mass = weights @ asked
    return np.divide(total, mass, out=np.full(len(mass), np.nan), where=mass > 0)


def best_constant(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> BestConstant:
    """The expert that costs least on average, ties to the lowest index: the router to beat.

    ``argmin_k constant_losses_k``. Where costs are NaN each expert is averaged over the rows on
    which it was asked, so experts asked about easier rows look better than they are.

    Examples
    --------
    >>> best_constant([[0.0, 0.5], [1.0, 0.25]])
    BestConstant(expert=1, cost=0.375)
    """
    losses = constant_losses(costs, sample_weight)
    expert = int(np.nanargmin(losses))
    return BestConstant(expert, float(losses[expert]))


def oracle_loss(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Mean cost of the cheapest asked expert of each row: no router can do better.

    ``sum_i w_i min_k c_ik / sum_i w_i``.

    Examples
    --------
    >>> oracle_loss([[0.0, 0.5], [1.0, 0.25]])
    0.125
    """
    array = evaluated_costs(costs)
    weights = row_weights(sample_weight, len(array))
    lowest = np.nanmin(array, axis=1).astype(np.float64, copy=False)
    return float(weights @ lowest / weights.sum())


def headroom(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """What routing could gain at most: best constant's mean cost minus the oracle's.

    Never negative when all costs are known; with NaN costs the two are means over different rows
    and it may be.

    Examples
    --------
    >>> headroom([[0.0, 0.5], [1.0, 0.25]])
    0.25
    """
    return best_constant(costs, sample_weight).cost - oracle_loss(costs, sample_weight)


def shuffled_control(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Expected cost of the same choices dealt to the rows at random: what shares alone are worth.

    ``sum_k share_k * constant_losses_k``, the exact expectation over all shuffles, so nothing is
    drawn. A router that does no better has learned how often to ask each expert but not when. NaN
    if an expert that was chosen was never asked in any row.

    Examples
    --------
    >>> shuffled_control([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    0.5
    """
    array = evaluated_costs(costs)
    shares = expert_shares(check_choices(chosen, *array.shape), array.shape[1], sample_weight)
    used = shares > 0
    return float(shares[used] @ constant_losses(array, sample_weight)[used])

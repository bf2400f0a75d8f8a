"""The deferral loss of a routing, its references (constants, oracle, shuffled choices), and common rows.

Shapes: ``costs`` is (n_samples, n_experts) with NaN where an expert was never asked, ``chosen``
(n_samples,) expert indices, ``sample_weight`` (n_samples,) non-negative numbers or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, check_choices, invalid
from mild.metrics.rows import evaluated_costs, known_rows, row_weights
from mild.metrics.shares import expert_shares

__all__ = [
    "FEWEST_UNITS",
    "BestConstant",
    "CommonRows",
    "balanced_deferral_loss",
    "best_constant",
    "chosen_costs",
    "common_constant",
    "common_rows",
    "constant_losses",
    "deferral_loss",
    "headroom",
    "oracle_loss",
    "shuffled_control",
]

#: A verdict needs at least this many independent rows, queries or groups.
FEWEST_UNITS = 30


class BestConstant(NamedTuple):
    """The expert that is cheapest on average, and its mean cost."""

    expert: int
    cost: float


def chosen_costs(costs: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """``costs[i, chosen[i]]``: (n_samples,) float64, NaN where the chosen expert was never asked.

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
        Refuse rows that chose an expert that was never asked, or average over the other rows. The
        latter is unbiased only if costs and missingness are independent.

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
        raise invalid(
            "sample_weight",
            "must be positive in at least one row whose chosen cost is known; got zeros only.",
        )
    return float(weights[rows] @ values[rows]) / mass


def balanced_deferral_loss(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Deferral loss averaged per cheapest expert, so that each of these experts counts equally.

    ``mean over k of sum_i w_i 1[best_i = k] costs[i, chosen_i] / sum_i w_i 1[best_i = k]`` with
    ``best_i`` the cheapest asked expert of the row, ties to the lowest index. Rows that chose an
    expert never asked are left out; NaN if no chosen cost is known.

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
    """The expert of least mean cost, ``argmin_k constant_losses_k``, ties to the lowest index.

    With NaN costs, experts asked about easier rows look better than they are: see
    ``common_constant``.

    Examples
    --------
    >>> best_constant([[0.0, 0.5], [1.0, 0.25]])
    BestConstant(expert=1, cost=0.375)
    """
    losses = constant_losses(costs, sample_weight)
    expert = int(np.nanargmin(losses))
    return BestConstant(expert, float(losses[expert]))


def oracle_loss(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Mean cost of the cheapest asked expert of each row: ``sum_i w_i min_k c_ik / sum_i w_i``.

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
    """Largest possible gain of routing: the best constant's mean cost minus the oracle's.

    Non-negative when all costs are known; with NaN costs the two are means over different rows.

    Examples
    --------
    >>> headroom([[0.0, 0.5], [1.0, 0.25]])
    0.25
    """
    return best_constant(costs, sample_weight).cost - oracle_loss(costs, sample_weight)


def shuffled_control(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Expected cost of the same choices assigned to the rows at random.

    ``sum_k share_k * constant_losses_k``, the exact expectation over all shuffles. A router that does
    no better has learned how often to ask each expert but not when. NaN if an expert that was chosen
    was never asked in any row.

    Examples
    --------
    >>> shuffled_control([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    0.5
    """
    array = evaluated_costs(costs)
    shares = expert_shares(check_choices(chosen, *array.shape), array.shape[1], sample_weight)
    used = shares > 0
    return float(shares[used] @ constant_losses(array, sample_weight)[used])


@dataclass(frozen=True, eq=False)
class CommonRows:
    """Rows on which routers, constants and the oracle are compared.

    Attributes
    ----------
    rows : (n_samples,) mask of these rows
    complete : whether every expert was asked in all of them; False if there are too few such rows:
        then all rows are taken, and means are over different ones
    asked : number of rows in which every expert was asked
    """

    rows: BoolArray
    complete: bool
    asked: int

    @property
    def left_out(self) -> int:
        """Number of rows that are not compared."""
        return int((~self.rows).sum())

    @property
    def sentence(self) -> str | None:
        """Which rows are left out, or that means are over different rows; None if neither holds."""
        total = len(self.rows)
        if not self.complete:
            return (
                f"only {self.asked:,} of {total:,} rows asked every expert: each mean is over the rows "
                f"that asked, which is fair only if it was left to chance who was asked."
            )
        if not self.left_out:
            return None
        verb = "is" if self.left_out == 1 else "are"
        return f"{self.left_out:,} of {total:,} rows {verb} left out: not every expert was asked there."


def common_rows(costs: ArrayLike, chosen: ArrayLike | None = None) -> CommonRows:
    """Rows in which every expert was asked, if they are 30 or half of all; all rows otherwise.

    Means over different rows are comparable only if experts were asked at random. Rows in which two
    routers' choices are known are not a substitute: on these the two agree too often. Experts that
    were asked nowhere are ignored, and rows of ``chosen`` (if given) that went to them are left out.

    Examples
    --------
    >>> found = common_rows([[0.0, 1.0], [1.0, 0.0], [0.0, np.nan]])
    >>> found.rows, found.sentence
    (array([ True,  True, False]), '1 of 3 rows is left out: not every expert was asked there.')
    """
    array = evaluated_costs(costs)
    known = ~np.isnan(array)
    full: BoolArray = np.asarray((known | ~known.any(axis=0)).all(axis=1))
    if chosen is not None:
        full &= ~np.isnan(chosen_costs(array, chosen))
    asked = int(full.sum())
    if asked >= FEWEST_UNITS or 2 * asked >= len(full):
        return CommonRows(full, True, asked)
    return CommonRows(np.ones(len(full), dtype=bool), False, asked)


def common_constant(costs: ArrayLike, sample_weight: ArrayLike | None = None) -> int:
    """The expert of least mean cost on the rows of ``common_rows``, ties to the lowest index.

    Examples
    --------
    >>> nan = np.nan
    >>> common_constant([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [nan, 0.0], [nan, 0.0]])
    0
    """
    array = evaluated_costs(costs)
    rows = common_rows(array).rows
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight is None or weight[rows].any():
        array, weight = array[rows], None if weight is None else weight[rows]
    return best_constant(array, weight).expert

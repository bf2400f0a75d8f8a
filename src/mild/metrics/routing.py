"""Metrics of a routing: losses with their references, shares, recall, and all of them together.

A routing is the choice of one expert for each row. ``costs`` are (n_samples, n_experts) with NaN where an
expert was never asked, ``chosen`` (n_samples,) expert indices, ``sample_weight`` (n_samples,) non-negative
numbers or None. ``best_i`` is the cheapest asked expert of row i, ties to the lowest index. A *constant*
always asks the same expert, and the *oracle* asks ``best_i``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.core.arrays import BoolArray, FloatArray, IntArray, as_python, check_labels, invalid
from mild.core.costs import ROUNDING, cheapest_known, mean_known_costs
from mild.errors import check_arguments
from mild.metrics.rows import evaluated_costs, known_rows, row_weights

Weights: TypeAlias = ArrayLike | None

#: A verdict needs at least this many independent rows, queries or groups.
FEWEST_GROUPS = 30


class BestConstant(NamedTuple):
    """The expert that is cheapest on average, and its mean cost."""

    expert: int
    cost: float


def chosen_costs(costs: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the cost of the chosen expert of each row, NaN where it was never asked.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices

    Returns
    -------
    (n_samples,) array

    Examples
    --------
    >>> chosen_costs([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0]], [0, 0, 1])
    array([0., 1., 0.])
    """
    array = evaluated_costs(costs)
    experts = check_labels(chosen, array.shape, "chosen")
    return array[np.arange(len(array)), experts].astype(np.float64, copy=False)


def deferral_loss(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: Weights = None, missing: str = "error"
) -> float:
    """Return the mean cost of the chosen experts, ``sum_i w_i * costs[i, chosen[i]] / sum_i w_i``.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional
    missing : "error" refuses rows that chose an expert that was never asked; "skip" leaves them out,
        which is unbiased only if costs and missingness are independent

    Returns
    -------
    the mean cost

    Examples
    --------
    >>> deferral_loss([[0.0, 1.0], [0.5, 0.25]], [0, 1])
    0.125
    >>> deferral_loss([[0.0, 1.0], [0.5, np.nan]], [1, 1], missing="skip")
    1.0
    """
    costs_of_choices = chosen_costs(costs, chosen)
    weights = row_weights(sample_weight, len(costs_of_choices))
    averaged = known_rows(costs_of_choices, missing)
    total_weight = float(weights[averaged].sum())
    if total_weight == 0:
        raise invalid(
            "sample_weight",
            "must be positive in at least one row whose chosen cost is known; got zeros only.",
        )
    return float(weights[averaged] @ costs_of_choices[averaged]) / total_weight


def balanced_deferral_loss(
    costs: ArrayLike,
    chosen: ArrayLike,
    sample_weight: Weights = None,
    best: IntArray | None = None,
) -> float:
    """Return the mean cost of the chosen experts, averaged so that each cheapest expert counts equally.

    The rows are grouped by their cheapest expert, and the mean over groups of the mean costs is
    ``mean_k of (sum_i w_i 1[best_i = k] costs[i, chosen_i] / sum_i w_i 1[best_i = k])``. Rows whose chosen
    expert was never asked are left out.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional
    best : (n_samples,) array of the cheapest experts; by default those of lowest index

    Returns
    -------
    the mean cost; NaN if no chosen cost is known

    Examples
    --------
    >>> balanced_deferral_loss([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0]], [0, 0, 1])
    0.25
    """
    array = evaluated_costs(costs)
    costs_of_choices = chosen_costs(array, chosen)
    is_unknown = np.isnan(costs_of_choices)
    weights = np.where(is_unknown, 0.0, row_weights(sample_weight, len(array)))
    if best is None:
        best = cheapest_known(array)
    group_weights = np.bincount(best, weights)
    group_costs = np.bincount(best, weights * np.nan_to_num(costs_of_choices))
    has_rows = group_weights > 0
    if not has_rows.any():
        return float("nan")
    return float(np.mean(group_costs[has_rows] / group_weights[has_rows]))


def constant_losses(costs: ArrayLike, sample_weight: Weights = None) -> FloatArray:
    """Return the mean cost of always asking expert k, for every k, over the rows on which k was asked.

    ``L_k = sum_i w_i c_ik / sum_i w_i`` over i with known ``c_ik``; NaN for an expert never asked.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    sample_weight : (n_samples,) array of non-negative numbers, optional

    Returns
    -------
    (n_experts,) array

    Examples
    --------
    >>> constant_losses([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0]])
    array([0.66666667, 0.5       ])
    """
    array = evaluated_costs(costs)
    return mean_known_costs(array, row_weights(sample_weight, len(array)))


@check_arguments
def best_constant(
    costs: ArrayLike, sample_weight: Weights = None, ranks: ArrayLike | None = None
) -> BestConstant:
    """Return the expert of least mean cost, ``argmin_k constant_losses_k``, ties to the lowest index.

    With NaN costs, experts asked about easier rows look better than they are: see ``common_rows``.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    sample_weight : (n_samples,) array of non-negative numbers, optional
    ranks : (n_experts,) array; of experts with equal means, that of the lowest rank is taken

    Returns
    -------
    BestConstant: index and mean cost

    Examples
    --------
    >>> best_constant([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0]])
    BestConstant(expert=1, cost=0.5)
    """
    losses = constant_losses(costs, sample_weight)
    # Means that differ by rounding tie: which is less would depend on the processor.
    expert = int(cheapest_known(losses[None], ranks=ranks, tolerance=ROUNDING)[0])
    return BestConstant(expert, float(losses[expert]))


def oracle_loss(costs: ArrayLike, sample_weight: Weights = None) -> float:
    """Return the mean cost of the cheapest asked expert, ``sum_i w_i min_k c_ik / sum_i w_i``.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    sample_weight : (n_samples,) array of non-negative numbers, optional

    Returns
    -------
    the mean cost

    Examples
    --------
    >>> oracle_loss([[0.0, 1.0], [1.0, 0.5]])
    0.25
    """
    array = evaluated_costs(costs)
    weights = row_weights(sample_weight, len(array))
    lowest = np.nanmin(array, axis=1).astype(np.float64, copy=False)
    return float(weights @ lowest / weights.sum())


def shuffled_control(costs: ArrayLike, chosen: ArrayLike, sample_weight: Weights = None) -> float:
    """Return the expected cost of the same choices assigned to the rows at random.

    ``sum_k share_k * constant_losses_k``, the exact expectation over all shuffles. A router that does
    no better has learned how often to ask each expert but not when. NaN if an expert that was chosen
    was never asked in any row.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional

    Returns
    -------
    the expected mean cost

    Examples
    --------
    >>> shuffled_control([[0, 1], [1, 0]], [0, 1])
    0.5
    """
    array = evaluated_costs(costs)
    experts = check_labels(chosen, array.shape, "chosen")
    shares = expert_shares(experts, array.shape[1], sample_weight)
    used = shares > 0
    return float(shares[used] @ constant_losses(array, sample_weight)[used])


def expert_shares(chosen: ArrayLike, n_experts: int, sample_weight: Weights = None) -> FloatArray:
    """Return the share of the rows that each expert gets, ``sum_i w_i 1[chosen_i = k] / sum_i w_i``.

    Parameters
    ----------
    chosen : (n_samples,) array of expert indices
    n_experts : number of experts
    sample_weight : (n_samples,) array of non-negative numbers, optional

    Returns
    -------
    (n_experts,) array that sums to 1

    Examples
    --------
    >>> expert_shares([0, 0, 1, 0], 2)
    array([0.75, 0.25])
    """
    n_samples = np.size(chosen)
    if n_samples == 0:
        raise invalid("chosen", "must have at least one row to average over; got 0.")
    experts = check_labels(chosen, (n_samples, n_experts), "chosen")
    weights = row_weights(sample_weight, n_samples)
    return np.bincount(experts, weights, minlength=n_experts) / weights.sum()


def oracle_shares(costs: ArrayLike, sample_weight: Weights = None) -> FloatArray:
    """Return the share of the rows on which each expert is the cheapest asked one.

    Ties go to the lowest index.

    Where many rows tie, these shares depend on the order of the experts: list the preferred first.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    sample_weight : (n_samples,) array of non-negative numbers, optional

    Returns
    -------
    (n_experts,) array that sums to 1

    Examples
    --------
    >>> oracle_shares([[0, 1], [1, 0], [1, 0], [1, 0]])
    array([0.25, 0.75])
    """
    array = evaluated_costs(costs)
    return expert_shares(cheapest_known(array), array.shape[1], sample_weight)


def expert_recall(
    costs: ArrayLike,
    chosen: ArrayLike,
    sample_weight: Weights = None,
    best: IntArray | None = None,
) -> FloatArray:
    """Return, for every expert, the share of the rows on which it is cheapest that were sent to it.

    ``recall_k = sum_i w_i 1[best_i = k] 1[chosen_i = k] / sum_i w_i 1[best_i = k]``. NaN for an expert
    that is never cheapest. A choice that ties with the cheapest counts as a miss.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional
    best : (n_samples,) array of the cheapest experts; by default those of lowest index

    Returns
    -------
    (n_experts,) array

    Examples
    --------
    >>> expert_recall([[0, 1, 2], [0, 1, 2], [1, 0, 2]], [0, 1, 1])
    array([0.5, 1. , nan])
    """
    array = evaluated_costs(costs)
    n_samples, n_experts = array.shape
    experts = check_labels(chosen, (n_samples, n_experts), "chosen")
    weights = row_weights(sample_weight, n_samples)
    if best is None:
        best = cheapest_known(array)
    mass = np.bincount(best, weights, minlength=n_experts)
    hits = np.bincount(best, weights * (best == experts), minlength=n_experts)
    return np.divide(hits, mass, out=np.full(n_experts, np.nan), where=mass > 0)


def balanced_recall(costs: ArrayLike, chosen: ArrayLike, sample_weight: Weights = None) -> float:
    """Return the mean of ``expert_recall`` over the experts that are cheapest somewhere.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional

    Returns
    -------
    share in [0, 1]

    Examples
    --------
    >>> balanced_recall([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0]], [0, 0, 1])
    0.75
    """
    return float(np.nanmean(expert_recall(costs, chosen, sample_weight)))


@dataclass(frozen=True, eq=False)
class CommonRows:
    """Rows on which routers, constants and the oracle are compared.

    Attributes
    ----------
    rows : (n_samples,) boolean array, True for these rows
    complete : whether every expert was asked in all of them; False if there are too few such rows, so
        that all rows are compared, and the mean of each expert is over other ones
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
        """A remark for users if rows are left out, or means are over different rows; otherwise None."""
        total = len(self.rows)
        if not self.complete:
            return (
                f"every expert was asked in only {self.asked:,} of {total:,} rows: each mean is over the "
                "rows in which the expert was asked, which is fair only if experts were asked at random."
            )
        if not self.left_out:
            return None
        verb = "is" if self.left_out == 1 else "are"
        return f"{self.left_out:,} of {total:,} rows {verb} left out because not every expert was asked."


def common_rows(costs: ArrayLike, chosen: ArrayLike | None = None) -> CommonRows:
    """Return the rows in which every expert was asked, if they are 30 or half of all, otherwise all rows.

    Means over different rows are comparable only if experts were asked at random. Experts that were
    asked in no row are ignored; with ``chosen`` (n_samples,), rows that chose them are left out.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices, optional

    Returns
    -------
    CommonRows

    Examples
    --------
    >>> common = common_rows([[0.0, 1.0], [1.0, 0.0], [0.0, np.nan]])
    >>> common.rows, common.sentence
    (array([ True,  True, False]), '1 of 3 rows is left out because not every expert was asked.')
    """
    array = evaluated_costs(costs)
    is_known = ~np.isnan(array)
    never_asked = ~is_known.any(axis=0)
    is_complete: BoolArray = np.asarray((is_known | never_asked).all(axis=1))
    if chosen is not None:
        is_complete &= ~np.isnan(chosen_costs(array, chosen))
    n_complete = int(is_complete.sum())
    if n_complete >= FEWEST_GROUPS or 2 * n_complete >= len(is_complete):
        return CommonRows(is_complete, True, n_complete)
    return CommonRows(np.ones(len(is_complete), dtype=bool), False, n_complete)


@check_arguments
def common_constant(
    costs: ArrayLike, sample_weight: Weights = None, ranks: ArrayLike | None = None
) -> int:
    """Return the expert of least mean cost on the rows of ``common_rows``, ties as in ``best_constant``.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    sample_weight : (n_samples,) array of non-negative numbers, optional
    ranks : (n_experts,) array; of experts with equal means, that of the lowest rank is taken

    Returns
    -------
    index of the expert

    Examples
    --------
    >>> common_constant([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0]])
    1
    """
    array = evaluated_costs(costs)
    weights = _unchecked_weights(sample_weight, len(array))
    rows = common_rows(array).rows
    if not weights[rows].any():
        # All weight is on the other rows.
        return best_constant(array, weights, ranks).expert
    return best_constant(array[rows], weights[rows], ranks).expert


def _unchecked_weights(sample_weight: Weights, n_samples: int) -> NDArray[Any]:
    """Return the weights (n_samples,) that can be indexed but are not checked; None stands for ones."""
    if sample_weight is None:
        return np.ones(n_samples)
    return np.asarray(sample_weight)


@dataclass(frozen=True, eq=False)
class RoutingSummary:
    """Losses, shares and recall of a routing on the rows of ``common_rows``.

    Attributes
    ----------
    n_samples : number of rows
    n_known : number of compared rows in which the cost of the choice is known
    loss : deferral loss, the mean over these
    shares, oracle_shares, recall : (n_experts,) as ``expert_shares``, ``oracle_shares``, ``expert_recall``
    balanced_recall : as the function of this name
    constant_expert, constant_loss : best constant and its mean cost
    oracle_loss : mean cost of the cheapest expert of each row
    headroom : ``constant_loss - oracle_loss``
    headroom_captured : ``(constant_loss - loss) / headroom``; 0 for the best constant, 1 for the oracle;
        NaN if there is no headroom, and if the three are means over different rows
    shuffled_control : expected cost of the same choices assigned to rows at random
    """

    n_samples: int
    n_known: int
    loss: float
    shares: FloatArray
    oracle_shares: FloatArray
    recall: FloatArray
    balanced_recall: float
    constant_expert: int
    constant_loss: float
    oracle_loss: float
    headroom: float
    headroom_captured: float
    shuffled_control: float

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON; NaN becomes None."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dict(as_python(fields, finite=True))


def summary(
    costs: ArrayLike, chosen: ArrayLike, sample_weight: Weights = None, missing: str = "error"
) -> RoutingSummary:
    """Return all metrics of a routing that need only costs and choices.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked. ``common_rows`` decides
        whether rows are left out in which an expert other than the chosen one was not asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional
    missing : "error" refuses rows that chose an expert that was never asked; "skip" leaves them out

    Returns
    -------
    RoutingSummary

    Examples
    --------
    >>> result = summary([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.5]], [0, 0, 1, 0])
    >>> result.loss, result.constant_loss, result.oracle_loss, round(result.headroom_captured, 3)
    (0.25, 0.5, 0.125, 0.667)
    """
    all_costs = evaluated_costs(costs)
    all_choices = check_labels(chosen, all_costs.shape, "chosen")
    # Called for its error: with missing="error" every chosen cost must be known.
    known_rows(chosen_costs(all_costs, all_choices), missing)
    common = common_rows(all_costs, all_choices)
    compared_costs = all_costs[common.rows]
    choices = all_choices[common.rows]
    weights = _unchecked_weights(sample_weight, len(all_costs))[common.rows]
    loss = deferral_loss(compared_costs, choices, weights, missing)
    shares = expert_shares(choices, compared_costs.shape[1], weights)
    recall = expert_recall(compared_costs, choices, weights)
    constant = best_constant(compared_costs, weights)
    oracle = oracle_loss(compared_costs, weights)
    headroom = constant.cost - oracle
    headroom_captured = np.nan
    # A gap of rounding size is no headroom.
    if headroom > 1e-12 * constant.cost and common.complete:
        headroom_captured = (constant.cost - loss) / headroom
    return RoutingSummary(
        n_samples=len(all_costs),
        n_known=int((~np.isnan(chosen_costs(compared_costs, choices))).sum()),
        loss=loss,
        shares=shares,
        oracle_shares=oracle_shares(compared_costs, weights),
        recall=recall,
        balanced_recall=float(np.nanmean(recall)),
        constant_expert=constant.expert,
        constant_loss=constant.cost,
        oracle_loss=oracle,
        headroom=headroom,
        headroom_captured=headroom_captured,
        shuffled_control=shuffled_control(compared_costs, choices, weights),
    )

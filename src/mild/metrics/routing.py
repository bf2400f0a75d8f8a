"""Metrics of a routing: losses with their references, shares, recall, and all of them together.

``costs`` are (n_samples, n_experts) with NaN where an expert was never asked, ``chosen`` (n_samples,)
expert indices, ``sample_weight`` (n_samples,) non-negative numbers or None. ``best_i`` is the cheapest
asked expert of row i, ties to the lowest index.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.core.arrays import BoolArray, FloatArray, IntArray, as_python, check_labels, invalid
from mild.core.costs import ROUNDING, cheapest_of, mean_known_costs
from mild.errors import check_arguments
from mild.metrics.rows import evaluated_costs, known_rows, number_vector, row_weights

Weights: TypeAlias = ArrayLike | None

#: A verdict needs at least this many independent rows, queries or groups.
FEWEST_GROUPS = 30


class BestConstant(NamedTuple):
    """The expert that is cheapest on average, and its mean cost."""

    expert: int
    cost: float


def chosen_costs(costs: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """``costs[i, chosen[i]]``: (n_samples,) float64, NaN where the chosen expert was never asked.

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
    """Mean cost of the chosen experts: ``sum_i w_i * costs[i, chosen[i]] / sum_i w_i``.

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
    costs: ArrayLike,
    chosen: ArrayLike,
    sample_weight: Weights = None,
    best: IntArray | None = None,
) -> float:
    """Deferral loss averaged per cheapest expert, so that each of these experts counts equally.

    ``mean over k of sum_i w_i 1[best_i = k] costs[i, chosen_i] / sum_i w_i 1[best_i = k]``. Rows that
    chose an expert never asked are left out; NaN if no chosen cost is known. ``best`` (n_samples,) is the
    cheapest expert, by default the one of lowest index.

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
        best = cheapest_of(array)
    mass = np.bincount(best, weights)
    total = np.bincount(best, weights * np.nan_to_num(costs_of_choices))
    used = mass > 0
    if not used.any():
        return float("nan")
    return float(np.mean(total[used] / mass[used]))


def constant_losses(costs: ArrayLike, sample_weight: Weights = None) -> FloatArray:
    """Mean cost (n_experts,) of always asking expert k, over the rows on which k was asked.

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
    """The expert of least mean cost, ``argmin_k constant_losses_k``, ties to the lowest index.

    With NaN costs, experts asked about easier rows look better than they are: see ``common_constant``.

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
    expert = int(cheapest_of(losses[None], ranks=ranks, tolerance=ROUNDING)[0])
    return BestConstant(expert, float(losses[expert]))


def oracle_loss(costs: ArrayLike, sample_weight: Weights = None) -> float:
    """Mean cost of the cheapest asked expert of each row: ``sum_i w_i min_k c_ik / sum_i w_i``.

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
    """Expected cost of the same choices assigned to the rows at random.

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
    """(n_experts,) shares of the rows: ``share_k = sum_i w_i 1[chosen_i = k] / sum_i w_i``.

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
    """Share of the rows on which each expert is the cheapest asked one, ties to the lowest index.

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
    return expert_shares(cheapest_of(array), array.shape[1], sample_weight)


def share_entropy(shares: ArrayLike) -> float:
    """``-sum_k s_k log s_k / log(n_experts)``: 0 if one expert gets everything, 1 for an even split.

    Parameters
    ----------
    shares : (n_experts,) array that sums to 1

    Returns
    -------
    number in [0, 1]

    Examples
    --------
    >>> share_entropy([0.5, 0.5])
    1.0
    """
    s = number_vector("shares", shares)
    if len(s) == 0 or (s < 0).any() or abs(s.sum() - 1) > 1e-6:
        raise invalid("shares", f"must be non-negative and sum to 1; got {s.tolist()}.")
    used = s[s > 0]
    if len(used) == 1:
        return 0.0
    return -float(used @ np.log(used)) / float(np.log(len(s)))


def expert_recall(
    costs: ArrayLike,
    chosen: ArrayLike,
    sample_weight: Weights = None,
    best: IntArray | None = None,
) -> FloatArray:
    """Of the rows on which expert k is cheapest, the share that was sent to k; (n_experts,).

    ``recall_k = sum_i w_i 1[best_i = k] 1[chosen_i = k] / sum_i w_i 1[best_i = k]``. NaN for an expert
    that is never cheapest. A choice that ties with the cheapest counts as a miss. ``best`` (n_samples,)
    is the cheapest expert, by default the one of lowest index.

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
        best = cheapest_of(array)
    mass = np.bincount(best, weights, minlength=n_experts)
    hits = np.bincount(best, weights * (best == experts), minlength=n_experts)
    return np.divide(hits, mass, out=np.full(n_experts, np.nan), where=mass > 0)


def balanced_recall(costs: ArrayLike, chosen: ArrayLike, sample_weight: Weights = None) -> float:
    """Mean of ``expert_recall`` over the experts that are cheapest somewhere.

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


def worst_recall(costs: ArrayLike, chosen: ArrayLike, sample_weight: Weights = None) -> float:
    """Least of ``expert_recall`` over the experts that are cheapest somewhere: ``min_k recall_k``.

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
    >>> worst_recall([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0]], [0, 0, 1])
    0.5
    """
    return float(np.nanmin(expert_recall(costs, chosen, sample_weight)))


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
                f"every expert was asked in only {self.asked:,} of {total:,} rows: each mean is over the "
                "rows in which the expert was asked, which is fair only if experts were asked at random."
            )
        if not self.left_out:
            return None
        verb = "is" if self.left_out == 1 else "are"
        return f"{self.left_out:,} of {total:,} rows {verb} left out because not every expert was asked."


def common_rows(costs: ArrayLike, chosen: ArrayLike | None = None) -> CommonRows:
    """Rows in which every expert was asked, if they are 30 or half of all; all rows otherwise.

    Means over different rows are comparable only if experts were asked at random. Experts that were
    asked nowhere are ignored, and rows of ``chosen`` (if given) that went to them are left out.

    Examples
    --------
    >>> found = common_rows([[0.0, 1.0], [1.0, 0.0], [0.0, np.nan]])
    >>> found.rows, found.sentence
    (array([ True,  True, False]), '1 of 3 rows is left out because not every expert was asked.')
    """
    array = evaluated_costs(costs)
    known = ~np.isnan(array)
    full: BoolArray = np.asarray((known | ~known.any(axis=0)).all(axis=1))
    if chosen is not None:
        full &= ~np.isnan(chosen_costs(array, chosen))
    asked = int(full.sum())
    if asked >= FEWEST_GROUPS or 2 * asked >= len(full):
        return CommonRows(full, True, asked)
    return CommonRows(np.ones(len(full), dtype=bool), False, asked)


@check_arguments
def common_constant(
    costs: ArrayLike, sample_weight: Weights = None, ranks: ArrayLike | None = None
) -> int:
    """The expert of least mean cost on the rows of ``common_rows``, ties as in ``best_constant``.

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
    weights = _given_or_equal_weights(sample_weight, len(array))
    rows = common_rows(array).rows
    if not weights[rows].any():
        # All weight is on the other rows.
        return best_constant(array, weights, ranks).expert
    return best_constant(array[rows], weights[rows], ranks).expert


def _given_or_equal_weights(sample_weight: Weights, n_samples: int) -> NDArray[Any]:
    """Weights (n_samples,) as they were given, not yet checked; ones if none were."""
    if sample_weight is None:
        return np.ones(n_samples)
    return np.asarray(sample_weight)


@dataclass(frozen=True, eq=False)
class RoutingSummary:
    """Losses, shares and recall of a routing on the rows of ``common_rows``.

    Attributes
    ----------
    n_samples, n_known : rows, and compared rows in which the cost of the choice is known
    loss : deferral loss, the mean over the latter
    shares, oracle_shares, recall : (n_experts,) as the functions of these names
    entropy : entropy of the shares, 1 for an even split
    constant_expert, constant_loss : best constant and its mean cost
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
    entropy: float
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
    """Compute all metrics of a routing that need only costs and choices.

    Parameters are those of ``deferral_loss``. Rows that lack another expert than the chosen one are left
    out according to ``common_rows``.

    Examples
    --------
    >>> result = summary([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.5]], [0, 0, 1, 0])
    >>> result.loss, result.constant_loss, result.oracle_loss, round(result.headroom_captured, 3)
    (0.25, 0.5, 0.125, 0.667)
    """
    all_costs = evaluated_costs(costs)
    all_experts = check_labels(chosen, all_costs.shape, "chosen")
    known_rows(chosen_costs(all_costs, all_experts), missing)
    common = common_rows(all_costs, all_experts)
    array = all_costs[common.rows]
    experts = all_experts[common.rows]
    weights = _given_or_equal_weights(sample_weight, len(all_costs))[common.rows]
    loss = deferral_loss(array, experts, weights, missing)
    shares = expert_shares(experts, array.shape[1], weights)
    recall = expert_recall(array, experts, weights)
    constant = best_constant(array, weights)
    oracle = oracle_loss(array, weights)
    headroom = constant.cost - oracle
    headroom_captured = np.nan
    # A gap of rounding size is no headroom.
    if headroom > 1e-12 * constant.cost and common.complete:
        headroom_captured = (constant.cost - loss) / headroom
    return RoutingSummary(
        n_samples=len(all_costs),
        n_known=int((~np.isnan(chosen_costs(array, experts))).sum()),
        loss=loss,
        shares=shares,
        oracle_shares=oracle_shares(array, weights),
        recall=recall,
        balanced_recall=float(np.nanmean(recall)),
        entropy=share_entropy(shares),
        constant_expert=constant.expert,
        constant_loss=constant.cost,
        oracle_loss=oracle,
        headroom=headroom,
        headroom_captured=headroom_captured,
        shuffled_control=shuffled_control(array, experts, weights),
    )

"""All metrics of one routing that need only costs and choices."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, check_choices
from mild.metrics.loss import (
    best_constant,
    chosen_costs,
    common_rows,
    deferral_loss,
    oracle_loss,
    shuffled_control,
)
from mild.metrics.rows import evaluated_costs, known_rows
from mild.metrics.shares import expert_recall, expert_shares, oracle_shares, share_entropy

__all__ = ["RoutingSummary", "summary"]


@dataclass(frozen=True, eq=False)
class RoutingSummary:
    """Losses, shares and recall of a routing on the rows of ``common_rows``.

    Attributes
    ----------
    n_samples : number of rows
    n_known : compared rows in which the cost of the choice is known; ``loss`` is their mean
    loss : deferral loss
    shares, oracle_shares : (n_experts,) share of rows for each expert: router's, oracle's
    recall : (n_experts,) share of the rows on which k is cheapest that went to k; NaN if none
    balanced_recall : mean recall over the experts that are cheapest somewhere
    entropy : entropy of the shares, 1 for an even split
    constant_expert, constant_loss : best constant and its mean cost
    oracle_loss : mean cost of the cheapest expert of each row
    headroom : ``constant_loss - oracle_loss``
    headroom_captured : ``(constant_loss - loss) / headroom``; 0 for the best constant, 1 for
        the oracle, negative for a router worse than the constant; NaN if there is no headroom,
        and if the three are means over different rows
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
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


def summary(
    costs: ArrayLike,
    chosen: ArrayLike,
    sample_weight: ArrayLike | None = None,
    missing: str = "error",
) -> RoutingSummary:
    """Compute all metrics of a routing that need only costs and choices.

    Parameters
    ----------
    costs : (n_samples, n_experts) array; NaN where an expert was never asked
    chosen : (n_samples,) array of expert indices
    sample_weight : (n_samples,) array of non-negative numbers, optional
    missing : "error" or "skip"
        Refuse rows that chose an expert that was never asked, or leave them out. Rows that lack
        another expert are left out according to ``common_rows``.

    Examples
    --------
    >>> result = summary([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.5]], [0, 0, 1, 0])
    >>> result.loss, result.constant_loss, result.oracle_loss
    (0.25, 0.5, 0.125)
    >>> round(result.headroom_captured, 3), result.shuffled_control
    (0.667, 0.53125)
    """
    whole = evaluated_costs(costs)
    experts = check_choices(chosen, *whole.shape)
    known_rows(chosen_costs(whole, experts), missing)
    common = common_rows(whole, experts)
    array, experts = whole[common.rows], experts[common.rows]
    weight = None if sample_weight is None else np.asarray(sample_weight)[common.rows]
    loss = deferral_loss(array, experts, weight, missing)
    shares = expert_shares(experts, array.shape[1], weight)
    recall = expert_recall(array, experts, weight)
    constant = best_constant(array, weight)
    oracle = oracle_loss(array, weight)
    gap = constant.cost - oracle
    # A gap of rounding size is no headroom.
    comparable = gap > 1e-12 * constant.cost and common.complete
    return RoutingSummary(
        n_samples=len(whole),
        n_known=int((~np.isnan(chosen_costs(array, experts))).sum()),
        loss=loss,
        shares=shares,
        oracle_shares=oracle_shares(array, weight),
        recall=recall,
        balanced_recall=float(np.nanmean(recall)),
        entropy=share_entropy(shares),
        constant_expert=constant.expert,
        constant_loss=constant.cost,
        oracle_loss=oracle,
        headroom=gap,
        headroom_captured=(constant.cost - loss) / gap if comparable else np.nan,
        shuffled_control=shuffled_control(array, experts, weight),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value.tolist()]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value

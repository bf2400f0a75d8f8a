"""Who decides each row: thresholds for a share, limits per expert, and answers that are missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray, check_number, invalid
from mild.policies import DeferralValues
from mild.policies.deferral import LARGEST_VALUE

#: The classifier decides.
KEPT = -1


def choose_experts(
    values: DeferralValues,
    threshold: float,
    has_answer: BoolArray | None = None,
    capacity: IntArray | None = None,
) -> IntArray:
    """Return the expert (n,) to ask about each row, or KEPT.

    It is the expert of the largest value, if this exceeds the classifier's by more than the threshold.

    Parameters
    ----------
    values : DeferralValues
        Values of the classifier (n,) and of the experts (n, p).
    threshold : float
    has_answer : (n, p) array, or None
        Which experts can be asked; None for all.
    capacity : (p,) array, or None
        How many rows each expert can take; None for any number. Rows with the most to gain come first; a
        row whose best expert can take no more goes to the next best one.
    """
    expert_values = values.experts
    if has_answer is not None:
        expert_values = np.where(has_answer, expert_values, -np.inf)
    model_values = values.model + threshold
    if capacity is None:
        best = expert_values.argmax(axis=1)
        is_better = expert_values.max(axis=1) > model_values
        return np.where(is_better, best, KEPT)
    return _choose_within_capacity(expert_values - model_values[:, None], capacity)


def _choose_within_capacity(gains: FloatArray, capacity: IntArray) -> IntArray:
    """Return the expert (n,) of each row, or KEPT, with at most ``capacity[j]`` rows for expert j.

    Pairs of a row and an expert are taken greedily, by their gain (n, p).
    """
    n_experts = gains.shape[1]
    capacity_left = capacity.copy()
    chosen = np.full(len(gains), KEPT)
    pairs_by_gain = np.argsort(-gains, axis=None, kind="stable")
    for pair in pairs_by_gain:
        row, expert = divmod(int(pair), n_experts)
        if gains[row, expert] <= 0:
            break
        if chosen[row] == KEPT and capacity_left[expert] > 0:
            chosen[row] = expert
            capacity_left[expert] -= 1
    return chosen


def threshold_for_share(margin: FloatArray, share: float) -> float:
    """Return the least threshold >= 0 that at most this share of the margins (n,) exceeds.

    It is 0, or lies halfway between two margins, so that rounding decides nothing. Rows of the same margin
    are deferred together.
    """
    if share == 0:
        return LARGEST_VALUE
    max_deferred = int(share * len(margin))
    positive_margins = np.sort(margin[margin > 0])[::-1]
    if len(positive_margins) <= max_deferred:
        return 0.0
    n_deferred = max_deferred
    # Fewer rows are deferred where the threshold would divide rows of the same margin.
    while n_deferred > 0 and positive_margins[n_deferred - 1] == positive_margins[n_deferred]:
        n_deferred -= 1
    if n_deferred == 0:
        return float(2 * positive_margins[0])
    return float(positive_margins[n_deferred - 1] + positive_margins[n_deferred]) / 2


def check_max_deferred(max_deferred: Any) -> None:
    """Refuse a limit that is neither None nor a share."""
    if max_deferred is not None:
        check_number("max_deferred", max_deferred, "lie in [0, 1]")


def capacity_vector(capacity: Any, n_experts: int) -> IntArray | None:
    """Return the largest number of rows (p,) for each expert; one number is for each of them."""
    if capacity is None:
        return None
    numbers = np.asarray(capacity)
    if numbers.ndim == 0:
        numbers = np.full(n_experts, numbers)
    are_integers = numbers.dtype.kind in "iu" and numbers.shape == (n_experts,)
    if not are_integers or (numbers < 0).any():
        raise invalid(
            "capacity",
            f"must be a non-negative integer, or one for each of the {n_experts} experts; "
            f"got {capacity!r}.",
        )
    return numbers.astype(np.intp)

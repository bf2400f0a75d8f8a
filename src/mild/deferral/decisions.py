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
    """Expert (n,) of the largest value that exceeds the model's by more than the threshold, or KEPT.

    Only experts that have an answer are asked, if ``has_answer`` (n, p) is given. With a ``capacity`` (p,),
    rows with the most to gain come first; a row whose expert has none left goes to the next best.
    """
    expert_values = values.experts
    if has_answer is not None:
        expert_values = np.where(has_answer, expert_values, -np.inf)
    model_values = values.model + threshold
    if capacity is None:
        best = expert_values.argmax(axis=1)
        is_better = expert_values.max(axis=1) > model_values
        return np.where(is_better, best, KEPT)
    return _choose_within(expert_values - model_values[:, None], capacity)


def _choose_within(gains: FloatArray, capacity: IntArray) -> IntArray:
    """Expert (n,) of each row, at most ``capacity[j]`` rows for expert j, the largest gains first."""
    n_experts = gains.shape[1]
    left = capacity.copy()
    chosen = np.full(len(gains), KEPT)
    by_gain = np.argsort(-gains, axis=None, kind="stable")
    for place in by_gain:
        row, expert = divmod(int(place), n_experts)
        if gains[row, expert] <= 0:
            break
        if chosen[row] == KEPT and left[expert] > 0:
            chosen[row] = expert
            left[expert] -= 1
    return chosen


def threshold_for_share(margin: FloatArray, share: float) -> float:
    """Least threshold >= 0 under which at most this share of margins (n,) lies above.

    It is 0, or lies halfway between two margins, so that rounding decides nothing. Rows of the same margin
    are deferred together.
    """
    if share == 0:
        return LARGEST_VALUE
    most = int(share * len(margin))
    positive = np.sort(margin[margin > 0])[::-1]
    if len(positive) <= most:
        return 0.0
    last = most
    while last > 0 and positive[last - 1] == positive[last]:
        last -= 1
    if last == 0:
        return float(2 * positive[0])
    return float(positive[last - 1] + positive[last]) / 2


def check_max_deferred(max_deferred: Any) -> None:
    """Refuse a limit that is no share."""
    if max_deferred is not None:
        check_number("max_deferred", max_deferred, "lie in [0, 1]")


def capacity_vector(capacity: Any, n_experts: int) -> IntArray | None:
    """Most rows (p,) for each expert; one number is for each of them."""
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

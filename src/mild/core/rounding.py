"""Comparisons that do not depend on the last digits of computed numbers.

Processors add and multiply in different orders, so numbers that are equal by definition differ in their
last digits: distances to copies of a text, mean costs of two candidates with the same choices, estimates
for two experts with the same outcomes. A comparison that decides something takes such numbers as equal and
goes by a fixed order instead.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import IntArray

#: Relative differences that are rounding, of means and sums of outcomes, which are exact to some 15 digits.
OUTCOME_TOLERANCE = 1e-9
#: The same of estimates that were learned from features in single precision.
ESTIMATE_TOLERANCE = 16 * float(np.finfo(np.float32).eps)
# Units in the last place by which sums of a few thousand numbers differ.
UNITS = 16


def is_less(value: float, other: float, tolerance: float = OUTCOME_TOLERANCE) -> bool:
    """Whether a number is less than another one by more than rounding.

    >>> is_less(0.1, 0.2), is_less(0.1, 0.1 + 1e-16)
    (True, False)
    """
    if math.isinf(value) or math.isinf(other):
        return bool(value < other)
    return bool(value < other - tolerance * max(abs(value), abs(other)))


def tie_ranks(
    values: ArrayLike, tolerance: float = OUTCOME_TOLERANCE, scale: float = 0.0
) -> IntArray:
    """Rank (n,) of each of the values (n,), from 0; values that differ by rounding share a rank.

    NaN comes last. Neighbours in ascending order share a rank if they differ by at most ``tolerance`` times
    the larger of their sizes, or by a few units in the last place of the largest value. ``scale`` is the
    size of what was added up, where the values are sums whose terms cancel.

    >>> tie_ranks([0.3, 0.1, 0.1 + 1e-16, 0.2])
    array([2, 0, 0, 1])
    """
    array = np.asarray(values, dtype=np.float64)
    order = np.argsort(array, kind="stable")
    ordered = array[order]
    sizes = np.abs(ordered)
    largest = max(scale, sizes[np.isfinite(sizes)].max(initial=0.0))
    slack = (
        tolerance * np.maximum(sizes[1:], sizes[:-1]) + UNITS * np.finfo(np.float64).eps * largest
    )
    are_finite = np.isfinite(ordered[1:]) & np.isfinite(ordered[:-1])
    with np.errstate(invalid="ignore"):
        is_close = are_finite & (np.diff(ordered) <= slack)
    is_tied = is_close | (ordered[1:] == ordered[:-1])
    # A value that does not tie with the one before it begins a new rank. Of no values there are no ranks.
    ordered_ranks = np.concatenate([[0], np.cumsum(~is_tied)])[: array.size]
    ranks = np.empty(array.size, np.intp)
    ranks[order] = ordered_ranks
    return ranks


def first_smallest(values: ArrayLike, tolerance: float = OUTCOME_TOLERANCE) -> int:
    """Index of the first of the values (n,) that equal the least one up to rounding.

    >>> first_smallest([0.3, 0.1 + 1e-16, 0.1])
    1
    """
    return int(np.argmin(tie_ranks(values, tolerance)))

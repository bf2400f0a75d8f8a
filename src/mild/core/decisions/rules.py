"""Decision rules: argmax, and the stationary distribution in blocks of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mild.core.arrays import FloatArray, IntArray, check_margins, check_scores
from mild.core.decisions.anchors import Anchors, anchors
from mild.core.decisions.chain import anchored_distribution, stationary_experts_first
from mild.core.margins import MarginGroup, margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import UnsupportedError, check_option

__all__ = [
    "DECISIONS",
    "argmax_last",
    "argmax_last_experts_first",
    "decide",
    "deciding_anchors",
    "rows_at_once",
    "stationary_choice",
    "stationary_distribution",
]

DECISIONS = ("stationary", "argmax")
UNDECODABLE = (
    "stationary decoding needs a surrogate whose minimiser determines a distribution: not the "
    "hinge, nor tau >= 2. Use rule='argmax'."
)

# Rows per block in batch decoding, so that the working set stays in cache.
BLOCK = 8192
# Rates that are held at a time.
RATES = 4_000_000
# From this many samples on, argmax compares whole rows.
LONG = 2048
# Anchors are faster from MANY margins on, if there are at most WORTH times as many anchors.
MANY = 28
WORTH = 0.5


def argmax_last(values: FloatArray) -> IntArray:
    """Index of the largest entry per row, ties to the highest index (the paper's rule).

    Examples
    --------
    >>> argmax_last(np.array([[1.0, 3.0, 3.0]]))
    array([2])
    """
    return values.shape[1] - 1 - np.argmax(values[:, ::-1], axis=1)


def argmax_last_experts_first(values: FloatArray) -> IntArray:
    """``argmax_last`` of values stored experts first, (p, m)."""
    if values.shape[1] < LONG:
        return len(values) - 1 - np.argmax(values[::-1], axis=0)
    best = values[0].copy()
    index = np.zeros(values.shape[1], np.intp)
    for k in range(1, len(values)):
        np.copyto(index, k, where=values[k] >= best)
        np.maximum(best, values[k], out=best)
    return index


def decide(
    scores: ArrayLike,
    margins: ArrayLike | None = None,
    rule: str = "stationary",
    surrogate: object = "logistic",
) -> IntArray:
    """Expert of each row, ties to the highest index.

    Parameters
    ----------
    scores : (n_samples, n_experts) array
    margins : (n_experts,) margins the scores were trained with; None for all equal
    rule : "stationary" (consistent) or "argmax" (the paper's)
    surrogate : the surrogate the scores were trained with

    Examples
    --------
    The exact minimiser for rewards (0.55, 0.45) and margins (2/3, 1/3): argmax picks the wrong
    expert.

    >>> decide([[-0.2036, 0.0]], [2 / 3, 1 / 3], rule="argmax")
    array([1])
    >>> decide([[-0.2036, 0.0]], [2 / 3, 1 / 3])
    array([0])
    """
    check_option("rule", rule, DECISIONS)
    f = check_scores(scores)
    rho = check_margins(margins, f.shape[1])
    kind = parse_surrogate(surrogate)
    if rule == "argmax" or (kind.decodable and (rho == rho[0]).all()):
        return argmax_last(f)
    if not kind.decodable:
        raise UnsupportedError(UNDECODABLE)
    groups = margin_groups(rho)
    result = np.empty(len(f), np.intp)
    for start in range(0, len(f), BLOCK):
        rows = slice(start, start + BLOCK)
        result[rows] = stationary_choice(np.ascontiguousarray(f[rows].T), rho, groups, kind)
    return result


def stationary_choice(
    scores: FloatArray, margins: FloatArray, groups: list[MarginGroup], surrogate: Surrogate
) -> IntArray:
    """Expert of each column of scores stored experts first, (p, m), without validation."""
    p, m = scores.shape
    few = deciding_anchors(groups, surrogate, scores.dtype)
    size = rows_at_once(p, groups, surrogate)
    if few is not None:
        size = max(1, RATES // (few.inverse.size * p))
    result = np.empty(m, np.intp)
    for start in range(0, m, size):
        rows = slice(start, start + size)
        part = scores[:, rows]
        if few is None:
            masses = stationary_experts_first(part, margins, groups, surrogate)
        else:
            shifted = part - part.max(axis=0)
            masses = anchored_distribution(shifted, margins, groups, few, surrogate.tau)
        result[rows] = argmax_last_experts_first(masses)
    return result


def deciding_anchors(
    groups: list[MarginGroup], surrogate: Surrogate, dtype: DTypeLike
) -> Anchors | None:
    """Anchors to decide with; None where the whole chain is faster, or the only way."""
    if len(groups) < MANY or surrogate.form != "comp_sum" or surrogate.tau > 1:
        return None
    few = anchors(groups, dtype)
    return few if few is not None and few.inverse.size <= WORTH * len(groups) else None


def stationary_distribution(
    scores: ArrayLike, margins: ArrayLike | None = None, surrogate: object = "logistic"
) -> FloatArray:
    """The reward distribution for which each row of scores is the exact minimiser.

    Estimates ``E[reward_k] / E[sum_j reward_j]``; ``softmax(f / rho)`` when margins are equal.

    Parameters
    ----------
    scores : (n_samples, n_experts) array
    margins : (n_experts,) positive; None for all ones
    surrogate : any but the hinge and tau >= 2, which have no unique decoding and are refused

    Returns
    -------
    (n_samples, n_experts) array; rows sum to 1

    Examples
    --------
    >>> stationary_distribution([[-0.2036, 0.0]], [2 / 3, 1 / 3]).round(3)
    array([[0.55, 0.45]])
    """
    f = check_scores(scores)
    rho = check_margins(margins, f.shape[1])
    kind = parse_surrogate(surrogate)
    if not kind.decodable:
        raise UnsupportedError(UNDECODABLE)
    result = np.empty_like(f)
    groups = margin_groups(rho)
    block = min(BLOCK, rows_at_once(f.shape[1], groups, kind))
    for start in range(0, len(f), block):
        rows = slice(start, start + block)
        result[rows] = stationary_experts_first(f[rows].T, rho, groups, kind).T
    return result


def rows_at_once(p: int, groups: list[MarginGroup], surrogate: Surrogate) -> int:
    """Number of rows whose chains together hold at most RATES entries."""
    states = p if surrogate.form == "pairwise" else len(groups)
    return max(1, RATES // (states * p))

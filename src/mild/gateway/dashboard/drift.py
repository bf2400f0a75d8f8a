"""Do the shares lie where they should? Bands for all experts at once, without SciPy.

The reference says that expert k has a share ``r_k``, known from ``m`` earlier decisions. With an
exploration share e and K experts, a new decision falls on k with probability ``(1 - e) r_k + e / K``. Among
the last N decisions the count of k is then beta-binomial: binomial, with a probability that is itself known
only as well as m decisions tell. The band of k holds the middle ``1 - (1 - confidence) / K`` of that
distribution: at any one look, all K counts lie in their bands with at least the confidence if nothing
has changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["CONFIDENCE", "LEAST", "WINDOW", "Band", "bands"]

CONFIDENCE = 0.99
# Decisions that are looked at, and how many there must be.
WINDOW = 500
LEAST = 50
KNOWN = 1e9


@dataclass(frozen=True)
class Band:
    """Counts of one expert that are no surprise: from ``low`` to ``high``, both included."""

    low: int
    high: int
    expected: float


def bands(
    counts: Sequence[float],
    n: int,
    explore: float = 0.0,
    confidence: float = CONFIDENCE,
) -> list[Band]:
    """Bands for the counts among n decisions.

    Parameters
    ----------
    counts : decisions for each expert in the reference
    n : decisions that are judged
    explore : share of exploration in them, where the reference has none
    confidence : that all experts lie in their bands

    Examples
    --------
    >>> bands([600, 400], 100)
    [Band(low=45, high=74, expected=60.0), Band(low=26, high=55, expected=40.0)]
    """
    total = sum(counts)
    experts = len(counts)
    tail = (1 - confidence) / experts / 2
    result = []
    for count in counts:
        # Half a decision for and against: a share that was never seen is small, not impossible.
        a, b = count + 0.5, total - count + 0.5
        share = a / (a + b)
        mean = (1 - explore) * share + explore / experts
        variance = (1 - explore) ** 2 * share * (1 - share) / (a + b + 1)
        # With exploration alone the probability is known: as if from very many decisions.
        known = mean * (1 - mean) / variance - 1 if variance > 0 else KNOWN
        low, high = _middle(n, round(mean * known, 6), round((1 - mean) * known, 6), tail)
        seen = (1 - explore) * count / total + explore / experts if total else mean
        result.append(Band(low, high, n * seen))
    return result


@lru_cache(maxsize=256)
def _middle(n: int, a: float, b: float, tail: float) -> tuple[int, int]:
    """Quantiles of the beta-binomial distribution: at most ``tail`` lies below, and at most that above."""
    logs = [
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + math.lgamma(k + a)
        + math.lgamma(n - k + b)
        - math.lgamma(n + a + b)
        for k in range(n + 1)
    ]
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    low = _first(weights, total * tail)
    high = n - _first(weights[::-1], total * tail)
    return low, high


def _first(weights: Sequence[float], tail: float) -> int:
    """First place up to which more than ``tail`` has gathered."""
    gathered = 0.0
    for place, weight in enumerate(weights):
        gathered += weight
        if gathered > tail:
            return place
    return len(weights) - 1

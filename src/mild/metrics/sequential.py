"""Tests of a mean that hold however often they are looked at: the mean has left its interval.

Observations lie in [0, 1]. The tests bet against "the mean is in the interval" (Waudby-Smith and Ramdas,
Estimating means of bounded random variables by betting, 2024): each bet is fair or worse if that is true,
so that the capital, 1 at the start, ever reaches 1 / alpha with probability at most alpha (Ville's
inequality).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

import numpy as np

# Observations over which the recent mean is taken that decides on the next bet: one strategy each.
HORIZONS = (30, 100, 300)
# Share of the capital that one observation may cost at most.
MOST_LOST = 0.5
# Means that are tried for an interval: its ends are rounded outwards by less than one step.
_GRID = np.arange(1, 2000) / 2000


def mean_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """An interval that holds the mean of observations in [0, 1] with probability at least 1 - alpha.

    Every candidate is bet against, from above and from below, with predictable plug-in bets; it is left
    out if one of the two capitals has reached 2 / alpha. The observations need not be independent: it is
    enough that each has this mean given those before it.

    >>> mean_interval([1.0, 1.0, 0.0, 1.0] * 50, alpha=0.05)
    (0.658, 0.824)
    """
    n, mean, variance = len(values), 0.5, 0.25
    above, below = np.zeros_like(_GRID), np.zeros_like(_GRID)
    low, high = 0.0, 1.0
    limit = math.log(2 / alpha)
    for t, x in enumerate(values, 1):
        bet = math.sqrt(2 * limit / (variance * n))
        above += np.log1p(np.minimum(bet, MOST_LOST / _GRID) * (x - _GRID))
        below += np.log1p(np.minimum(bet, MOST_LOST / (1 - _GRID)) * (_GRID - x))
        # Both are monotone in the candidate.
        low = max(low, float(_GRID[above >= limit].max(initial=0.0)))
        high = min(high, float(_GRID[below >= limit].min(initial=1.0)))
        # Regularised by one observation of 1/2 with variance 1/4.
        mean += (x - mean) / (t + 1)
        variance += ((x - mean) ** 2 - variance) / (t + 1)
    return low, high


class MeanTest:
    """Has the mean of observations in [0, 1] left an interval, or changed since the first of them?

    Either ``interval`` is given, or it is the ``mean_interval`` of the first ``baseline`` observations.

    **Promise**: as long as every observation, given those before it, has a mean in the interval, or one and
    the same mean since the start of the baseline, the probability that ``alarm`` is ever set is at most
    ``alpha``, however many observations follow and however often it is looked at. With a baseline, half of
    alpha is for its interval, so that the error of that estimate is accounted for. A change within the
    interval, about 0.09 to each side for 200 scores of 0 and 1, is not found.

    Capital is bet on "below" and on "above" by the means of the last observations, over three horizons. A
    part of it is kept back for changes to come: 1 / log(e + n) after n observations. So a change that comes
    late is found nearly as soon as an early one. An observation takes constant time.

    >>> test = MeanTest(alpha=0.05, baseline=200).add([1.0, 1.0, 0.0, 1.0] * 50)
    >>> test.interval, test.add([0.0, 0.0, 0.0, 1.0] * 50).alarm
    ((0.649, 0.8305), True)
    """

    def __init__(
        self, alpha: float, interval: tuple[float, float] | None = None, baseline: int = 0
    ) -> None:
        self.interval, self.baseline, self.alarm = interval, baseline, False
        self.alpha = alpha if interval is not None else alpha / 2
        self.n = 0  # observations after the baseline
        self.values: list[float] = []  # of the baseline, until it is whole
        # By horizon: mean and mean square of the last observations, capital in bets on below and above.
        self._recent: list[list[float]] = []

    @property
    def recent(self) -> float | None:
        """Mean of about the last hundred observations; None within the baseline."""
        return self._recent[1][0] if self._recent else None

    @property
    def evidence(self) -> float:
        """The capital: an e-value against a mean in the interval."""
        low, high = self.interval or (0.0, 1.0)
        # No mean is below 0 or above 1: nothing is put on that.
        below = high >= 1 or (low > 0) / 2
        bets = sum(below * one[2] + (1 - below) * one[3] for one in self._recent)
        return _kept(self.n) + bets / len(HORIZONS)

    def add(self, values: Iterable[float]) -> MeanTest:
        """Look at further observations; the test itself."""
        rest = iter(values)
        if self.interval is None:
            self.values += islice(rest, self.baseline - len(self.values))
            if len(self.values) < self.baseline:
                return self
            self.interval, self.values = mean_interval(self.values, self.alpha), []
        low, high = self.interval
        if not self._recent:
            middle = min(max(0.5, low), high)
            self._recent = [[middle, middle * middle + 0.25, 0.0, 0.0] for _ in HORIZONS]
        most = MOST_LOST / max(1 - low, 1e-9), MOST_LOST / max(high, 1e-9)
        kept = _kept(self.n)
        for x in rest:
            self.n += 1
            before, kept = kept, _kept(self.n)
            for one, horizon in zip(self._recent, HORIZONS, strict=True):
                mean, square = one[0], one[1]
                one[2] += before - kept
                one[3] += before - kept
                if mean < low:
                    gap = low - mean
                    bet = min(gap / (max(square - mean * mean, 1e-3) + gap * gap), most[0])
                    one[2] *= 1 + bet * (low - x)
                elif mean > high:
                    gap = mean - high
                    bet = min(gap / (max(square - mean * mean, 1e-3) + gap * gap), most[1])
                    one[3] *= 1 + bet * (x - high)
                one[0] += (x - mean) / horizon
                one[1] += (x * x - square) / horizon
            if not self.alarm:
                self.alarm = self.evidence >= 1 / self.alpha
        return self

    def state(self) -> dict[str, Any]:
        """The test, ready for JSON."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> MeanTest:
        """The test as ``state`` gave it."""
        test = cls(1.0)
        vars(test).update(deepcopy(dict(state)))
        return test


def _kept(n: int) -> float:
    """Share of the capital that is kept back after n observations."""
    return 1 / math.log(math.e + n)

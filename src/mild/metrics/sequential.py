"""Tests of a mean that hold however often they are looked at: the mean has left its interval.

Observations lie in [0, 1]. The tests bet against "the mean is in the interval" (Waudby-Smith and Ramdas,
Estimating means of bounded random variables by betting, 2024): each bet is fair or worse if that is true,
so that the capital, 1 at the start, ever reaches 1 / alpha with probability at most alpha (Ville's
inequality).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    """Has the mean of observations in [0, 1] left an interval?

    **Promise**: as long as every observation, given those before it, has a mean in ``[low, high]``, the
    probability that ``alarm`` is ever set, over an unbounded number of looks, is at most ``alpha``.

    Capital is bet on "below low" and on "above high" by the means of the last observations, over three
    horizons. A part of it is kept back for changes to come: 1 / log(e + n) after n observations. So a
    change that comes late is found nearly as soon as an early one. An observation takes constant time.

    >>> test = MeanTest(0.7, 0.9, alpha=0.01).add([0.0, 1.0] * 100)
    >>> test.alarm, test.mean
    (True, 0.5)
    """

    def __init__(self, low: float, high: float, alpha: float) -> None:
        self.low, self.high, self.alpha = low, high, alpha
        self.n, self.mean, self.alarm = 0, 0.0, False
        middle = min(max(0.5, low), high)
        # Mean and mean square of the last observations, then the capital in bets on below and above.
        self._recent = [[middle, middle * middle + 0.25, 0.0, 0.0] for _ in HORIZONS]

    @property
    def recent(self) -> float:
        """Mean of about the last hundred observations."""
        return self._recent[1][0]

    @property
    def evidence(self) -> float:
        """The capital: an e-value against a mean in the interval."""
        # No mean is below 0 or above 1: nothing is bet on that.
        sides = [k for k, used in ((2, self.low > 0), (3, self.high < 1)) if used]
        bets = sum(one[k] for one in self._recent for k in sides)
        return _kept(self.n) + bets / max(len(self._recent) * len(sides), 1)

    def add(self, values: Iterable[float]) -> MeanTest:
        """Look at further observations; the test itself."""
        low, high = self.low, self.high
        for x in values:
            new = _kept(self.n) - _kept(self.n + 1)
            self.n += 1
            self.mean += (x - self.mean) / self.n
            for one, horizon in zip(self._recent, HORIZONS, strict=True):
                mean, square, below, above = one
                variance = max(square - mean * mean, 1e-3)
                gap = low - mean
                bet = min(gap / (variance + gap * gap), MOST_LOST / (1 - low)) if gap > 0 else 0.0
                one[2] = (below + new) * (1 + bet * (low - x))
                gap = mean - high
                bet = min(gap / (variance + gap * gap), MOST_LOST / high) if gap > 0 else 0.0
                one[3] = (above + new) * (1 + bet * (x - high))
                one[0] += (x - mean) / horizon
                one[1] += (x * x - square) / horizon
            if not self.alarm:
                self.alarm = self.evidence >= 1 / self.alpha
        return self

    def state(self) -> dict[str, Any]:
        """The test, ready for JSON."""
        return {**vars(self), "_recent": [list(one) for one in self._recent]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> MeanTest:
        """The test as ``state`` gave it."""
        test = cls(state["low"], state["high"], state["alpha"])
        vars(test).update(state)
        return test


class ChangeTest:
    """Has the mean of observations in [0, 1] changed since the first ``baseline`` of them?

    **Promise**: if all observations have the same mean, each given those before it, the probability that
    ``alarm`` is ever set is at most ``alpha``, however many observations follow and however often it is
    looked at. Half of alpha is for the interval of the mean in the baseline (``mean_interval``), so that
    the error of that estimate is accounted for, half for leaving it (``MeanTest``). A change within the
    interval, about 0.08 to each side for 200 scores of 0 and 1, is not found.

    >>> test = ChangeTest(baseline=200, alpha=0.05).add([1.0, 1.0, 0.0, 1.0] * 50)
    >>> test.interval, test.add([0.0, 0.0, 0.0, 1.0] * 50).alarm
    ((0.649, 0.8305), True)
    """

    def __init__(self, baseline: int, alpha: float) -> None:
        self.baseline, self.alpha = baseline, alpha
        self.values: list[float] = []  # of the baseline, until it is whole
        self.test: MeanTest | None = None  # from then on

    @property
    def alarm(self) -> bool:
        """Whether the mean has left its interval; it stays so."""
        return self.test is not None and self.test.alarm

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the mean in the baseline; None until that is whole."""
        return None if self.test is None else (self.test.low, self.test.high)

    def add(self, values: Iterable[float]) -> ChangeTest:
        """Look at further observations; the test itself."""
        rest = iter(values)
        if self.test is None:
            self.values += islice(rest, self.baseline - len(self.values))
            if len(self.values) < self.baseline:
                return self
            self.test = MeanTest(*mean_interval(self.values, self.alpha / 2), self.alpha / 2)
            self.values = []
        self.test.add(rest)
        return self

    def state(self) -> dict[str, Any]:
        """The test, ready for JSON."""
        return {**vars(self), "test": None if self.test is None else self.test.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ChangeTest:
        """The test as ``state`` gave it."""
        test = cls(state["baseline"], state["alpha"])
        test.values = list(state["values"])
        test.test = None if state["test"] is None else MeanTest.from_state(state["test"])
        return test


def _kept(n: int) -> float:
    """Share of the capital that is kept back after n observations."""
    return 1 / math.log(math.e + n)

"""Tests of a mean that hold however often they are looked at: the mean has left its interval.

Observations lie in [0, 1]. The tests bet against "the mean is in the interval" (Waudby-Smith and Ramdas,
Estimating means of bounded random variables by betting, 2024): each bet is fair or worse if that is true,
so that the capital, 1 at the start, ever reaches 1 / alpha with probability at most alpha (Ville's
inequality).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from mild.core.arrays import FloatArray
from mild.metrics.risk_control import betting_p_values

# Observations over which the recent mean is taken that decides on the next bet: one strategy each.
HORIZONS = (30, 100, 300)
# Share of the capital that one observation may cost at most.
MOST_LOST = 0.5
# By which the ends of an interval are rounded outwards at most.
PRECISION = 1 / 4096


def mean_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """An interval that holds the mean of observations in [0, 1] with probability at least 1 - alpha.

    Means are left out that are rejected, from above or from below, by ``betting_p_values``. The
    observations need not be independent: it is enough that each has this mean given those before it.

    >>> [round(limit, 3) for limit in mean_interval([1.0, 1.0, 0.0, 1.0] * 50, alpha=0.05)]
    [0.642, 0.825]
    """
    x = np.array(values, ndmin=2).T
    low = 1 - _upper_limit(1 - x, alpha / 2)
    high = _upper_limit(x, alpha / 2)
    return low, high


def _upper_limit(x: FloatArray, alpha: float) -> float:
    """The mean above which all means of observations (n, 1) are rejected, by bisection."""
    low = 0.0
    high = 1.0
    while high - low > PRECISION:
        middle = (low + high) / 2
        p_value = betting_p_values(2 * x - 1, 2 * middle - 1, alpha)[0]
        if p_value <= alpha:
            high = middle
        else:
            low = middle
    return high


@dataclass
class MeanTest:
    """Has the mean of observations in [0, 1] left an interval, or changed since the first of them?

    Either ``interval`` is given, or it is the ``mean_interval`` of the first ``baseline`` observations.
    ``vars(test)`` is ready for JSON, and ``MeanTest(**state)`` goes on from there.

    **Promise**: as long as every observation, given those before it, has a mean in the interval, or one and
    the same mean since the start of the baseline, the probability that ``alarm`` is ever set is at most
    ``alpha``, however many observations follow and however often it is looked at. With a baseline, half of
    alpha is for its interval, so that the error of that estimate is accounted for. A change within the
    interval, about 0.09 to each side for 200 scores of 0 and 1, is not found.

    Capital is bet on the side of the interval where the mean of the last observations lies, over three
    horizons. A part of it is kept back for changes to come: 1 / log(e + n) after n observations. So a late
    change is found nearly as soon as an early one. An observation takes constant time.

    >>> test = MeanTest(alpha=0.05, baseline=200).add([1.0, 1.0, 0.0, 1.0] * 50)
    >>> test.interval[0] < 0.75 < test.interval[1], test.add([0.0, 0.0, 0.0, 1.0] * 50).alarm
    (True, True)
    """

    alpha: float
    interval: Sequence[float] | None = None
    baseline: int = 0
    alarm: bool = False
    n: int = 0  # observations after the baseline
    values: list[float] = field(default_factory=list)  # of the baseline, until it is whole
    # By horizon: mean and mean square of the last observations, and the capital in bets.
    bets: list[list[float]] = field(default_factory=list)

    @property
    def recent(self) -> float | None:
        """Mean of about the last hundred observations; None within the baseline."""
        if not self.bets:
            return None
        return self.bets[1][0]

    @property
    def evidence(self) -> float:
        """The capital: an e-value against a mean in the interval."""
        capital_in_bets = sum(capital for _, _, capital in self.bets)
        return _kept(self.n) + capital_in_bets / len(HORIZONS)

    def add(self, values: Iterable[float]) -> MeanTest:
        """Look at further observations; the test itself."""
        further = iter(values)
        if self.interval is None:
            self.values += islice(further, self.baseline - len(self.values))
            if len(self.values) < self.baseline:
                return self
            self.interval = mean_interval(self.values, self._alpha)
            self.values = []
        low, high = self.interval
        if not self.bets:
            start = min(max(0.5, low), high)
            self.bets = [[start, start * start + 0.25, 0.0] for _ in HORIZONS]
        for x in further:
            self._observe(x, low, high)
        return self

    @property
    def _alpha(self) -> float:
        """Error probability of the bets; with a baseline, the other half is for its interval."""
        if self.baseline:
            return self.alpha / 2
        return self.alpha

    def _observe(self, x: float, low: float, high: float) -> None:
        """Settle the bets on one observation."""
        released = _kept(self.n) - _kept(self.n + 1)
        self.n += 1
        for bet, horizon in zip(self.bets, HORIZONS, strict=True):
            mean, square, capital = bet
            capital += released
            if not low <= mean <= high:
                capital *= _payoff(x, mean, square, low, high)
            bet[:] = [mean + (x - mean) / horizon, square + (x * x - square) / horizon, capital]
        self.alarm = self.alarm or self.evidence >= 1 / self._alpha


def _payoff(x: float, mean: float, square: float, low: float, high: float) -> float:
    """Factor on the capital of a bet that the mean is outside of the interval, as it was recently.

    It is ``1 + bet * (edge - x)``, with the edge of the interval on that side: at most 1 in expectation if
    the mean is within. The bet is about that of the largest growth for the recent mean and mean square.
    """
    if mean < low:
        edge = low
        farthest = 1 - low
    else:
        edge = high
        farthest = high
    gap = edge - mean
    variance = max(square - mean * mean, 1e-3)
    largest_bet = MOST_LOST / max(farthest, 1e-9)
    bet = gap / (variance + gap * gap)
    return 1 + max(-largest_bet, min(bet, largest_bet)) * (edge - x)


def _kept(n: int) -> float:
    """Share of the capital that is kept back after n observations."""
    return 1 / math.log(math.e + n)

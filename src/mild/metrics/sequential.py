"""Sequential tests of whether a mean has left an interval, valid however often they are looked at.

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

# Bets follow the mean of about so many recent observations; the capital is split between these strategies.
HORIZONS = (30, 100, 300)
# Share of the capital that one observation may cost at most.
MAX_LOSS = 0.5
# By which the ends of an interval are rounded outwards at most.
PRECISION = 1 / 4096


def mean_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Return an interval that holds the mean of observations in [0, 1] with probability 1 - alpha.

    It consists of the means that ``betting_p_values`` do not reject, neither as too high nor as too low.
    The observations need not be independent: it is enough that each has this mean given those before it.

    >>> [round(limit, 3) for limit in mean_interval([1.0, 1.0, 0.0, 1.0] * 50, alpha=0.05)]
    [0.642, 0.825]
    """
    x = np.array(values, ndmin=2).T
    low = 1 - _upper_limit(1 - x, alpha / 2)
    high = _upper_limit(x, alpha / 2)
    return low, high


def _upper_limit(x: FloatArray, alpha: float) -> float:
    """Return the mean above which all means of observations (n, 1) are rejected, by bisection."""
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
    """Test whether the mean of observations in [0, 1] has left an interval, while they arrive.

    Either ``interval`` is a parameter, or it is the ``mean_interval`` of the first ``baseline``
    observations; then the test is whether the mean has changed since. ``vars(test)`` is ready for JSON, and
    ``MeanTest(**state)`` goes on from there.

    **Guarantee**: as long as every observation, conditional on those before it, has a mean in the interval,
    or with a baseline the same mean since its start, the probability that ``alarm`` is ever set is at most
    ``alpha``, however many observations follow and however often it is looked at. With a baseline, half of
    alpha is for its interval, so that the error of that estimate is accounted for. A change within the
    interval, about 0.09 to each side for 200 scores of 0 and 1, is not detected.

    The test bets a capital, 1 at the start, that the mean is outside of the interval, on the side where the
    mean of the last observations lies; ``alarm`` is set once the capital has reached 1 / alpha. There is a
    strategy for each of three numbers of last observations. A part of the capital, 1 / log(e + n) after n
    observations, is held in reserve for later changes, so that a late change is detected nearly as soon as
    an early one. An observation takes constant time.

    Parameters
    ----------
    alpha : float
        Largest probability of a false alarm.
    interval : pair of float, default=None
        Lowest and highest mean without alarm. None takes it from the baseline.
    baseline : int, default=0
        Number of observations for the interval, if there is none.
    alarm, n, values, bets
        State of the test, as ``vars`` returns it.

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
        return _reserve(self.n) + capital_in_bets / len(HORIZONS)

    def add(self, values: Iterable[float]) -> MeanTest:
        """Add observations in the order in which they arrived, and return the test itself."""
        observations = iter(values)
        if self.interval is None:
            self.values += islice(observations, self.baseline - len(self.values))
            if len(self.values) < self.baseline:
                return self
            self.interval = mean_interval(self.values, self._alpha)
            self.values = []
        low, high = self.interval
        if not self.bets:
            # As if the mean so far was the one closest to 1/2 that is in the interval, with variance 1/4.
            mean = min(max(0.5, low), high)
            self.bets = [[mean, mean * mean + 0.25, 0.0] for _ in HORIZONS]
        for x in observations:
            self._observe(x, low, high)
        return self

    @property
    def _alpha(self) -> float:
        """Error probability of the bets; with a baseline, the other half is for its interval."""
        if self.baseline:
            return self.alpha / 2
        return self.alpha

    def _observe(self, x: float, low: float, high: float) -> None:
        """Update the capital by the outcome of the bets on one observation."""
        released = _reserve(self.n) - _reserve(self.n + 1)
        self.n += 1
        for bet, horizon in zip(self.bets, HORIZONS, strict=True):
            mean, square, capital = bet
            capital += released
            if not low <= mean <= high:
                capital *= _payoff(x, mean, square, low, high)
            bet[:] = [mean + (x - mean) / horizon, square + (x * x - square) / horizon, capital]
        self.alarm = self.alarm or self.evidence >= 1 / self._alpha


def _payoff(x: float, mean: float, square: float, low: float, high: float) -> float:
    """Return the factor ``1 + bet * (edge - x)`` on the capital of a bet on one observation x.

    The recent ``mean`` is outside of the interval [low, high], and ``edge`` is the end on that side. If
    the true mean is in the interval, the factor is at most 1 in expectation. With ``gap = edge - mean``
    and the variance from the recent mean ``square``, ``bet = gap / (variance + gap^2)`` is about the one
    of the largest growth.
    """
    if mean < low:
        edge = low
        max_excess = 1 - low
    else:
        edge = high
        max_excess = high
    gap = edge - mean
    variance = max(square - mean * mean, 1e-3)
    largest_bet = MAX_LOSS / max(max_excess, 1e-9)
    bet = gap / (variance + gap * gap)
    return 1 + max(-largest_bet, min(bet, largest_bet)) * (edge - x)


def _reserve(n: int) -> float:
    """Return the capital that is not yet in bets after n observations."""
    return 1 / math.log(math.e + n)

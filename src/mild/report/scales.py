"""Scales of the charts: from values to positions, and the ticks of an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mild.report.labels import GAP, LETTER_SIZE, text_width

# Ratio of the largest to the smallest value from which an axis is logarithmic.
LOG_RATIO = 12.0


@dataclass(frozen=True)
class Scale:
    """Map values in [low, high] to positions in [start, end].

    >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 1, True)(10)
    (150.0, 0.5)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Position of a value; values beyond the ends are clipped to them."""
        low = self.low
        high = self.high
        value = min(max(value, low), high)
        if self.log:
            low = math.log(low)
            high = math.log(high)
            value = math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int) -> list[float]:
        """Return about ``count`` round values inside the scale: 1, 2 or 5 times a power of ten.

        >>> Scale(0.03, 0.97, 0, 1).ticks(4), Scale(0.5, 30, 0, 1, True).ticks(4)
        ([0.2, 0.4, 0.6, 0.8], [0.5, 1.0, 2.0, 5.0, 10.0, 20.0])
        """
        if self.log:
            return self._log_ticks()
        span = self.high - self.low
        power = 10.0 ** math.floor(math.log10(span / max(1, count)))
        distances = [power, 2 * power, 5 * power, 10 * power]
        distance = min(distances, key=lambda size: abs(span / size - count))
        digits = max(0, 1 - math.floor(math.log10(distance)))
        # An end of the scale that rounding has moved beyond a tick still has the tick.
        first = math.ceil(self.low / distance - 1e-9)
        last = math.floor(self.high / distance + 1e-9)
        return [round(number * distance, digits) for number in range(first, last + 1)]

    def labelled_ticks(self, count: int, write: Callable[[float], str]) -> list[tuple[float, str]]:
        """Return position and text of about ``count`` ticks; ``write`` formats a value.

        >>> Scale(0, 1, 0, 100).labelled_ticks(2, str)
        [(0.0, '0.0'), (50.0, '0.5'), (100.0, '1.0')]
        """
        return [(self(tick), write(tick)) for tick in self.ticks(count)]

    def _log_ticks(self) -> list[float]:
        """Return round values inside a logarithmic scale; over many decades, fewer in each."""
        n_decades = math.log10(self.high / self.low)
        if n_decades < 2.2:
            leading_digits = [1, 2, 5]
        elif n_decades < 3.5:
            leading_digits = [1, 3]
        else:
            leading_digits = [1]
        first_exponent = math.floor(math.log10(self.low))
        last_exponent = math.ceil(math.log10(self.high))
        ticks = []
        for exponent in range(first_exponent, last_exponent + 1):
            for digit in leading_digits:
                # In floating point, 3 * 0.1 is not 0.3.
                tick = float(f"{digit * 10.0**exponent:.6g}")
                if self.low * 0.999 <= tick <= self.high * 1.001:
                    ticks.append(tick)
        return ticks


def scale_for(
    values: Sequence[float], start: float, end: float, *, pad: float = 0.08, may_log: bool = False
) -> Scale:
    """Return a scale with room around the values; logarithmic if they are positive and far apart."""
    low = min(values)
    high = max(values)
    if may_log and low > 0 and high / low > LOG_RATIO:
        factor = (high / low) ** pad
        return Scale(low / factor, high * factor, start, end, log=True)
    room = pad * (high - low) or abs(high) * pad or pad
    lowest = low - room
    if may_log and low >= 0:
        # Prices are not negative, so their axis does not go below 0.
        lowest = max(0.0, lowest)
    return Scale(lowest, high + room, start, end)


def spaced(
    ticks: Sequence[tuple[float, str]], size: float = LETTER_SIZE
) -> list[tuple[float, str]]:
    """Return ticks (position, text) from left to right, without those that touch the one before.

    >>> spaced([(0, "$0.10"), (20, "$0.20"), (60, "$0.50")])
    [(0, '$0.10'), (60, '$0.50')]
    >>> spaced([(0, "20 %"), (45, "40 %"), (90, "60 %")], size=20)
    [(0, '20 %'), (90, '60 %')]
    """
    apart = []
    end_of_last = -math.inf
    for x, text in ticks:
        half_width = text_width(text, size) / 2
        if x - half_width - end_of_last >= GAP:
            apart.append((x, text))
            end_of_last = x + half_width
    return apart

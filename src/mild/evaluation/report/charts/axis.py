"""From numbers to places: scales and their ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Scale", "linear_ticks", "log_ticks", "scale_for"]

# From this ratio on, prices are better seen on a logarithmic axis.
WIDE = 12.0


@dataclass(frozen=True)
class Scale:
    """Values in [low, high] to places in [start, end].

    Examples
    --------
    >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 1, True)(10)
    (150.0, 0.5)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Place of a value; values beyond the ends are moved to them."""
        low, high = self.low, self.high
        at = min(max(value, low), high)
        if self.log:
            at, low, high = math.log(at), math.log(low), math.log(high)
        share = (at - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int) -> list[float]:
        """Round values inside."""
        if self.log:
            return log_ticks(self.low, self.high)
        return linear_ticks(self.low, self.high, count)


def scale_for(
    values: Sequence[float], start: float, end: float, *, pad: float = 0.08, may_log: bool = False
) -> Scale:
    """A scale with room around the values; logarithmic where they are positive and far apart."""
    low, high = min(values), max(values)
    if may_log and low > 0 and high / low > WIDE:
        room = (high / low) ** pad
        return Scale(low / room, high * room, start, end, log=True)
    room = pad * (high - low) or abs(high) * pad or pad
    # Where prices cannot be negative, the axis does not suggest it.
    floor = 0.0 if may_log and low >= 0 else -math.inf
    return Scale(max(floor, low - room), high + room, start, end)


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` multiples of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> linear_ticks(0.03, 0.97, 4)
    [0.2, 0.4, 0.6, 0.8]
    """
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / max(1, count)))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda size: abs(span / size - count))
    digits = max(0, -math.floor(math.log10(step)) + 1)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, digits) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between where there are few.

    Examples
    --------
    >>> log_ticks(0.5, 30)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    decades = math.log10(high / low)
    steps = (1, 2, 5) if decades < 2.2 else (1, 3) if decades < 3.5 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{m * 10.0**e:.6g}") for e in powers for m in steps]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]

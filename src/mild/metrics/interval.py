"""An estimate with its interval; it needs no SciPy, which a loaded router does not have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean difference of n pairs, its interval, and the standard deviation of resampled means."""

    estimate: float
    low: float
    high: float
    standard_error: float
    n: int
    confidence: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

"""How far apart two means are: against the paper's figure, and paired over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from mild.metrics import Interval

__all__ = ["paired_t_interval", "standard_errors_apart"]

# Losses are means of float32 costs; the smallest real difference is one image in a million or so.
ROUNDING = 1e-7


def standard_errors_apart(
    mean: float, std: float | None, n: int, other: float, other_std: float, other_n: int
) -> float | None:
    """Difference of two independent means in its standard errors (Welch).

    ``(mean - other) / sqrt(std^2 / n + other_std^2 / other_n)``; None where ``std`` is unknown or
    both are 0.

    Examples
    --------
    >>> round(standard_errors_apart(0.07, 0.003, 9, 0.05, 0.0, 5), 6)
    20.0
    """
    if std is None:
        return None
    error = math.sqrt(std**2 / n + other_std**2 / other_n)
    return (mean - other) / error if error > 0 else None


def paired_t_interval(
    a: Sequence[float], b: Sequence[float], confidence: float = 0.95, overlap: float = 0.0
) -> Interval | None:
    """Student's interval of the mean of ``a - b`` with n - 1 degrees of freedom.

    Where the pairs come from random splits of the same rows they are not independent, and the variance
    of their mean is taken as ``(1 / n + overlap) * s^2`` (Nadeau and Bengio 2003), with ``overlap`` the
    number of test rows per training row.

    None for n < 2, and where all differences are the same but not 0: their spread, the yardstick of
    the interval, is unknown then. Differences that are all 0 are of one and the same training, and have
    the interval [0, 0].

    Examples
    --------
    >>> interval = paired_t_interval([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (-0.484, 4.484)
    >>> wider = paired_t_interval([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], overlap=1 / 2)
    >>> round(wider.high - wider.low, 3), round(interval.high - interval.low, 3)
    (7.856, 4.968)
    """
    difference = np.subtract(a, b)
    n = len(difference)
    if n < 2:
        return None
    rounding = ROUNDING * float(np.max(np.abs([a, b])))
    if np.abs(difference).max() <= rounding:
        difference = np.zeros(n)
    elif np.ptp(difference) <= rounding:
        return None
    estimate = float(difference.mean())
    error = float(difference.std(ddof=1)) * math.sqrt(1 / n + overlap)
    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * error
    return Interval(estimate, estimate - reach, estimate + reach, error, n, confidence)

"""Quantiles of Student's t without SciPy, which what serves a router must do without."""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["student_quantile"]

# Beyond this many degrees of freedom the expansion around the normal is exact to seven digits.
MANY = 200


def student_quantile(coverage: float, freedom: int) -> float:
    """The t for which ``P(|T| <= t) = coverage``, T with ``freedom`` degrees of freedom.

    With ``theta = atan(t / sqrt(freedom))`` the probability is a finite sum of powers of cos(theta),
    which is inverted by bisection; for many degrees of freedom an expansion around the normal serves.

    Examples
    --------
    >>> round(student_quantile(0.95, 1), 3), round(student_quantile(0.95, 10), 3)
    (12.706, 2.228)
    """
    if freedom > MANY:
        z = NormalDist().inv_cdf((1 + coverage) / 2)
        first = (z**3 + z) / (4 * freedom)
        return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        if _coverage(middle, freedom) < coverage:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _coverage(theta: float, freedom: int) -> float:
    """``P(|T| <= sqrt(freedom) * tan(theta))``."""
    cosine, odd = math.cos(theta), freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= k / (k + 1) * cosine**2
    total *= math.sin(theta)
    return 2 / math.pi * (theta + total) if odd else total

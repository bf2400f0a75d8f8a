"""Dollars as whole billionths, so that sums are exact."""

from __future__ import annotations

import math
from decimal import Decimal

from mild.errors import InvalidInputError

BILLION = 1_000_000_000
# Beyond this no price is meant, and SQLite's integers would end.
_MOST = 1e9


def parts_of(dollars: float, parameter: str = "dollars") -> int:
    """Billionths of a dollar, rounded up; what is not finite or below 0 is refused.

    >>> parts_of(0.1), parts_of(1e-10), parts_of(0)
    (100000000, 1, 0)
    """
    if not 0 <= dollars < math.inf:
        rule = f"must be a finite number of at least 0; got {dollars!r}."
        raise InvalidInputError(parameter=parameter, rule=rule)
    parts = min(dollars, _MOST) * BILLION
    # The product has an error of its own, which must not become a billionth.
    return math.ceil(parts - max(1e-3, parts * 2.0**-51))


def parts_or_none(dollars: float | None, parameter: str = "dollars") -> int | None:
    """Billionths of a dollar of a budget; None, for no budget, stays None."""
    if dollars is None:
        return None
    return parts_of(dollars, parameter)


def dollars_of(parts: int) -> float:
    """Dollars of billionths."""
    return parts / BILLION


def dollars_or_none(parts: int | None) -> float | None:
    """Dollars of a budget; None, for no budget, stays None."""
    if parts is None:
        return None
    return dollars_of(parts)


def shown_dollars(parts: int) -> str:
    """Dollars for people, to the cent where cents say enough.

    >>> shown_dollars(12_500_000_000), shown_dollars(1_234_567), shown_dollars(10_000)
    ('$12.50', '$0.001235', '$0.00001')
    """
    dollars = dollars_of(parts)
    if dollars == 0 or abs(dollars) >= 0.1:
        return f"${dollars:.2f}"
    return f"${Decimal(f'{dollars:.4g}'):f}"

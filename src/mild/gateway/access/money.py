"""Dollars as whole billionths, so that sums are exact; days and months in UTC."""

from __future__ import annotations

import calendar
import math
import time
from typing import Literal, NamedTuple

__all__ = ["BILLION", "Period", "Window", "dollars_of", "parts_of", "periods_at", "shown"]

BILLION = 1_000_000_000
# Beyond this no price is meant, and SQLite's integers would end.
_MOST = 1e9
_DAY = 86_400

Window = Literal["day", "month"]


class Period(NamedTuple):
    """A day such as 2026-11-15 or a month such as 2026-11, and when the next one begins."""

    window: Window
    name: str
    renews: int


def parts_of(dollars: float) -> int:
    """Billionths of a dollar, rounded up.

    Examples
    --------
    >>> parts_of(0.1), parts_of(1e-10), parts_of(0)
    (100000000, 1, 0)
    """
    parts = min(dollars, _MOST) * BILLION
    # The product has an error of its own, which must not become a billionth.
    return math.ceil(parts - max(1e-3, parts * 2.0**-51))


def dollars_of(parts: int) -> float:
    """Dollars of whole billionths."""
    return parts / BILLION


def shown(parts: int) -> str:
    """Dollars for people, to the cent where cents say enough.

    Examples
    --------
    >>> shown(12_500_000_000), shown(1_234_567), shown(0)
    ('$12.50', '$0.001235', '$0.00')
    """
    dollars = dollars_of(parts)
    if dollars == 0 or abs(dollars) >= 0.1:
        return f"${dollars:.2f}"
    return f"${dollars:.4g}"


def periods_at(now: float) -> tuple[Period, Period]:
    """The day and the month, in UTC, of a moment.

    Examples
    --------
    >>> periods_at(0.0)[1]
    Period(window='month', name='1970-01', renews=2678400)
    """
    moment = time.gmtime(now)
    year, month = moment.tm_year, moment.tm_mon
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    tomorrow = (int(now // _DAY) + 1) * _DAY
    return (
        Period("day", f"{year:04d}-{month:02d}-{moment.tm_mday:02d}", tomorrow),
        Period("month", f"{year:04d}-{month:02d}", calendar.timegm((*following, 1, 0, 0, 0))),
    )

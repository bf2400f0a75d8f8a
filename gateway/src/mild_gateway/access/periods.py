"""Days and months in UTC, for which budgets hold."""

from __future__ import annotations

import calendar
import time
from functools import lru_cache
from typing import Literal, NamedTuple

DAY = 86_400

Window = Literal["day", "month"]


class Period(NamedTuple):
    """A day such as 2026-11-15 or a month such as 2026-11, and when the next one begins."""

    window: Window
    name: str
    renews: int


def periods_at(now: float) -> tuple[Period, Period]:
    """The day and the month, in UTC, of a moment."""
    return _periods_of_day(int(now // DAY))


@lru_cache(maxsize=2)
def _periods_of_day(days: int) -> tuple[Period, Period]:
    """The day that begins so many days after 1970-01-01, and its month."""
    moment = time.gmtime(days * DAY)
    month_name = f"{moment.tm_year:04d}-{moment.tm_mon:02d}"
    day_name = f"{month_name}-{moment.tm_mday:02d}"
    next_month = (
        (moment.tm_year + 1, 1) if moment.tm_mon == 12 else (moment.tm_year, moment.tm_mon + 1)
    )
    month_end = calendar.timegm((*next_month, 1, 0, 0, 0))
    return Period("day", day_name, (days + 1) * DAY), Period("month", month_name, month_end)

"""Days and months in UTC, for which budgets hold."""

from __future__ import annotations

import calendar
import time
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
    moment = time.gmtime(now)
    year, month = moment.tm_year, moment.tm_mon
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    tomorrow = (int(now // DAY) + 1) * DAY
    return (
        Period("day", f"{year:04d}-{month:02d}-{moment.tm_mday:02d}", tomorrow),
        Period("month", f"{year:04d}-{month:02d}", calendar.timegm((*following, 1, 0, 0, 0))),
    )

"""Tasks on weekdays, months, dates and the clock."""

from __future__ import annotations

import calendar
import datetime
from random import Random

from mild.data.datasets.questions.rows import Row, make_row

__all__ = ["dates"]

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = """
January February March April May June July August September October November December
"""
MONTHS = tuple(_MONTHS.split())


def dates(rng: Random) -> Row:
    """One task on the calendar or the clock."""
    task, grade, query, answer, kind = rng.choice(_TASKS)(rng)
    return make_row(f"dates/{task}", grade, query, answer, kind)


Task = tuple[str, int, str, object, str]


def _next_day(rng: Random) -> Task:
    day = rng.randrange(7)
    step = rng.choice((-1, 1))
    side = "after" if step > 0 else "before"
    query = f"Which day of the week comes right {side} {DAYS[day]}?"
    return "next_day", 1, query, DAYS[(day + step) % 7], "contains"


def _later_day(rng: Random) -> Task:
    day, ahead = rng.randrange(7), rng.choice([d for d in range(2, 31) if d % 7])
    query = f"Today is {DAYS[day]}. Which day of the week is it in {ahead} days?"
    return "later_day", 2 if ahead < 7 else 4, query, DAYS[(day + ahead) % 7], "contains"


def _next_month(rng: Random) -> Task:
    month = rng.randrange(12)
    step = rng.choice((-1, 1))
    side = "after" if step > 0 else "before"
    return (
        "next_month",
        1,
        f"Which month comes right {side} {MONTHS[month]}?",
        MONTHS[(month + step) % 12],
        "contains",
    )


def _days_in_month(rng: Random) -> Task:
    year, month = rng.randint(1990, 2030), rng.randint(1, 12)
    query = f"How many days has {MONTHS[month - 1]} {year}?"
    days = calendar.monthrange(year, month)[1]
    return "days_in_month", 3 if month == 2 else 2, query, days, "numeric"


def _leap_year(rng: Random) -> Task:
    year = rng.choice((rng.randint(1890, 2110), rng.randrange(1892, 2110, 4)))
    answer = "yes" if calendar.isleap(year) else "no"
    return "leap_year", 3, f"Is {year} a leap year? Answer yes or no.", answer, "contains"


def _later_date(rng: Random) -> Task:
    start = datetime.date(2020, 1, 1) + datetime.timedelta(rng.randrange(3650))
    ahead = rng.randint(1, 60)
    end = start + datetime.timedelta(ahead)
    query = f"Which date is {ahead} days after {start.isoformat()}? Write it as YYYY-MM-DD."
    return "later_date", 3 if start.month == end.month else 5, query, end.isoformat(), "contains"


def _minutes(rng: Random) -> Task:
    hours, minutes = rng.randint(1, 9), rng.choice((0, 0, 10, 15, 30, 45))
    rest = f" and {minutes} minutes" if minutes else ""
    name = "1 hour" if hours == 1 else f"{hours} hours"
    query = f"How many minutes are {name}{rest}?"
    return "minutes", 2 if not minutes else 3, query, 60 * hours + minutes, "numeric"


def _clock(rng: Random) -> Task:
    start, ahead = rng.randrange(24 * 12) * 5, rng.randrange(10, 300, 5)
    end = (start + ahead) % (24 * 60)
    query = f"It is {start // 60:02d}:{start % 60:02d}. What time is it {ahead} minutes later?"
    return "clock", 4, query, f"{end // 60:02d}:{end % 60:02d}", "contains"


_TASKS = (
    _next_day,
    _later_day,
    _next_month,
    _days_in_month,
    _leap_year,
    _later_date,
    _minutes,
    _clock,
)

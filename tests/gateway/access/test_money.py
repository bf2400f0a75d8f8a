"""Whole billionths of dollars, and the days and months of UTC."""

from __future__ import annotations

import calendar
import time

from hypothesis import given
from hypothesis import strategies as st

from mild.gateway.access.money import BILLION, dollars_of, parts_of, periods_at, shown


@given(st.floats(0, 1e6))
def test_parts_are_never_less_than_the_dollars_and_hardly_more(dollars):
    parts = parts_of(dollars)
    slack = 2e-3 + dollars * BILLION * 1e-15
    assert dollars * BILLION - slack <= parts <= dollars * BILLION + 1 + slack


@given(st.integers(0, 10**15))
def test_whole_billionths_stay_what_they_are(parts):
    assert parts_of(dollars_of(parts)) == parts


def test_absurd_sums_still_fit_the_store():
    assert parts_of(1e300) < 2**63


@given(st.integers(0, 4_000_000_000))
def test_a_moment_lies_in_its_day_and_month_and_before_their_ends(now):
    day, month = periods_at(now)
    assert day.name == time.strftime("%Y-%m-%d", time.gmtime(now))
    assert month.name == day.name[:7]
    assert now < day.renews <= now + 86_400
    assert day.renews <= month.renews <= now + 31 * 86_400
    assert periods_at(day.renews)[0].name != day.name
    assert periods_at(month.renews)[1].name != month.name
    assert periods_at(month.renews - 1)[1].name == month.name


def test_december_is_followed_by_january():
    now = calendar.timegm((2026, 12, 31, 23, 59, 59))
    assert [period.renews for period in periods_at(now)] == [now + 1, now + 1]


def test_dollars_for_people():
    assert [shown(parts) for parts in (20 * BILLION, 150_000_000, 1_500, 0)] == [
        "$20.00",
        "$0.15",
        "$1.5e-06",
        "$0.00",
    ]

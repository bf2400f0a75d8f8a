"""The days and months of UTC."""

from __future__ import annotations

import calendar
import time

from hypothesis import given
from hypothesis import strategies as st

from mild_gateway.access.periods import periods_at


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

"""Whole billionths of dollars."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mild_gateway.access.dollars import BILLION, dollars_of, parts_of, shown_dollars


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


def test_dollars_for_people():
    assert [shown_dollars(parts) for parts in (20 * BILLION, 150_000_000, 1_500, 0)] == [
        "$20.00",
        "$0.15",
        "$0.0000015",
        "$0.00",
    ]

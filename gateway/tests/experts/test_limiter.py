"""The limits of one expert."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild_gateway.experts.expert import Expert
from mild_gateway.experts.limiter import ExpertLimiter


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def limiter_of(clock, **settings):
    return ExpertLimiter(Expert("small", "http://h/v1", "m", **settings), clock)


def test_without_limits_nobody_waits():
    limiter = limiter_of(Clock())
    for _ in range(1000):
        assert limiter.wait() == 0.0
        limiter.take()


def test_so_many_are_in_flight_and_no_more():
    limiter = limiter_of(Clock(), max_in_flight=2)
    limiter.take()
    assert limiter.wait() == 0.0
    limiter.take()
    assert limiter.wait() > 0.0
    limiter.release()
    assert limiter.wait() == 0.0
    assert limiter.in_flight == 1


@given(st.floats(0.1, 300), st.lists(st.floats(0, 30), max_size=100))
def test_in_no_minute_start_more_than_allowed(per_minute, gaps):
    clock = Clock()
    limiter = limiter_of(clock, requests_per_minute=per_minute)
    starts = []
    for gap in gaps:
        clock.now += gap
        clock.now += limiter.wait()
        assert limiter.wait() == pytest.approx(0.0, abs=1e-9)
        limiter.take()
        limiter.release()
        starts.append(clock.now)
    for start in starts:
        within_a_minute = [other for other in starts if start <= other < start + 60 - 1e-6]
        assert len(within_a_minute) <= max(1, per_minute)


def test_less_than_one_request_per_minute_is_a_longer_wait():
    clock = Clock()
    limiter = limiter_of(clock, requests_per_minute=0.5)
    limiter.take()
    assert limiter.wait() == 120.0
    clock.now += 120
    assert limiter.wait() == 0.0


def test_a_request_that_ended_still_counts_for_its_minute():
    limiter = limiter_of(Clock(), requests_per_minute=1, max_in_flight=1)
    limiter.take()
    limiter.release()
    assert limiter.wait() == 60.0

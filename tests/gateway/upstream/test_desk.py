"""An expert's breaker as requests that overlap see it."""

from mild.gateway.settings import BreakerSettings, ExpertSettings
from mild.gateway.shared import open_shared
from mild.gateway.upstream.capacity import CAPACITY_COLUMNS
from mild.gateway.upstream.desk import Desk
from mild.endpoints.client import ExpertError

CUT = ExpertError("cut", "a test")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def half_open(clock):
    """A desk whose breaker is half-open, its probe, and two requests from before it opened."""
    breaker = BreakerSettings(failures=1, window_seconds=10, open_seconds=5)
    expert = ExpertSettings("one", "http://x/v1", "m", breaker=breaker)
    desk = Desk(expert, open_shared(1, CAPACITY_COLUMNS, 0).cells, 0, 0, clock)
    first, early, late = desk.take(), desk.take(), desk.take()
    first.leave(CUT)
    clock.now += 6
    return desk, desk.take(), early, late


def test_only_the_probe_closes_or_opens_a_half_open_breaker():
    clock = Clock()
    desk, probe, early, late = half_open(clock)
    early.leave()
    assert desk.state() == "half-open"
    late.leave(CUT)
    assert desk.state() == "half-open"
    assert desk.take() is None
    probe.leave()
    assert desk.state() == "closed"
    assert desk.capacity.in_flight == 0


def test_an_old_failure_does_not_hide_that_the_probe_failed():
    clock = Clock()
    desk, probe, early, _ = half_open(clock)
    early.leave()
    probe.leave(CUT)
    assert desk.state() == "open"
    clock.now += 4.9
    assert desk.take() is None


def test_a_place_is_left_once():
    desk, probe, *_ = half_open(Clock())
    probe.leave()
    probe.leave(CUT)
    assert desk.state() == "closed"

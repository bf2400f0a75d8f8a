"""An expert's breaker as requests that overlap see it."""

from mild.endpoints.errors import ExpertError
from mild.endpoints.expert import BreakerSettings, Expert
from mild.gateway.shared import EXPERT_COLUMNS, Counters
from mild.gateway.upstream.expert_client import ExpertClient

CUT = ExpertError("cut", "a test")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def half_open(clock):
    """A client whose breaker is half-open, its probe, and two requests from before it opened."""
    breaker = BreakerSettings(failures=1, window_seconds=10, open_seconds=5)
    expert = Expert("one", "http://x/v1", "m", breaker=breaker)
    client = ExpertClient(expert, Counters(1, EXPERT_COLUMNS), 0, 0, clock)
    first, early, late = client.acquire(), client.acquire(), client.acquire()
    first.release(CUT)
    clock.now += 6
    return client, client.acquire(), early, late


def test_only_the_probe_closes_or_opens_a_half_open_breaker():
    clock = Clock()
    client, probe, early, late = half_open(clock)
    early.release()
    assert client.state() == "half-open"
    late.release(CUT)
    assert client.state() == "half-open"
    assert client.acquire() is None
    probe.release()
    assert client.state() == "closed"
    assert client.capacity.in_flight == 0


def test_an_old_failure_does_not_hide_that_the_probe_failed():
    clock = Clock()
    client, probe, early, _ = half_open(clock)
    early.release()
    probe.release(CUT)
    assert client.state() == "open"
    clock.now += 4.9
    assert client.acquire() is None


def test_a_permit_is_released_once():
    client, probe, *_ = half_open(Clock())
    probe.release()
    probe.release(CUT)
    assert client.state() == "closed"

"""An expert's breaker as requests that overlap see it."""

import logging

import pytest

from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import BreakerSettings, Expert
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.shared import EXPERT_COLUMNS, Counters

CUT = ExpertError("cut", "a test")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def half_open(clock):
    """A client whose breaker is half-open, its probe, and two requests from before it opened."""
    breaker = BreakerSettings(failures=1, window_seconds=10, open_seconds=5)
    expert = Expert("one", "http://x/v1", "m", breaker=breaker)
    client = ExpertClient(
        expert, Counters(1, EXPERT_COLUMNS), 0, 0, clock, has_one_caller=lambda: True
    )
    first, early, late = client.acquire(), client.acquire(), client.acquire()
    first.release(CUT)
    clock.now += 6
    return client, client.acquire(), early, late


def finish(permit):
    permit.answered()
    permit.release()


def test_only_the_probe_closes_or_opens_a_half_open_breaker():
    clock = Clock()
    client, probe, early, late = half_open(clock)
    finish(early)
    assert client.state() == "half-open"
    late.release(CUT)
    assert client.state() == "half-open"
    finish(probe)
    assert client.state() == "closed"
    assert client.capacity.in_flight == 0


def test_a_probe_succeeds_when_its_answer_begins():
    client, probe, *_ = half_open(Clock())
    probe.answered()
    assert client.state() == "closed"
    # What becomes of the rest counts as that of any other call.
    probe.release(CUT)
    assert client.state() == "open"


def test_an_old_failure_does_not_hide_that_the_probe_failed():
    clock = Clock()
    client, probe, early, _ = half_open(clock)
    finish(early)
    probe.release(CUT)
    assert client.state() == "open"
    clock.now += 4.9
    assert client.acquire() is None


def test_a_permit_is_released_once():
    client, probe, *_ = half_open(Clock())
    finish(probe)
    probe.release(CUT)
    assert client.state() == "closed"


def limited(status=429, retry_after=None):
    kind = "rate" if status == 429 else "server"
    return ExpertError(kind, "a test", status, retry_after)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (limited(), 1),
        (limited(retry_after=20), 20),
        (limited(retry_after=3600), 30),
        (limited(503, 3600), 30),
        (limited(503), 0),
        # A request may provoke it, so it closes nothing for the others.
        (limited(500, 3600), 0),
    ],
)
def test_a_cool_down_is_what_the_expert_asks_for_within_a_limit(error, seconds):
    client = ExpertClient(
        Expert("one", "http://x/v1", "m"), Counters(1, EXPERT_COLUMNS), 0, 0, Clock()
    )
    client.acquire().release(error)
    assert client.cool_down() == seconds
    assert client.is_free() == (seconds == 0)


def test_a_cool_down_holds_for_all_workers_until_the_one_that_met_it_ends_it(caplog):
    breaker = BreakerSettings(max_cool_down_seconds=7)
    expert, counters = (
        Expert("one", "http://x/v1", "m", breaker=breaker),
        Counters(2, EXPERT_COLUMNS),
    )
    first, second = (ExpertClient(expert, counters, k, 0, Clock()) for k in range(2))
    permits = first.acquire(), first.acquire()
    with caplog.at_level(logging.WARNING, "mild_gateway"):
        for permit in permits:
            permit.release(limited(retry_after=60))
    assert second.cool_down() == 7
    assert second.acquire() is None
    assert second.wait() == (7, "pause")
    second.end_cool_down()
    assert not second.is_free()
    first.end_cool_down()
    assert second.is_free()
    assert len(caplog.records) == 1

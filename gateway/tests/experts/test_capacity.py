import os

from mild_gateway.experts.capacity import Capacity
from mild_gateway.experts.expert import Expert
from mild_gateway.shared import EXPERT_COLUMNS, Counters


class Clock:
    now = 6000.0

    def __call__(self):
        return self.now


def two_workers(clock, **limits):
    counters = Counters(2, EXPERT_COLUMNS)
    expert = Expert("small", "http://x/v1", "m", **limits)
    return [Capacity(expert, counters, worker, 0, clock) for worker in (0, 1)]


def take(capacity):
    """Take a place if there is one."""
    is_free = capacity.wait() == 0
    if is_free:
        capacity.take()
    return is_free


def test_places_are_counted_over_all_workers():
    one, two = two_workers(Clock(), max_in_flight=3)
    assert [take(one), take(two), take(one), take(two), take(one)] == [True] * 3 + [False] * 2
    two.release()
    assert one.in_flight == 2
    assert take(two)


def test_requests_per_minute_are_counted_over_all_workers():
    clock = Clock()
    one, two = two_workers(clock, requests_per_minute=4)
    assert [take(one), take(two), take(one), take(two), take(one)] == [True] * 4 + [False]
    for capacity in (one, one, two, two):
        capacity.release()
    assert two.wait() > 0
    assert 1 <= one.wait() <= 60


def test_a_minute_slides():
    clock = Clock()
    one, _ = two_workers(clock, requests_per_minute=4)
    for _ in range(4):
        assert take(one)
    clock.now += 75  # a quarter of the next minute: three of the four still count
    assert take(one)
    assert not take(one)
    clock.now += 120
    assert sum(take(one) for _ in range(6)) == 4


def test_a_worker_that_takes_a_dead_ones_place_starts_at_none():
    clock = Clock()
    counters = Counters(1, EXPERT_COLUMNS)
    expert = Expert("small", "http://x/v1", "m", max_in_flight=1)
    take(Capacity(expert, counters, 0, 0, clock))
    assert take(Capacity(expert, counters, 0, 0, clock))


def test_without_limits_there_is_always_room():
    one, _ = two_workers(Clock())
    assert all(take(one) for _ in range(1000))


def test_forked_processes_count_in_the_same_memory():
    counters = Counters(2, EXPERT_COLUMNS)
    child = os.fork()
    if child == 0:
        counters.rows[1][2] = 2.5
        os._exit(0)
    os.waitpid(child, 0)
    counters.rows[0][2] = 1.0
    assert counters.total(2) == 3.5

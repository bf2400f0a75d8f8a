"""Requests per minute: never more in any 60 seconds, and all of them where they are due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from mild.gateway.access.owners import new_owner
from mild.gateway.access.pace import Minute, Slots
from mild.gateway.access.sqlite import SqliteStore
from mild.gateway.access.store import Exchange

# In 64ths of a second, so that sums of floats are exact.
STEPS = st.lists(st.integers(0, 20 * 64).map(lambda n: n / 64), min_size=1, max_size=80)


def busiest(times, seconds=60.0):
    """Most events in any window [t, t + seconds)."""
    return max((sum(start <= t < start + seconds for t in times) for start in times), default=0)


@given(st.integers(1, 7), STEPS)
def test_one_worker_is_exact(limit, steps):
    """Compared with counting by hand: served if and only if fewer than the limit were in 60 seconds."""
    minute, served, now = Minute(limit), [], 1000.0
    for step in steps:
        now += step
        wait = minute.wait(now)
        recent = [t for t in served if t > now - 60.0]
        assert (wait == 0.0) == (len(recent) < limit)
        if wait:
            assert wait == recent[0] + 60.0 - now
        else:
            served.append(now)
    assert busiest(served) <= limit


def test_a_clock_that_is_set_back_closes_the_door_for_a_minute_at_most():
    minute = Minute(1)
    assert minute.wait(10_000.0) == 0.0
    assert minute.wait(1_000.0) == 0.0
    assert minute.wait(1_001.0) == 59.0


@given_settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([0.0, 0.3, 1.0, 2.1, 7.0, 19.0]),
            st.sampled_from(["ask", "ask", "ask", "beat"]),
        ),
        max_size=80,
    ),
)
def test_workers_together_never_exceed_the_minute(limit, events):
    store = SqliteStore(":memory:")
    store.open()
    owner = new_owner()
    workers = [Slots("key:a", limit) for _ in range(3)]
    served, now = [], 1000.0
    for place, step, kind in events:
        now += step
        slots = workers[place]
        if kind == "beat":
            returned = [] if slots.beat() else slots.give_back()
            store.exchange(Exchange(owner, now, 3, slot_returns=returned, beat=True))
            continue
        if slots.take(now):
            served.append(now)
            continue
        asked = Exchange(owner, now, 3, slot_returns=slots.give_back(), slot_draws=[slots.draw(1)])
        grant = store.exchange(asked).slots["key:a"]
        slots.receive(grant)
        if slots.take(now):
            served.append(now)
        else:
            assert grant.slots == 0
            assert 0 < slots.refuse(grant, now) <= 62
    assert busiest(served) <= limit
    store.close()


def test_a_stock_grows_with_use_and_goes_back_when_it_is_quiet():
    store = SqliteStore(":memory:")
    store.open()
    owner, slots, now = new_owner(), Slots("a", 1000), 50.0

    def fetch():
        asked = Exchange(owner, now, 2, slot_returns=slots.give_back(), slot_draws=[slots.draw(1)])
        grant = store.exchange(asked).slots["a"]
        slots.receive(grant)
        return grant.slots

    assert fetch() == 1
    for _ in range(20):
        if not slots.take(now):
            fetch()
            assert slots.take(now)
    assert fetch() > 10
    assert slots.beat()
    assert slots.beat()
    assert not slots.beat()
    left = slots.give_back()
    assert left[0].slots > 10
    assert slots.give_back() == []
    slots.restore(left[0])
    assert slots.give_back() == left
    store.close()


def test_old_slots_are_of_no_use():
    slots = Slots("a", 10)
    store = SqliteStore(":memory:")
    store.open()
    slots.receive(
        store.exchange(Exchange(new_owner(), 100.7, slot_draws=[slots.draw(1)])).slots["a"]
    )
    assert not slots.take(102.0)
    assert slots.take(101.9)
    store.close()

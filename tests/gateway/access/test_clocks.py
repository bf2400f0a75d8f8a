"""Gateways whose clocks differ share one minute, and know who lives: the database's clock counts."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import pytest

from mild.gateway.access import Access, open_store
from mild.gateway.access import courier as courier_module
from mild.gateway.access.store import AccountKey, Draw, Exchange, Owner, SlotDraw
from mild.gateway.config import AccessSettings, Settings
from mild.gateway.ledger.places import open_book
from mild.gateway.page.looking import look
from mild.gateway.refusals import Refusal

ACCOUNT = AccountKey("*", "2026-11-15")
# Seconds by which the second machine's clock is wrong.
WRONG = pytest.mark.parametrize("wrong", [-7200.0, -180.0, 180.0, 7200.0])


def at(name):
    """A worker of a machine of its own."""
    return Owner(name, f"host of {name}", 1, 1)


@pytest.fixture
def stores(postgres):
    pair = [open_store(postgres.address) for _ in range(2)]
    for store in pair:
        store.open()
    yield pair
    for store in pair:
        store.close()


@WRONG
def test_a_minute_is_the_same_for_all_clocks(stores, wrong):
    right, other = stores
    draw = SlotDraw("key:a", 10, 6, 0)

    def ask(store, name, ahead=0.0):
        asked = Exchange(at(name), time.time() + ahead, slot_draws=[draw], beat=True)
        return store.exchange(asked).slots["key:a"]

    assert ask(right, "a").slots == 6
    assert ask(other, "b", wrong).slots == 4
    # The beat of the other has not made anybody forget.
    full = ask(right, "a")
    assert full.slots == 0
    assert 0 < full.retry_after <= 62
    late = ask(other, "b", wrong)
    assert late.slots == 0
    assert 0 < late.retry_after <= 62


@WRONG
def test_requests_per_minute_hold_over_gateways_with_different_clocks(postgres, wrong, monkeypatch):
    monkeypatch.setattr(courier_module, "BEAT_SECONDS", 0.05)
    settings = Settings(store=postgres.address, access=AccessSettings(requests_per_minute=40))

    async def test():
        gateways = [
            Access(settings),
            Access(settings, clock=lambda: time.time() + wrong),
        ]
        for access in gateways:
            await access.start()
        served, codes, turns = [0, 0], set(), 0
        end = time.monotonic() + 20.0
        # Two seconds after the last slot has gone, with many beats and some new questions.
        while turns < 100 and time.monotonic() < end:
            turns += sum(served) >= 40
            for place, access in enumerate(gateways):
                try:
                    await access.admit(access.identify(None))
                    served[place] += 1
                except Refusal as refusal:
                    codes.add(refusal.code)
            await asyncio.sleep(0.02)
        for access in gateways:
            await access.close()
        return served, codes

    served, codes = asyncio.run(test())
    assert sum(served) == 40
    assert codes == {"rate_limit_exceeded"}
    # Whose clock is wrong is served as well.
    assert min(served) >= 5


@WRONG
def test_nobody_is_buried_because_a_clock_was_set(stores, wrong):
    """A machine may be connected long before its clock is put right."""
    right, other = stores
    for store, name in ((right, "a"), (other, "b")):
        draws = [Draw(ACCOUNT, 100, 30, 0)]
        store.exchange(Exchange(at(name), time.time(), number=1, draws=draws))
    for number in (2, 3):
        set_anew = Exchange(at("b"), time.time() + wrong, number=number, beat=True)
        assert not other.exchange(set_anew).lost
        assert not right.exchange(Exchange(at("a"), time.time(), number=number, beat=True)).lost
    assert right.totals([ACCOUNT.period])[ACCOUNT] == (0, 60, 0)


@WRONG
def test_the_page_shows_workers_of_all_clocks(postgres, monkeypatch, wrong):
    now = time.time()
    monkeypatch.setattr("socket.gethostname", lambda: "a")
    right = open_book(postgres.address, False, 1.0)
    monkeypatch.setattr("socket.gethostname", lambda: "b")
    other = open_book(postgres.address, False, 1.0)
    with closing(right), closing(other):
        right.publish(now, {})
        other.publish(now + wrong, {})
        ages = [worker["age"] for worker in look(postgres.address, now + wrong).workers]
    assert len(ages) == 2
    assert max(ages) < 60

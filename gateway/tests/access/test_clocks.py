"""Gateways whose clocks differ share one minute and one list of workers: the database's clock counts."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from mild_gateway.access import Access, AccessStore
from mild_gateway.access.accounts import WINDOW, Account, Batch, Claim
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.dashboard.ledger_snapshot import read_snapshot
from mild_gateway.ledger.store import LedgerStore
from mild_gateway.refusals import Refusal

DAY = Account("*", "2026-11-15")
# Seconds by which the second machine's clock is wrong.
WRONG = pytest.mark.parametrize("wrong", [-7200.0, 180.0])


def clock_of(wrong):
    return lambda: time.time() + wrong


@pytest.fixture
def stores(postgres, wrong):
    pair = [AccessStore(postgres.address), AccessStore(postgres.address, clock_of(wrong))]
    for store in pair:
        store.open()
    yield pair
    for store in pair:
        store.close()


@WRONG
def test_a_minute_is_the_same_for_all_clocks(stores):
    numbers = iter(range(1000))

    def ask(store, count):
        claims = [Claim(f"r{next(numbers)}", (), (), 0, "key:a", 10) for _ in range(count)]
        store.apply(Batch(f"b{next(numbers)}", None, claims), 60.0)
        # The refresh of the other makes nobody forget.
        store.refresh("w", 0)
        for claim in claims:
            assert claim.denial is None or 0 < claim.denial.wait <= WINDOW
        return sum(claim.denial is None for claim in claims)

    right, other = stores
    assert [ask(right, 6), ask(other, 6), ask(right, 6), ask(other, 6)] == [6, 4, 0, 0]


@WRONG
async def test_requests_per_minute_hold_over_gateways_with_different_clocks(postgres, wrong):
    settings = Settings(store=postgres.address, access=AccessSettings(requests_per_minute=40))
    gateways = [Access(settings), Access(settings, clock=clock_of(wrong))]
    for access in gateways:
        await access.start()
    served, codes = [0, 0], set()
    for _ in range(40):
        for place, access in enumerate(gateways):
            guest = access.identify(None)
            try:
                await access.admit(guest)
                access.settle(await access.reserve(guest, 0.0), 0.0)
                served[place] += 1
            except Refusal as refusal:
                codes.add(refusal.code)
    for access in gateways:
        await access.close()
    assert served == [20, 20]
    assert codes == {"rate_limit_exceeded"}


@WRONG
def test_nothing_expires_because_a_clock_was_set(stores):
    right, other = stores
    for number, store in enumerate((right, other)):
        claim = Claim(f"r{number}", [DAY], [100], 30)
        store.apply(Batch(f"b{number}", None, [claim]), 60.0)
    assert right.refresh("a", 0).expired == other.refresh("b", 0).expired == []
    assert right.totals([DAY.period])[DAY] == (0, 60, 0)


@WRONG
def test_the_page_shows_workers_of_all_clocks(postgres, monkeypatch, wrong):
    now = time.time()
    monkeypatch.setattr("socket.gethostname", lambda: "a")
    right = LedgerStore(postgres.address)
    monkeypatch.setattr("socket.gethostname", lambda: "b")
    other = LedgerStore(postgres.address)
    with closing(right), closing(other):
        right.publish(now, {})
        other.publish(now + wrong, {})
        ages = [worker["age"] for worker in read_snapshot(postgres.address, now + wrong).workers]
    assert len(ages) == 2
    assert max(ages) < 60

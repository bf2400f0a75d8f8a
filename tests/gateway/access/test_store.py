"""The store, in a file and in a database alike."""

from __future__ import annotations

import threading
import time

import pytest

from mild.errors import InvalidInputError
from mild.gateway.access import open_store
from mild.gateway.access.keys import Key, digest_of, hint_of, new_key
from mild.gateway.access.owners import new_owner
from mild.gateway.access.store import (
    AccountKey,
    Draw,
    Exchange,
    Owner,
    Report,
    SlotDraw,
    SlotReturn,
    StoreDoubtError,
    StoreError,
)
from mild.gateway.database import Address, DatabaseError
from store_cases import LostTransaction

ACCOUNT = AccountKey("*", "2026-11-15")
OTHER = AccountKey("key:a", "2026-11-15")


@pytest.fixture
def store(store_place):
    opened = open_store(store_place)
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def told_time(store_place, monkeypatch):
    """The database's clock shows what the exchange says."""
    if isinstance(store_place, Address):
        monkeypatch.setattr(
            "mild.gateway.database.postgres.PostgresDatabase.time", lambda self, now: now
        )


def key_of(store, name, **more):
    text = new_key()
    return text, Key(name, digest_of(text, store.salt()), hint_of(text), 1.0, **more)


def at(name):
    """A worker of a machine of its own."""
    return Owner(name, f"host of {name}", 1, 1)


def total(store, account=ACCOUNT):
    return store.totals([account.period])[account]


def test_a_name_is_used_once_until_it_is_revoked(store):
    store.add_key(key_of(store, "a")[1])
    with pytest.raises(InvalidInputError, match="'a' has one"):
        store.add_key(key_of(store, "a")[1])
    store.revoke_key("a", 7.0)
    assert store.read_keys()[0].revoked == 7.0
    with pytest.raises(InvalidInputError, match=r"that of a key \(none\); got 'a'"):
        store.revoke_key("a", 8.0)
    store.add_key(key_of(store, "a")[1])
    assert [key.revoked for key in store.read_keys()] == [None]


def test_keys_come_with_an_exchange_when_they_have_changed(store):
    owner = new_owner()
    first = store.exchange(Exchange(owner, 1.0))
    assert first.keys == []
    assert first.salt == store.salt()
    assert store.exchange(Exchange(owner, 1.0, keys_version=first.keys_version)).keys is None
    store.add_key(key_of(store, "a")[1])
    again = store.exchange(Exchange(owner, 1.0, keys_version=first.keys_version))
    assert [key.name for key in again.keys] == ["a"]


def test_an_exchange_happens_as_a_whole_or_not_at_all(store, monkeypatch):
    owner = new_owner()
    store.exchange(Exchange(owner, 1.0))

    def fail(*_):
        raise DatabaseError("database or disk is full")

    monkeypatch.setattr("mild.gateway.access.sql.store.grant", fail)
    with pytest.raises(StoreError, match="disk is full"):
        store.exchange(
            Exchange(owner, 1.0, reports=[Report(ACCOUNT, 5, 0, 5)], draws=[Draw(ACCOUNT, 9, 1, 0)])
        )
    monkeypatch.undo()
    assert store.totals([ACCOUNT.period]) == {}


def test_workers_that_start_at_once_make_one_store(store_place):
    salts, errors = [], []

    def begin():
        store = open_store(store_place)
        try:
            store.open()
            salts.append(store.salt())
            store.close()
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(salts) == 8
    assert len(set(salts)) == 1


def test_a_closed_store_says_so(store_place):
    with pytest.raises(StoreError, match="not open"):
        open_store(store_place).read_keys()


def test_an_exchange_costs_little(store):
    owner = new_owner()
    draw = Draw(ACCOUNT, 10**12, 1, 0)
    start = time.perf_counter()
    for _ in range(100):
        store.exchange(Exchange(owner, 1.0, reports=[Report(ACCOUNT, 1, 1, 0)], draws=[draw]))
    # Far above what it takes on a slow disk: waiting for others to let go would show.
    assert time.perf_counter() - start < 60


def test_what_is_granted_is_held_until_it_is_spent_or_given_back(store):
    one, two = at("one"), at("two")
    now = time.time()
    first = store.exchange(Exchange(one, now, number=1, draws=[Draw(ACCOUNT, 100, 60, 0)]))
    assert first.grants[ACCOUNT] == (60, 0)
    second = store.exchange(Exchange(two, now, number=1, draws=[Draw(ACCOUNT, 100, 60, 0)]))
    assert second.grants[ACCOUNT] == (40, 0)
    assert total(store) == (0, 100, 0)
    store.exchange(Exchange(one, now, number=2, reports=[Report(ACCOUNT, 25, 60, 0)]))
    assert total(store) == (25, 40, 0)
    third = store.exchange(Exchange(two, now, number=2, draws=[Draw(ACCOUNT, 100, 60, 0)]))
    assert third.grants[ACCOUNT] == (35, 25)


def test_a_stock_is_a_part_of_what_is_left_over_all_who_share(store):
    now = time.time()
    for name in ("one", "two", "three"):
        store.exchange(Exchange(at(name), now, number=1))
    done = store.exchange(Exchange(at("four"), now, number=1, draws=[Draw(ACCOUNT, 1000, 0, 999)]))
    assert done.workers == 4
    assert done.grants[ACCOUNT].amount == 1000 // 16


def test_who_leaves_gives_everything_back_but_what_it_still_holds(store):
    owner, now = at("one"), time.time()
    draws = [Draw(ACCOUNT, 100, 30, 0), Draw(OTHER, 100, 30, 0)]
    store.exchange(Exchange(owner, now, number=1, draws=draws))
    reports = [Report(ACCOUNT, 10, 30, 0)]
    store.exchange(Exchange(owner, now, number=2, reports=reports, beat=True, leaving=True))
    assert total(store) == (10, 0, 0)
    # Nobody knows what became of this.
    assert total(store, OTHER) == (30, 0, 30)


def test_a_silent_worker_is_buried_once_and_is_told_so_when_it_speaks(store_place, told_time):
    stores = [open_store(store_place) for _ in range(3)]
    for store in stores:
        store.open()
    now = time.time()
    silent = at("silent")
    stores[0].exchange(Exchange(silent, now, number=1, draws=[Draw(ACCOUNT, 100, 30, 0)]))
    late = now + 1000.0
    threads = [
        threading.Thread(
            target=store.exchange, args=(Exchange(at(f"w{place}"), late, number=1, beat=True),)
        )
        for place, store in enumerate(stores[1:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total(stores[1]) == (30, 0, 30)
    # Spent of what it held is counted already; what went beyond is not.
    again = stores[0].exchange(
        Exchange(silent, late, number=2, reports=[Report(ACCOUNT, 32, 30, 2)])
    )
    assert again.lost
    assert total(stores[1]) == (32, 0, 30)
    for store in stores:
        store.close()


def test_slots_of_a_minute_are_shared_and_come_back(store, told_time):
    now = 1_000_000.0
    draw = SlotDraw("key:a", 10, 4, 0)
    assert store.exchange(Exchange(at("a"), now, slot_draws=[draw])).slots["key:a"][:2] == (4, now)
    assert store.exchange(Exchange(at("b"), now, slot_draws=[draw])).slots["key:a"].slots == 4
    full = store.exchange(Exchange(at("a"), now + 1, slot_draws=[draw])).slots["key:a"]
    assert full.slots == 2
    assert full.retry_after == 61.0
    store.exchange(Exchange(at("a"), now + 1, slot_returns=[SlotReturn("key:a", int(now), 3)]))
    assert store.exchange(Exchange(at("b"), now + 1, slot_draws=[draw])).slots["key:a"].slots == 3
    late = store.exchange(Exchange(at("b"), now + 70, slot_draws=[draw], beat=True))
    assert late.slots["key:a"].slots == 4


@pytest.mark.parametrize("kept", [True, False])
def test_an_exchange_in_doubt_is_said_again_and_happens_once(store, monkeypatch, kept):
    owner, now = at("one"), time.time()
    store.exchange(Exchange(owner, now, number=1, draws=[Draw(ACCOUNT, 100, 50, 0)]))
    asked = Exchange(
        owner, now, number=2, reports=[Report(ACCOUNT, 20, 20, 0)], draws=[Draw(ACCOUNT, 100, 9, 0)]
    )
    kind = type(store._database)
    transaction = kind.transaction
    monkeypatch.setattr(kind, "transaction", lambda self: LostTransaction(transaction(self), kept))
    with pytest.raises(StoreDoubtError):
        store.exchange(asked)
    monkeypatch.undo()
    done = store.exchange(asked)
    assert done.grants[ACCOUNT].amount == 9
    assert not done.lost
    assert total(store) == (20, 39, 0)
    # Another one is another one, with the same words.
    store.exchange(Exchange(owner, now, number=3, reports=[Report(ACCOUNT, 1, 1, 0)]))
    assert total(store) == (21, 38, 0)


def test_many_at_once_never_get_more_than_there_is(store_place):
    """Threads with stores of their own draw and spend; nothing is granted or counted twice."""
    budget, errors, spent = 1000, [], []

    def work(place):
        store = open_store(store_place)
        store.open()
        owner, number, held = at(f"w{place}"), 0, 0
        try:
            for turn in range(25):
                number += 1
                accounts = [ACCOUNT, OTHER] if (turn + place) % 2 else [OTHER, ACCOUNT]
                done = store.exchange(
                    Exchange(
                        owner,
                        time.time(),
                        number=number,
                        reports=[Report(account, held, held, 0) for account in accounts if held],
                        draws=[Draw(account, budget, 7, 0) for account in accounts],
                        beat=turn % 5 == 0,
                        keys_version=1,
                    )
                )
                spent.append(held)
                granted = {grant.amount for grant in done.grants.values()}
                held = min(granted)
                assert len(granted) == 1, granted
            store.exchange(
                Exchange(
                    owner,
                    time.time(),
                    number=number + 1,
                    reports=[Report(account, held, held, 0) for account in (ACCOUNT, OTHER)],
                    leaving=True,
                )
            )
            spent.append(held)
        except (StoreError, AssertionError) as error:
            errors.append(error)
        store.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store = open_store(store_place)
    store.open()
    assert sum(spent) == budget
    assert total(store) == total(store, OTHER) == (budget, 0, 0)
    store.close()


def test_more_accounts_than_one_statement_holds_are_counted(store):
    owner, now = at("one"), time.time()
    accounts = [AccountKey(f"key:{place}", "2026-11-15") for place in range(2500)]
    store.exchange(Exchange(owner, now, number=1))
    store.exchange(
        Exchange(owner, now, number=2, reports=[Report(one, 1, 0, 1) for one in accounts])
    )
    assert store.totals(["2026-11-15"]) == dict.fromkeys(accounts, (1, 0, 0))


def test_workers_that_meet_at_new_accounts_never_wait_in_a_circle(store_place):
    """Some touch one account of a new day, others all four of it, in the same moment."""
    errors = []
    barrier = threading.Barrier(6)

    def work(place):
        store = open_store(store_place)
        store.open()
        for turn in range(15):
            accounts = [AccountKey(scope, f"day {turn}") for scope in ("*", "a", "b", "c")]
            if place % 2:
                accounts = accounts[place // 2 :][:1]
            reports = [Report(account, 1, 0, 1) for account in accounts]
            barrier.wait()
            try:
                store.exchange(
                    Exchange(at(f"w{place}"), time.time(), number=turn + 1, reports=reports)
                )
            except StoreError as error:
                errors.append(error)
        store.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []

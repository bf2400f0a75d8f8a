"""The store, in a file and in a database alike."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from mild.errors import InvalidInputError
from mild_gateway.access import AccessStore, StoreError
from mild_gateway.access.accounts import WINDOW, Account, Batch, Claim, Settlement
from mild_gateway.access.keys import Key, digest_of, hint_of, new_key
from mild_gateway.access.tables import accounts, processes
from store_cases import commits_in_doubt

DAY, OTHER = Account("*", "2026-11-15"), Account("key:a", "2026-11-15")
SECONDS = 60.0


@pytest.fixture
def store(store_place):
    opened = AccessStore(store_place)
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def clock(store, monkeypatch):
    """A clock that the test moves, also for a database."""
    now = [1_800_000_000.5]
    monkeypatch.setattr(store._database, "now", sa.bindparam("now"))
    store._clock = lambda: now[0]
    return now


def key_of(store, name, **more):
    text = new_key()
    return text, Key(name, digest_of(text, store.salt()), hint_of(text), 1.0, **more)


def claim(id, amount, budget=100, accounts=(DAY,), **more):
    return Claim(id, accounts, [budget] * len(accounts), amount, **more)


def apply(store, id, claims=(), settlements=(), previous=None):
    store.apply(Batch(id, previous, claims, settlements), SECONDS)
    return [one.denial is None for one in claims]


def total(store, account=DAY):
    return store.totals([account.period])[account]


def test_a_name_is_used_once_until_it_is_revoked(store):
    store.add_key(key_of(store, "a")[1])
    with pytest.raises(InvalidInputError, match="must not be in use; 'a' is"):
        store.add_key(key_of(store, "a")[1])
    store.revoke_key("a", 7.0)
    assert store.read_keys()[0].revoked == 7.0
    with pytest.raises(InvalidInputError, match=r"the name of a key \(none\); got 'a'"):
        store.revoke_key("a", 8.0)
    store.add_key(key_of(store, "a")[1])
    assert [key.revoked for key in store.read_keys()] == [None]


def test_keys_are_read_again_when_they_have_changed(store):
    first = store.refresh("w", 0)
    assert (first.keys, first.salt) == ([], store.salt())
    assert store.refresh("w", first.keys_version).keys is None
    store.add_key(key_of(store, "a")[1])
    assert [key.name for key in store.refresh("w", first.keys_version).keys] == ["a"]


def living(store):
    with store._database.transaction() as connection:
        return set(connection.scalars(sa.select(processes.c.name)))


def test_processes_are_known_until_they_leave_or_fall_silent(store, clock):
    for name in ("one", "two"):
        store.refresh(name, 0)
    assert living(store) == {"one", "two"}
    store.leave("two", None)
    assert living(store) == {"one"}
    clock[0] += 100
    store.refresh("three", 0)
    assert living(store) == {"three"}


def test_what_is_reserved_is_held_until_it_is_settled(store):
    assert apply(store, "b1", [claim("r1", 60), claim("r2", 50), claim("r3", 40)]) == [
        True,
        False,
        True,
    ]
    assert total(store) == (0, 100, 0)
    assert apply(store, "b2", [claim("r4", 35)], [Settlement([("r1", 60)], [DAY], 25)], "b1") == [
        True
    ]
    assert total(store) == (25, 75, 0)
    apply(
        store, "b3", (), [Settlement([("r3", 40)], [DAY], 0), Settlement([("r4", 35)], [DAY], 35)]
    )
    assert total(store) == (60, 0, 0)


def test_a_claim_is_granted_in_all_accounts_or_in_none(store):
    both = Claim("r1", [DAY, OTHER], [100, 10], 20, "key:a", 5)
    store.apply(Batch("b1", None, [both]), SECONDS)
    assert (both.denial.account, both.denial.spent) == (1, 0)
    assert total(store) == total(store, OTHER) == (0, 0, 0)
    # Nor was the request counted.
    tries = [Claim(f"t{i}", [DAY, OTHER], [100, 100], 1, "key:a", 5) for i in range(6)]
    assert apply(store, "b2", tries) == [True] * 5 + [False]
    assert tries[5].denial.wait > 50
    assert total(store) == total(store, OTHER) == (0, 5, 0)


ALICE, BOB = Account("key:alice", DAY.period), Account("key:bob", DAY.period)


def shared_claim(id, key, amount, budget=100):
    """A claim of a key on the budget that it shares with others."""
    return Claim(id, [key, DAY], [None, budget], amount, holder=key.scope)


def test_one_key_holds_at_most_half_of_what_is_left_of_a_common_budget(store):
    alice = [shared_claim(f"a{number}", ALICE, 20) for number in range(4)]
    assert apply(store, "b1", alice) == [True, True, False, False]
    assert alice[2].denial.over_share
    # The other half is for the others.
    assert apply(store, "b2", [shared_claim("b", BOB, 50)]) == [True]
    ends = [Settlement([("a0", 20)], [ALICE, DAY], 20), Settlement([("a1", 20)], [ALICE, DAY], 20)]
    ends.append(Settlement([("b", 50)], [BOB, DAY], 0))
    apply(store, "b3", (), ends)
    # 60 are left.
    late = [
        shared_claim("c1", ALICE, 31),
        shared_claim("c2", ALICE, 30),
        shared_claim("c3", ALICE, 1),
    ]
    assert apply(store, "b4", late) == [False, True, False]


def test_the_only_key_holds_all_of_a_common_budget(store):
    claims = [Claim(f"a{number}", [ALICE, DAY], [None, 100], 50) for number in range(3)]
    assert apply(store, "b1", claims) == [True, True, False]
    assert not claims[2].denial.over_share


def test_a_settlement_takes_effect_once(store):
    apply(store, "b1", [claim("r1", 30)])
    end = Settlement([("r1", 30)], [DAY], 10)
    apply(store, "b2", (), [end, end])
    apply(store, "b3", (), [end])
    assert total(store) == (10, 0, 0)


def test_an_endpoint_that_charges_more_is_charged(store):
    apply(store, "b1", [claim("r1", 30)])
    apply(store, "b2", (), [Settlement([("r1", 30)], [DAY], 45)])
    apply(store, "b3", (), [Settlement((), [DAY, OTHER], 5)])
    assert (total(store), total(store, OTHER)) == ((50, 0, 0), (5, 0, 0))


def test_a_reservation_that_has_expired_is_charged_in_full_once(store, clock):
    apply(store, "b1", [claim("r1", 30), claim("r2", 20, accounts=(DAY, OTHER))])
    assert store.refresh("w", 0).expired == []
    clock[0] += SECONDS + 1
    expired = store.refresh("w", 0).expired
    assert store.refresh("v", 0).expired == expired
    apply(store, "b2", (), expired)
    apply(store, "b3", (), expired)
    assert (total(store), total(store, OTHER)) == ((50, 0, 50), (20, 0, 20))
    # Whoever settles late is charged for what goes beyond.
    apply(
        store, "b4", (), [Settlement([("r1", 30)], [DAY], 10), Settlement([("r2", 20)], [DAY], 24)]
    )
    assert total(store) == (54, 0, 50)


@pytest.mark.parametrize("kept", [True, False])
def test_a_commit_in_doubt_is_told_from_one_that_was_lost(store, monkeypatch, kept):
    apply(store, "b1", [claim("r1", 30)])
    batch = Batch("b2", "b1", [claim("r2", 40)], [Settlement([("r1", 30)], [DAY], 10)])
    with commits_in_doubt(monkeypatch, kept) as lost, pytest.raises(StoreError):
        store.apply(batch, SECONDS)
    assert lost
    assert store.has_happened(batch) == kept
    assert total(store) == ((10, 40, 0) if kept else (0, 30, 0))


@pytest.mark.parametrize("rate", [None, 5])
def test_a_transaction_happens_as_a_whole_or_not_at_all(store, rate):
    """The settlement comes first, the row that exists already behind it."""
    apply(store, "b1", [claim("r1", 30), claim("r2", 5)])
    again = claim("r2", 5, scope="key:a", rate=rate)
    with pytest.raises(StoreError):
        apply(store, "b2", [again], [Settlement([("r1", 30)], [DAY], 10)])
    assert total(store) == (0, 35, 0)
    apply(store, "b3", [], [Settlement([("r1", 30)], [DAY], 10)])
    assert total(store) == (10, 5, 0)


def test_postgres_takes_a_batch_in_one_statement_that_reads_and_one_that_writes(postgres):
    """Each is an exchange with a server, for which every request waits."""
    store = AccessStore(postgres.address)
    store.open()
    apply(store, "b1", [claim("r1", 30, accounts=(DAY, OTHER), scope="key:a", rate=5)])
    seen = []
    engine = store._database._connection.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *found: seen.append(found[2]))
    claims = [claim(f"r{number}", 7, accounts=(DAY, OTHER)) for number in range(2, 8)]
    ends = [Settlement([("r1", 30)], [DAY, OTHER], 10)]
    assert apply(store, "b2", claims, ends, "b1") == [True] * 6
    assert len(seen) == 2
    apply(store, "b3", [claim("r9", 1, scope="key:a", rate=5)], (), "b2")
    # Requests of the last minute are read under the lock.
    assert len(seen) == 5
    assert total(store) == total(store, OTHER)._replace(held=43) == (10, 43, 0)
    store.close()


def test_in_no_60_seconds_are_more_requests_than_the_limit(store, clock):
    def ask(number):
        one = Claim(f"x{number}", (), (), 0, "key:a", 10)
        store.apply(Batch(f"b{number}", None, [one]), SECONDS)
        return one.denial

    served = []
    for number in range(350):
        denial = ask(number)
        if denial is None:
            served.append(clock[0])
        else:
            assert 0 < denial.wait <= WINDOW
        clock[0] += 0.74
        if number % 25 == 0:
            store.refresh("w", 0)
    for first in range(len(served) - 10):
        assert served[first + 10] - served[first] > 60
    # And they can all be used.
    assert len(served) >= 10 * int(350 * 0.74 / 62)


def test_rows_that_somebody_has_deleted_are_created_again(store):
    apply(store, "b1", [claim("r1", 30)])
    with store._database.transaction() as connection:
        connection.execute(accounts.delete())
    assert apply(store, "b2", [claim("r2", 30)]) == [True]


def test_workers_that_start_at_once_make_one_store(store_place):
    salts, errors = [], []

    def begin():
        store = AccessStore(store_place)
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
        AccessStore(store_place).read_keys()


def test_many_at_once_never_get_more_than_there_is(store_place):
    """Threads with stores of their own reserve and settle; nothing is granted or charged twice."""
    budget, errors, spent = 1000, [], []

    def work(place):
        store = AccessStore(store_place)
        store.open()
        open_ones, previous = [], None
        try:
            for turn in range(25):
                both = (DAY, OTHER) if (turn + place) % 2 else (OTHER, DAY)
                one = claim(f"r{place}-{turn}", 7, budget, both)
                ends = [Settlement([(id, 7)], both, 5) for id in open_ones]
                apply(store, f"b{place}-{turn}", [one], ends, previous)
                previous = f"b{place}-{turn}"
                spent.append(5 * len(open_ones))
                open_ones = [one.id] if one.denial is None else []
            apply(
                store, f"b{place}", (), [Settlement([(id, 7)], (DAY, OTHER), 5) for id in open_ones]
            )
            spent.append(5 * len(open_ones))
        except Exception as error:
            errors.append(error)
        store.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store = AccessStore(store_place)
    store.open()
    assert total(store) == total(store, OTHER) == (sum(spent), 0, 0)
    assert budget - 12 <= sum(spent) <= budget
    store.close()


def test_workers_that_meet_at_new_accounts_never_wait_in_a_circle(store_place):
    """Some touch one account of a new day, others all four of it, in the same moment."""
    errors, barrier = [], threading.Barrier(6)

    def work(place):
        store = AccessStore(store_place)
        store.open()
        for turn in range(15):
            some = [Account(scope, f"day {turn}") for scope in ("*", "a", "b", "c")]
            if place % 2:
                some = some[place // 2 :][:1]
            barrier.wait()
            try:
                apply(store, f"b{place}-{turn}", (), [Settlement((), some, 1)])
            except Exception as error:
                errors.append(error)
        store.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_more_accounts_than_one_statement_holds_are_counted(store):
    many = [Account(f"key:{place}", "2026-11-15") for place in range(2500)]
    apply(store, "b1", (), [Settlement((), [account], 1) for account in many])
    assert store.totals(["2026-11-15"]) == dict.fromkeys(many, (1, 0, 0))


def test_a_connection_that_was_lost_while_nobody_asked_is_replaced(postgres):
    store = AccessStore(postgres.address)
    store.open()
    apply(store, "b1", [claim("r1", 30)])
    postgres.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'mild' AND datname = current_database()"
    )
    ends = [Settlement([("r1", 30)], [DAY], 10)]
    assert apply(store, "b2", [claim("r2", 40), claim("r3", 60)], ends, "b1") == [True, False]
    assert total(store) == (10, 40, 0)
    store.close()

"""Keys, rate limits and budgets, as the server uses them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from mild.errors import DataFileError, InvalidInputError
from mild_gateway.access import Access, AccessStore
from mild_gateway.access import writer as writer_module
from mild_gateway.access.dollars import parts_of
from mild_gateway.access.keys import Key, digest_of, hint_of, new_key
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.refusals import Refusal
from waiting import PATIENCE, until

NOON = 1_800_014_400.0  # 2027-01-15 12:00 UTC


@pytest.fixture
def place(store_place, monkeypatch):
    """A store, a clock that the test moves, quick beats, and keys."""
    return make_place(store_place, monkeypatch)


@pytest.fixture
def file_place(tmp_path, monkeypatch):
    """The same, with a file."""
    return make_place(str(tmp_path / "mild.sqlite"), monkeypatch)


def make_place(path, monkeypatch):
    monkeypatch.setattr(writer_module, "REFRESH_SECONDS", 0.05)
    here = SimpleNamespace(now=NOON, path=path)

    def store():
        opened = AccessStore(path)
        opened.open()
        return opened

    def add_key(name, day=None, month=None, rpm=None):
        opened, text = store(), new_key()
        dollars = [None if value is None else parts_of(value) for value in (day, month)]
        opened.add_key(
            Key(name, digest_of(text, opened.salt()), hint_of(text), 1.0, None, *dollars, rpm)
        )
        opened.close()
        return f"Bearer {text}"

    def access(workers=1, host="127.0.0.1", patience=5.0, **limits):
        settings = Settings(store=path, workers=workers, host=host, access=AccessSettings(**limits))
        store = AccessStore(path, lambda: here.now, patience)
        return Access(settings, store, clock=lambda: here.now)

    here.store, here.add_key, here.access = store, add_key, access
    return here


def run(test):
    """Run a coroutine function to its end, with time for a few beats."""
    return asyncio.run(asyncio.wait_for(test(), PATIENCE))


def refused(caught, status, code):
    refusal = caught.value
    assert (refusal.status, refusal.code) == (status, code)
    return refusal


class Started:
    def __init__(self, access):
        self.access = access

    async def __aenter__(self):
        await self.access.start()
        return self.access

    async def __aexit__(self, *_):
        await self.access.close()


async def test_a_known_key_is_its_callers(place):
    key = place.add_key("alice", day=5, rpm=60)
    async with Started(place.access(host="0.0.0.0")) as access:
        caller = access.identify(key)
        assert (caller.name, caller.requests_per_minute) == ("alice", 60)
        assert access.identify(key.replace("Bearer", "bearer")) is caller


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "Bearer sk-1",
        "Bearer " + "x" * 5000,
        "Bearer ключ",
        "\x00",
    ],
)
async def test_without_a_known_key_nobody_passes_where_one_is_needed(place, authorization):
    place.add_key("alice")
    async with Started(place.access(host="0.0.0.0")) as access:
        with pytest.raises(Refusal) as caught:
            access.identify(authorization)
        refusal = refused(caught, 401, "invalid_api_key")
        assert refusal.headers["WWW-Authenticate"] == "Bearer"
        assert (
            not authorization or authorization[7:] not in refusal.message or len(authorization) < 8
        )


async def test_where_no_key_is_needed_any_word_will_do_but_not_a_false_key_of_ours(place):
    key = place.add_key("alice")
    async with Started(place.access()) as access:
        for word in (None, "Bearer sk-anything", "Basic x"):
            assert access.identify(word).name == "anonymous"
        assert access.identify(key).name == "alice"
        with pytest.raises(Refusal) as caught:
            access.identify("Bearer mild-wrong")
        refused(caught, 401, "invalid_api_key")


async def test_keys_are_added_and_revoked_while_it_runs(place):
    async with Started(place.access(host="0.0.0.0")) as access:
        key = place.add_key("late")

        def is_known():
            try:
                return access.identify(key).name == "late"
            except Refusal:
                return False

        assert not is_known()
        await until(is_known)
        store = place.store()
        store.revoke_key("late", 2.0)
        store.close()
        await until(lambda: not is_known())


async def request(access, caller, dollars=0.0):
    """A request from its admission to its end."""
    await access.admit(caller)
    reservation = await access.reserve(caller, dollars)
    await asyncio.sleep(0)
    access.settle(reservation, dollars / 2)


async def test_requests_per_minute_are_counted_by_the_second(file_place):
    key = file_place.add_key("alice", rpm=3)
    async with Started(file_place.access(requests_per_minute=2)) as access:
        alice, guest = access.identify(key), access.identify(None)
        for _ in range(3):
            await request(access, alice)
        # The store says so, and then the worker itself.
        for _ in range(2):
            with pytest.raises(Refusal) as caught:
                await request(access, alice)
            assert refused(caught, 429, "rate_limit_exceeded").headers["Retry-After"] == "61"
        await request(access, guest)
        await request(access, guest)
        with pytest.raises(Refusal):
            await request(access, guest)
        file_place.now += 60.1
        with pytest.raises(Refusal) as caught:
            await request(access, alice)
        assert caught.value.headers["Retry-After"] == "1"
        file_place.now += 0.9
        await request(access, alice)


async def test_requests_per_minute_hold_over_two_workers_and_all_can_be_used(place):
    key = place.add_key("alice", rpm=50)
    async with Started(place.access(workers=2)) as one, Started(place.access(workers=2)) as two:
        served = 0
        for turn in range(100):
            access = (one, two)[turn % 7 == 0]
            try:
                await request(access, access.identify(key))
                served += 1
            except Refusal as refusal:
                refused(SimpleNamespace(value=refusal), 429, "rate_limit_exceeded")
        assert served == 50


async def test_with_an_ample_budget_nothing_is_refused(place):
    """Many requests at once on two workers, each of which reserves far more than it costs."""
    key = place.add_key("alice", day=1000, month=1000, rpm=100_000)
    limits = {"workers": 2, "budget_day": 1000, "budget_month": 1000}
    async with Started(place.access(**limits)) as one, Started(place.access(**limits)) as two:
        left = iter(range(1500))

        async def client(access):
            for _ in left:
                await request(access, access.identify(key), 1.0)

        await asyncio.gather(*(client(access) for access in (one, two) for _ in range(32)))
        await until(lambda: one.spend()["all"]["day"]["held"] == 0.0)
        await until(lambda: one.spend()["all"]["day"]["spent"] == 750.0)


async def test_those_who_wait_at_the_same_moment_share_a_transaction(place, monkeypatch):
    sizes = []
    apply = AccessStore.apply

    def counted(store, batch, seconds):
        sizes.append(len(batch.claims) + len(batch.settlements))
        return apply(store, batch, seconds)

    monkeypatch.setattr(AccessStore, "apply", counted)
    async with Started(place.access(budget_day=1)) as access:
        await asyncio.gather(*(request(access, access.identify(None), 0.001) for _ in range(100)))
    assert sum(sizes) == 200
    assert len(sizes) < 40


def test_a_budget_serves_exactly_what_it_can_pay(place):
    key = place.add_key("alice", day=1)

    async def test():
        async with Started(place.access()) as access:
            alice, served, codes = access.identify(key), 0, set()

            async def ask():
                nonlocal served
                try:
                    reservation = await access.reserve(alice, 0.01)
                except Refusal as refusal:
                    codes.add(refusal.code)
                else:
                    await asyncio.sleep(0)
                    access.settle(reservation, 0.01)
                    served += 1

            await asyncio.gather(*(ask() for _ in range(300)))
            assert served == 100
            assert codes <= {"insufficient_quota", "budget_held"}
            with pytest.raises(Refusal) as caught:
                await access.reserve(alice, 0.01)
            refusal = refused(caught, 402, "insufficient_quota")
            assert refusal.kind == "insufficient_quota"
            assert refusal.headers["Retry-After"] == str(12 * 3600)
            assert refusal.message == (
                "The budget of alice for the day is $1.00, of which $0.00 is left; this request may "
                "cost $0.01. It renews at 2027-01-16 00:00 UTC."
            )
            access.settle(await access.reserve(alice, 0.0), 0.0)
            place.now += 12 * 3600
            access.settle(await access.reserve(alice, 0.5), 0.25)

        store = place.store()
        assert {
            key[1]: total.spent
            for key, total in store.totals(["2027-01-15", "2027-01-16", "2027-01"]).items()
            if key[0] == "*"
        } == {
            "2027-01-15": 10**9,
            "2027-01-16": 250_000_000,
            "2027-01": 1_250_000_000,
        }
        store.close()

    run(test)


async def test_money_that_is_only_held_is_a_matter_of_a_moment(place):
    async with Started(place.access(budget_month=1)) as access:
        guest = access.identify(None)
        first = await access.reserve(guest, 0.9)
        with pytest.raises(Refusal) as caught:
            await access.reserve(guest, 0.9)
        refusal = refused(caught, 429, "budget_held")
        assert refusal.message == (
            "The gateway's budget for the month has enough left for this request, which may cost "
            "$0.90, but requests in progress have reserved too much of it; try again in 1 second."
        )
        assert refusal.headers["Retry-After"] == "1"
        access.settle(first, 0.05)
        second = await access.reserve(guest, 0.9)
        access.settle(second, 0.0)
        access.settle(second, 0.0)
        access.settle(second, 0.9)
        third = await access.reserve(guest, 0.95)
        access.settle(third, 0.9)
        with pytest.raises(Refusal) as caught:
            await access.reserve(guest, 0.9)
        assert refused(caught, 402, "insufficient_quota").message == (
            "The gateway's budget for the month is $1.00, of which $0.05 is left; this request may "
            "cost $0.90. It renews at 2027-02-01 00:00 UTC; a request with a smaller max_tokens may "
            "fit now."
        )


async def test_what_a_request_cost_is_all_of_it_where_nobody_knows(place):
    async with Started(place.access(budget_day=100)) as access:
        guest = access.identify(None)
        for cost in (None, float("nan"), -1.0, float("inf")):
            access.settle(await access.reserve(guest, 2.0), cost)
        await until(lambda: access.spend()["all"]["day"]["spent"] == 8.0)
        for dollars in (-1.0, float("nan"), float("inf")):
            with pytest.raises(InvalidInputError):
                await access.reserve(guest, dollars)


async def test_more_can_be_put_aside_for_a_dearer_expert(place):
    async with Started(place.access(budget_day=1)) as access:
        guest = access.identify(None)
        reservation = await access.reserve(guest, 0.1)
        await access.enlarge(reservation, 0.05)
        await access.enlarge(reservation, 0.6)
        assert reservation.amount == parts_of(0.6)
        with pytest.raises(Refusal):
            await access.enlarge(reservation, 1.1)
        with pytest.raises(Refusal):
            await access.reserve(guest, 0.5)
        access.settle(reservation, 0.6)
        access.settle(await access.reserve(guest, 0.4), 0.4)
        await until(lambda: access.spend()["all"]["day"]["spent"] == 1.0)


async def test_what_one_worker_releases_another_can_reserve(place):
    async with (
        Started(place.access(workers=2, budget_day=1)) as one,
        Started(place.access(workers=2, budget_day=1)) as two,
    ):
        first = await one.reserve(one.identify(None), 0.7)
        with pytest.raises(Refusal) as caught:
            await two.reserve(two.identify(None), 0.7)
        refused(caught, 429, "budget_held")
        one.settle(first, 0.0)

        async def is_released():
            with contextlib.suppress(Refusal):
                two.settle(await two.reserve(two.identify(None), 1.0), 0.0)
                return True
            return False

        await until(is_released)


async def test_a_request_that_is_given_up_while_it_waits_holds_nothing(place):
    async with Started(place.access(budget_day=1)) as access:
        guest = access.identify(None)
        for delay in range(40):
            task = asyncio.create_task(access.reserve(guest, 0.5))
            for _ in range(delay % 8):
                await asyncio.sleep(0)
            if delay % 3 == 0:
                await asyncio.sleep(0.001)
            task.cancel()
            done = (await asyncio.gather(task, return_exceptions=True))[0]
            if not isinstance(done, BaseException):
                access.settle(done, 0.0)
        access.settle(await access.reserve(guest, 1.0), 0.0)


async def test_one_key_cannot_hold_the_budget_of_all(place):
    alice_key, bob_key = place.add_key("alice"), place.add_key("bob")
    async with Started(place.access(host="0.0.0.0", budget_day=1)) as access:
        alice, bob = access.identify(alice_key), access.identify(bob_key)
        held = await access.reserve(alice, 0.3)
        with pytest.raises(Refusal) as caught:
            await access.reserve(alice, 0.3)
        refusal = refused(caught, 429, "budget_held")
        assert "the requests in progress of this key have reserved half" in refusal.message
        # Nor may it enlarge what it holds.
        with pytest.raises(Refusal) as caught:
            await access.enlarge(held, 0.51)
        refused(caught, 402, "insufficient_quota")
        other = await access.reserve(bob, 0.5)
        access.settle(other, 0.0)
        access.settle(held, 0.0)
        with pytest.raises(Refusal) as caught:
            await access.reserve(alice, 0.6)
        refusal = refused(caught, 402, "insufficient_quota")
        assert refusal.message == (
            "This request may cost $0.60, and $1.00 is left of the gateway's budget for the day, of which "
            "one key may reserve at most half while there are other keys. It renews at 2027-01-16 00:00 "
            "UTC; a request with a smaller max_tokens may fit now."
        )


async def test_the_only_key_may_hold_the_budget_of_all(place):
    key = place.add_key("alice")
    async with Started(place.access(host="0.0.0.0", budget_day=1)) as access:
        access.settle(await access.reserve(access.identify(key), 1.0), 0.0)


async def test_a_changed_limit_holds_for_the_same_key(place):
    key = place.add_key("alice", day=1)
    async with Started(place.access(host="0.0.0.0")) as access:
        with pytest.raises(Refusal):
            await access.reserve(access.identify(key), 2.0)
        store = place.store()
        store.change_key("alice", {"budget_day": parts_of(5)})
        store.close()
        await until(lambda: access.identify(key).budget_day == parts_of(5))
        access.settle(await access.reserve(access.identify(key), 2.0), 0.0)


async def test_a_lost_store_refuses_money_and_serves_again_when_it_is_back(file_place):
    async with Started(file_place.access(patience=0.01, budget_day=1)) as access:
        guest = access.identify(None)
        held = await access.reserve(guest, 0.001)
        other = sqlite3.connect(file_place.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(Refusal) as caught:
                await access.reserve(guest, 0.9)
            refused(caught, 503, "store_unavailable")
        assert "locked" in access.trouble
        assert "locked" in access.spend()["trouble"]
        assert access.refuses_all
        # What ends meanwhile is not forgotten.
        access.settle(held, 0.001)
        await asyncio.sleep(0.15)
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: access.trouble is None)
        assert not access.refuses_all
        access.settle(await access.reserve(guest, 0.9), 0.9)
    store = file_place.store()
    assert store.totals(["2027-01-15"])["*", "2027-01-15"] == (901_000_000, 0, 0)
    store.close()


async def test_without_budgets_the_store_is_never_waited_for(file_place):
    async with Started(file_place.access(patience=0.01)) as access:
        other = sqlite3.connect(file_place.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(100):
            access.settle(await access.reserve(access.identify(None), 5.0), 1.0)
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: access.spend()["all"]["month"]["spent"] == 100.0)
        assert access.spend()["keys"]["anonymous"]["month"]["spent"] == 100.0


async def test_requests_under_way_at_the_end_are_charged_in_full_after_their_deadline(file_place):
    access = file_place.access(budget_day=10)
    await access.start()
    await access.reserve(access.identify(None), 2.0)
    access.settle(await access.reserve(access.identify(None), 2.0), 0.5)
    await access.close()
    with pytest.raises(Refusal) as caught:
        await access.reserve(access.identify(None), 9.0)
    refused(caught, 503, "store_unavailable")
    store = file_place.store()
    assert store.totals(["2027-01-15"])["*", "2027-01-15"] == (5 * 10**8, 2 * 10**9, 0)
    file_place.now += 661
    async with Started(file_place.access(budget_day=10)) as access:
        await until(lambda: access.spend()["all"]["day"]["lost"] == 2.0)
    assert store.totals(["2027-01-15"])["*", "2027-01-15"] == (25 * 10**8, 0, 2 * 10**9)
    store.close()


async def test_a_store_of_something_else_stops_the_start(file_place):
    Path(file_place.path).write_bytes(b"something else" * 100)
    access = file_place.access()
    with pytest.raises(DataFileError):
        await access.start()
    await access.close()


async def test_without_a_file_everything_works_in_memory():
    async with Started(Access(Settings(access=AccessSettings(budget_day=1)))) as access:
        guest = access.identify(None)
        access.settle(await access.reserve(guest, 0.6), 0.6)
        with pytest.raises(Refusal):
            await access.reserve(guest, 0.6)
        await until(lambda: access.spend()["all"]["day"]["spent"] == 0.6)
        assert access.spend()["all"]["day"]["budget"] == 1.0


async def test_the_document_of_spend_covers_all_workers_and_keys(place):
    key = place.add_key("alice", day=5, month=50)
    async with (
        Started(place.access(workers=2, budget_day=9)) as one,
        Started(place.access(workers=2, budget_day=9)) as two,
    ):
        for access in (one, two):
            access.settle(await access.reserve(access.identify(key), 1.0), 0.5)
        await until(lambda: two.spend()["keys"]["alice"]["month"]["spent"] == 1.0)
        await until(lambda: two.spend()["all"]["day"]["held"] == 0.0)
        document = two.spend()
    assert document["day"] == {"name": "2027-01-15", "renews": 1_800_057_600}
    assert document["all"]["day"] == {"spent": 1.0, "held": 0.0, "lost": 0.0, "budget": 9.0}
    assert document["all"]["month"]["budget"] is None
    assert list(document["keys"]) == ["alice"]
    assert document["keys"]["alice"]["day"]["budget"] == 5.0


async def test_when_the_store_fails_nobody_is_left_waiting(file_place):
    key = file_place.add_key("alice", rpm=100)
    async with Started(file_place.access(workers=2, patience=0.2)) as access:
        caller = access.identify(key)
        other = sqlite3.connect(file_place.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        # The second asks while the first one's transaction waits for the lock.
        first = asyncio.create_task(request(access, caller))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(request(access, caller))
        done = await asyncio.wait_for(
            asyncio.gather(first, second, return_exceptions=True), PATIENCE
        )
        other.execute("ROLLBACK")
        other.close()
        assert [refusal.status for refusal in done] == [503, 503]


async def test_a_free_request_that_becomes_dear_after_midnight_is_counted(place):
    async with Started(place.access(budget_day=1)) as access:
        guest = access.identify(None)
        free = await access.reserve(guest, 0.0)
        place.now += 86_400
        await asyncio.sleep(0.2)
        await access.enlarge(free, 0.5)
        access.settle(free, 0.5)
        late = await access.reserve(guest, 0.0)
        place.now += 86_400
        await asyncio.sleep(0.2)
        access.settle(late, 0.25)
        access.settle(await access.reserve(guest, 1.0), 0.0)
    store = place.store()
    spent = store.totals(["2027-01-15", "2027-01-16"])
    assert spent["*", "2027-01-15"].spent == 500_000_000
    assert spent["*", "2027-01-16"].spent == 250_000_000
    store.close()


async def test_a_locked_file_holds_up_those_who_need_it_and_not_the_loop(file_place):
    async with Started(file_place.access(budget_day=1)) as access:
        other = sqlite3.connect(file_place.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(access.reserve(access.identify(None), 1.0))
        for _ in range(5):
            await asyncio.sleep(0.005)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        access.settle(await waiting, 0.0)


async def test_settlements_wait_for_a_claim_however_long_others_have_waited(
    file_place, monkeypatch
):
    monkeypatch.setattr(writer_module, "SETTLE_SECONDS", 1.2)
    # The thread, which writes what it finds, stays away.
    monkeypatch.setattr(writer_module, "REFRESH_SECONDS", 30.0)
    written = []
    apply = AccessStore.apply

    def noted(store, batch, seconds):
        written.append((len(batch.claims), len(batch.settlements)))
        return apply(store, batch, seconds)

    monkeypatch.setattr(AccessStore, "apply", noted)
    access = file_place.access(budget_day=5.0)
    await access.start()
    for _ in range(10):
        reservation = await access.reserve(access.identify(None), 0.1)
        access.settle(reservation, 0.01)
        await asyncio.sleep(0.15)
    before = list(written)
    # The last of them finds no claim, and is written alone.
    await until(lambda: len(written) > len(before))
    await access.close()
    assert before == [(1, 0), *[(1, 1)] * 9]
    assert written[10:] == [(0, 1)]


async def test_who_leaves_waits_for_others_that_write(file_place, monkeypatch, caplog):
    """Workers that stop together meet at the store's lock; nothing is unknown because of that."""
    monkeypatch.setattr(writer_module, "REFRESH_SECONDS", 60.0)
    bearer = file_place.add_key("alice", day=1.0)
    access = file_place.access()
    await access.start()
    reservation = await access.reserve(access.identify(bearer), 0.5)
    access.settle(reservation, 0.25)
    await asyncio.sleep(0.1)
    other = sqlite3.connect(file_place.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    asyncio.get_running_loop().call_later(0.3, other.rollback)
    await access.close()
    (left,) = other.execute("SELECT count(*) FROM reservations").fetchone()
    other.close()
    assert left == 0
    assert not caplog.records

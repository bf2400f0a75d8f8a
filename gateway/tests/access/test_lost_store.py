"""A database that goes away and comes back: requests are refused, and nothing is spent twice."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time

import pytest

from mild_gateway.access import Access, AccessStore, StoreError
from mild_gateway.access import writer as writer_module
from mild_gateway.access.periods import periods_at
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.refusals import Refusal
from store_cases import commits_in_doubt
from waiting import PATIENCE, until


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(writer_module, "REFRESH_SECONDS", 0.05)


@pytest.fixture
def server(postgres):
    """The server, which runs again when the test is over."""
    yield postgres.server
    if not postgres.server.is_running():
        postgres.server.start()


def access_to(place, **limits):
    return Access(Settings(store=place, access=AccessSettings(**limits)))


async def stop(server, *parts):
    await asyncio.to_thread(server.stop, "immediate")
    await until(lambda: all(part.trouble for part in parts))


async def start(server, *parts):
    await asyncio.to_thread(server.start)
    await until(lambda: not any(part.trouble for part in parts))


async def refused(asked):
    with pytest.raises(Refusal) as caught:
        await asked
    return caught.value.status, caught.value.code


def totals(place):
    store = AccessStore(place)
    store.open()
    day = periods_at(time.time())[0].name
    found = store.totals([day])
    store.close()
    return found["*", day]


LOST = (503, "store_unavailable")


async def test_requests_are_refused_while_a_file_is_locked_and_served_afterwards(tmp_path):
    place = str(tmp_path / "mild.sqlite")
    access = Access(Settings(store=place), store=AccessStore(place, patience=0.05))
    await access.start()
    guest = access.identify(None)
    lock = sqlite3.connect(place, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    await until(lambda: access.trouble)
    assert access.refuses_all
    with pytest.raises(Refusal) as caught:
        await access.admit(guest)
    assert (caught.value.status, caught.value.code) == LOST
    assert caught.value.headers["Retry-After"] == "1"
    lock.execute("ROLLBACK")
    lock.close()
    await until(lambda: not access.trouble)
    await access.admit(guest)
    await access.close()


async def test_all_requests_are_refused_while_the_database_is_away_and_served_when_it_is_back(
    postgres, server, caplog
):
    access = access_to(postgres.address, budget_day=1)
    await access.start()
    guest = access.identify(None)
    open_one = await access.reserve(guest, 0.01)
    await stop(server, access)
    assert await refused(access.admit(guest)) == LOST
    # What was under way ends as it would have.
    access.settle(open_one, 0.005)
    await start(server, access)
    await access.admit(guest)
    access.settle(await access.reserve(guest, 0.9), 0.9)
    await access.close()
    assert totals(postgres.address) == (905_000_000, 0, 0)
    # Said once each, however often it was tried.
    lost, back = [entry.getMessage() for entry in caplog.records if entry.name == "mild_gateway"]
    assert lost.startswith(f"{postgres.address.shown}: the store cannot be used: ")
    assert lost.endswith(". Trying again once a second.")
    assert back == "the store answers again."


async def test_two_workers_spend_the_budget_and_no_more_while_the_server_is_killed(
    postgres, server
):
    budget, spent, statuses = 400_000_000, [], []
    is_over = asyncio.Event()

    async def client(access, rng):
        guest = access.identify(None)
        while not is_over.is_set():
            most = rng.randrange(1, 1_000_000)
            try:
                await access.admit(guest)
                reservation = await access.reserve(guest, most / 1e9)
            except Refusal as refusal:
                statuses.append(refusal.status)
                await asyncio.sleep(0.01)
                continue
            await asyncio.sleep(rng.random() * 0.01)
            cost = rng.randrange(most + 1)
            spent.append(cost)
            access.settle(reservation, cost / 1e9)

    both = [access_to(postgres.address, budget_day=budget / 1e9) for _ in range(2)]
    for access in both:
        await access.start()
    clients = [client(both[place % 2], random.Random(place)) for place in range(12)]
    task = asyncio.gather(*clients)
    for away in (0.0, 0.5):
        known = len(spent)
        await until(lambda known=known: len(spent) > known + 50)
        await asyncio.to_thread(server.restart, away)
    known = len(spent)
    await until(lambda: len(spent) > known + 50)
    is_over.set()
    await task
    await until(lambda: not any(access.trouble for access in both))
    for access in both:
        await access.close()
    assert totals(postgres.address) == (sum(spent), 0, 0)
    assert sum(spent) <= budget
    assert len(spent) > 100
    assert set(statuses) <= {402, 429, 503}


@pytest.mark.parametrize("kept", [True, False])
async def test_a_commit_in_doubt_takes_effect_once(tmp_path, monkeypatch, kept):
    place = str(tmp_path / "mild.sqlite")
    access = access_to(place, budget_day=1)
    await access.start()
    guest = access.identify(None)
    first = await access.reserve(guest, 0.25)
    with commits_in_doubt(monkeypatch, kept) as lost:
        access.settle(first, 0.25)
        # The claim is refused, and what it was granted is released.
        assert await refused(access.reserve(guest, 0.75)) == LOST
    assert lost
    await until(lambda: access.trouble is None)
    await until(lambda: access.spend()["all"]["day"]["held"] == 0.0)
    access.settle(await access.reserve(guest, 0.75), 0.75)
    assert (await refused(access.reserve(guest, 0.01)))[0] == 402
    await access.close()
    assert totals(place) == (1_000_000_000, 0, 0)


async def test_a_server_that_is_asleep_holds_nobody_up_for_long(postgres, server, monkeypatch):
    monkeypatch.setattr(writer_module, "SLOW_SECONDS", 0.3)
    access = access_to(postgres.address, budget_day=1)
    await access.start()
    guest = access.identify(None)
    server.pause()
    try:
        assert await asyncio.wait_for(refused(access.reserve(guest, 0.01)), PATIENCE) == LOST
        assert "has not answered" in access.trouble
    finally:
        server.resume()
    # A machine that is busy may need longer than that, too.
    monkeypatch.setattr(writer_module, "SLOW_SECONDS", 5.0)
    await until(lambda: access.trouble is None)
    access.settle(await access.reserve(guest, 0.01), 0.01)
    await access.close()
    assert totals(postgres.address) == (10_000_000, 0, 0)


async def test_an_answer_of_the_store_counts_however_late_the_loop_is(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "SLOW_SECONDS", 0.05)
    answered = threading.Event()
    post = writer_module.StoreWriter._post

    def note_answer(writer, job, *values):
        post(writer, job, *values)
        if job == writer._answer:
            answered.set()

    monkeypatch.setattr(writer_module.StoreWriter, "_post", note_answer)
    access = access_to(str(tmp_path / "mild.sqlite"), budget_day=1)
    await access.start()
    reserving = asyncio.create_task(access.reserve(access.identify(None), 0.01))
    # The claim is on its way.
    await asyncio.sleep(0)
    # The loop stands still until the store has answered, and longer than a claim waits.
    assert answered.wait(PATIENCE)
    time.sleep(0.1)
    reservation = await reserving
    assert access.trouble is None
    # A machine that is busy may need longer than that to write the rest.
    monkeypatch.setattr(writer_module, "SLOW_SECONDS", PATIENCE)
    access.settle(reservation, 0.01)
    await access.close()
    assert totals(tmp_path / "mild.sqlite") == (10_000_000, 0, 0)


async def test_without_a_database_at_the_start_nothing_starts(postgres, server):
    server.stop()
    access = access_to(postgres.address)
    with pytest.raises(StoreError, match="the store cannot be used: Connection refused"):
        await access.start()
    await access.close()


async def test_what_a_locked_file_delayed_is_written_at_the_end(tmp_path):
    place = str(tmp_path / "mild.sqlite")
    access = Access(Settings(store=place), store=AccessStore(place, patience=0.3))
    await access.start()
    lock = sqlite3.connect(place, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    access.settle(await access.reserve(access.identify(None), 1.0), 1.0)
    closing = asyncio.create_task(access.close())
    await asyncio.sleep(0.5)
    lock.execute("ROLLBACK")
    lock.close()
    await closing
    assert totals(place) == (1_000_000_000, 0, 0)

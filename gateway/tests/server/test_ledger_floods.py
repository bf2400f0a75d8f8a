"""Floods of requests and the ledger: one key hurts no other, and memory is bounded."""

import asyncio
import json
import sqlite3

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, expert, gateway
from mild_gateway.access.managing import add_key, open_store
from mild_gateway.config import AccessSettings, LedgerSettings
from mild_gateway.ledger import LedgerWriter, Record, read_ledger
from mild_gateway.ledger.retention import Retention
from waiting import until


def gateway_at(folder, up, **ledger):
    """A gateway with a store and a ledger in files."""
    settings = LedgerSettings(folder / "ledger.sqlite", keep_text=True, **ledger)
    return gateway(
        [expert("one", up, price_in=1000.0)],
        store=str(folder / "mild.sqlite"),
        access_settings=AccessSettings(require_key=True),
        ledger=settings,
        ledger_writer=LedgerWriter(settings, ["one"]),
    )


async def test_refused_bodies_of_one_key_erase_no_row_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr("mild_gateway.ledger.retention.PAUSE", 0.05)
    sweeps = []
    sweep = Retention.sweep

    def noted(*arguments):
        more = sweep(*arguments)
        sweeps.append(more)
        return more

    monkeypatch.setattr(Retention, "sweep", noted)
    with open_store(None, str(tmp_path / "mild.sqlite")) as store:
        alice = add_key(store, "alice")
        poor = add_key(store, "poor", budget_day=1e-6)
    async with FakeUpstream() as up, gateway_at(tmp_path, up, max_bytes=1_000_000) as g:

        async def send(key, texts):
            return [
                (await ask(g.port, chat(text), authorization=f"Bearer {key}")).status
                for text in texts
            ]

        assert await send(alice, ["a question " * 100] * 10) == [200] * 10
        large = "x" * 100_000
        assert await send(poor, [large] * 130) == [402] * 130
        assert await send(alice, ["last"]) == [200]
        assert await asyncio.to_thread(g.ledger.flush)
        # Retention has looked once more.
        known = len(sweeps) + 2
        await until(lambda: len(sweeps) >= known)
    found = list(read_ledger(tmp_path / "ledger.sqlite"))
    mine = [entry.text for entry in found if entry.key == "alice"]
    assert mine == ["a question " * 100] * 10 + ["last"]
    refused = [entry for entry in found if entry.key == "poor"]
    assert {(entry.outcome, entry.text) for entry in refused} == {("refused", None)}
    assert len(refused) == 130


async def test_long_texts_are_stored_by_their_beginning_and_end(tmp_path):
    with open_store(None, str(tmp_path / "mild.sqlite")) as store:
        key = add_key(store, "alice")
    async with FakeUpstream() as up, gateway_at(tmp_path, up) as g:
        text = "begin " + "x" * 100_000 + " end"
        answer = await ask(g.port, chat(text), authorization=f"Bearer {key}")
        assert answer.status == 200
        assert await asyncio.to_thread(g.ledger.flush)
    (found,) = read_ledger(tmp_path / "ledger.sqlite")
    assert (found.text[:6144], found.text[-2048:]) == (text[:6144], text[-2048:])
    assert len(found.text) < 8300


async def test_a_funded_key_pushes_out_no_row_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr("mild_gateway.ledger.retention.PAUSE", 0.05)
    sweeps = []
    sweep = Retention.sweep

    def noted(*arguments):
        sweeps.append(sweep(*arguments))
        return sweeps[-1]

    monkeypatch.setattr(Retention, "sweep", noted)
    with open_store(None, str(tmp_path / "mild.sqlite")) as store:
        alice = add_key(store, "alice")
        rich = add_key(store, "rich")
    async with FakeUpstream() as up, gateway_at(tmp_path, up, max_bytes=1_000_000) as g:

        async def send(key, text):
            answer = await ask(g.port, chat(text), authorization=f"Bearer {key}")
            assert answer.status == 200

        for number in range(10):
            await send(alice, f"question {number}")
        for _ in range(200):
            await send(rich, "x" * 8000)
        assert await asyncio.to_thread(g.ledger.flush)
        known = len(sweeps)
        # Retention has looked once more, and found nothing to delete.
        await until(lambda: False in sweeps[known:])
    records = list(read_ledger(tmp_path / "ledger.sqlite"))
    texts = [record.text for record in records if record.key == "alice"]
    assert texts == [f"question {number}" for number in range(10)]
    assert len(records) < 200


async def test_a_locked_store_and_a_locked_ledger_show_in_health_and_metrics(tmp_path):
    async with FakeUpstream() as up, gateway_at(tmp_path, up) as g:

        async def troubles(*expected):
            """Whether health names them."""
            found = json.loads((await ask(g.port, None, "/health", "GET")).body)["troubles"]
            return found == list(expected)

        await until(lambda: troubles())
        locks = []
        for name in ("mild.sqlite", "ledger.sqlite"):
            locks.append(sqlite3.connect(tmp_path / name, isolation_level=None))
            locks[-1].execute("BEGIN IMMEDIATE")
        g.ledger.write(Record("r1", 1.0, "alice", "mild"))
        await until(lambda: troubles("store", "ledger"))
        g.app._publish()
        assert g.app.metrics.value("mild_store_trouble") == 1
        assert g.app.metrics.value("mild_ledger_trouble") == 1
        assert g.app.metrics.value("mild_ledger_waiting_bytes") >= 1000
        for lock in locks:
            lock.close()
        await until(lambda: troubles())

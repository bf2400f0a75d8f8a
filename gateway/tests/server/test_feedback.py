"""Clients judge the answers that they got, and only those."""

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
import time

import pytest

import ledger_cases
from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, expert, gateway
from ledger_cases import EXPERTS, read_feedback, write_all
from mild_gateway.access import Access, AccessStore
from mild_gateway.access.managing import add_key
from mild_gateway.config import AccessSettings, LedgerSettings, Settings
from mild_gateway.ledger import LedgerWriter
from mild_gateway.refusals import Refusal
from mild_gateway.server import feedback as module
from process_cases import served, write_files
from waiting import PATIENCE, until

PATH = "/v1/feedback"


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch):
    """New keys are soon known."""
    monkeypatch.setattr("mild_gateway.access.writer.REFRESH_SECONDS", 0.05)


@pytest.fixture
def impatient(monkeypatch):
    """A row that is not there is soon given up."""
    monkeypatch.setattr(module, "PAUSES", (0.05, 0.1))


@pytest.fixture
def patient(monkeypatch):
    """A row that is not there is waited for as long as a test has time."""
    monkeypatch.setattr(module, "PAUSES", (0.05,) * int(PATIENCE / 0.05))


def judged(place):
    return [(one.request_id, one.expert, one.score) for one in read_feedback(place)]


def is_known(access, key):
    with contextlib.suppress(Refusal):
        access.identify(f"Bearer {key}")
        return True
    return False


async def known(access, keys):
    """Wait until the gateway has read these keys."""
    for key in keys:
        await until(lambda key=key: is_known(access, key))


# Behind the creation of any key, and too young to be deleted.
LATER = 4e9


def record(number, time=LATER, **fields):
    return ledger_cases.record(number, time, **fields)


def run(place, talk, keep_text=False, keys=(), **more):
    """Let ``talk(g, post, keys)`` talk to a gateway with a ledger at this place."""
    settings = LedgerSettings(place, keep_text=keep_text)

    async def main():
        access, made = None, {}
        if keys:
            limits = AccessSettings(require_key=True)
            store = AccessStore(":memory:", time.time)
            # Before the gateway's thread uses it: a store in memory is for one thread at a time.
            store.open()
            for name, fields in dict(keys).items():
                made[name] = add_key(store, name, **fields)
            access = Access(Settings(experts=(), access=limits), store)
            more["access_settings"] = limits
        writer = LedgerWriter(settings, EXPERTS)
        async with (
            FakeUpstream() as up,
            gateway(
                [expert("one", up)], access=access, ledger_writer=writer, ledger=settings, **more
            ) as g,
        ):

            async def post(document, key=None, path=PATH):
                headers = {} if key is None else {"authorization": f"Bearer {made[key]}"}
                async with Client(g.port) as client:
                    found = await client.ask(document, path, **headers)
                return found.status, json.loads(found.body)

            await known(access, made.values())
            await talk(g, post)

    asyncio.run(main())


def refusal(found):
    status, body = found
    return status, body["error"]["code"]


def test_the_answer_to_a_request_is_judged_at_once(ledger_place, patient):
    async def talk(g, post):
        found = await ask(g.port, chat())
        name = found.headers["x-mild-request-id"]
        status, body = await post({"request_id": name, "score": 0.25})
        assert (status, body["result"], body["expert"]) == (200, "created", "one")
        assert judged(ledger_place) == [(name, "one", 0.25)]

    run(ledger_place, talk)


def test_the_same_again_changes_nothing_and_another_score_replaces(ledger_place):
    write_all(ledger_place, [record(0, key="anonymous")])

    async def talk(g, post):
        first = await post({"request_id": "r0", "correct": True})
        (before,) = read_feedback(ledger_place)
        again = await post({"request_id": "r0", "score": 1})
        assert (first[1]["result"], again[1]["result"]) == ("created", "unchanged")
        assert list(read_feedback(ledger_place)) == [before]
        assert before.rate is None
        status, other = await post({"request_id": "r0", "correct": False})
        assert (status, other["result"], other["score"]) == (200, "replaced", 0.0)
        assert judged(ledger_place) == [("r0", "small", 0.0)]

    run(ledger_place, talk)


def test_feedback_on_requests_that_are_unknown_foreign_or_old_writes_nothing(tmp_path, impatient):
    path = tmp_path / "l.db"
    write_all(path, [record(0), record(1, key="bob")])
    file = sqlite3.connect(path)
    file.execute("DELETE FROM decisions WHERE request_id = 'r1'")
    file.commit()
    file.close()

    async def talk(g, post):
        assert refusal(await post({"request_id": "r0", "score": 1}, "bob")) == (
            403,
            "foreign_request",
        )
        for name in ("r1", "never", "x" * 10_000, "nul\0"):
            found = await post({"request_id": name, "score": 1}, "bob")
            assert refusal(found) == (404, "unknown_request")
        assert judged(path) == []
        # The key that made it, and one of an administrator.
        assert (await post({"request_id": "r0", "score": 1}, "alice"))[0] == 200
        assert (await post({"request_id": "r0", "score": 0.5}, "root"))[1]["result"] == "replaced"

    run(path, talk, keys={"alice": {}, "bob": {}, "root": {"admin": True}})


def test_a_key_that_was_added_again_may_not_judge_the_old_keys_requests(tmp_path):
    path = write_all(
        tmp_path / "l.db", [record(0, time.time() - 3600.0, key="alice"), record(1, key="alice")]
    )

    async def talk(g, post):
        # This request was made before the key was: by another one of the same name.
        found = await post({"request_id": "r0", "score": 0}, "alice")
        assert refusal(found) == (403, "foreign_request")
        assert judged(path) == []
        assert (await post({"request_id": "r1", "score": 0}, "alice"))[0] == 200
        assert (await post({"request_id": "r0", "score": 1}, "root"))[0] == 200

    run(path, talk, keys={"alice": {}, "root": {"admin": True}})


def test_without_a_key_nothing_is_written(tmp_path):
    path = write_all(tmp_path / "l.db", [record(0, key="anonymous")])

    async def talk(g, post):
        assert refusal(await post({"request_id": "r0", "score": 1})) == (401, "invalid_api_key")
        assert judged(path) == []

    run(path, talk, keys={"alice": {}})


@pytest.mark.parametrize(
    "body",
    [
        {"score": 1},
        {"request_id": 7, "score": 1},
        {"request_id": "", "score": 1},
        {"request_id": "r0"},
        {"request_id": "r0", "score": 1, "correct": True},
        {"request_id": "r0", "score": 1.01},
        {"request_id": "r0", "score": -1},
        {"request_id": "r0", "score": True},
        {"request_id": "r0", "score": "1"},
        {"request_id": "r0", "correct": 1},
        {"request_id": "r0", "correct": True, "comment": 3},
    ],
)
def test_what_is_no_feedback_is_refused(tmp_path, body):
    path = write_all(tmp_path / "l.db", [record(0)])

    async def talk(g, post):
        assert refusal(await post(body)) == (400, "invalid_feedback")
        status, _ = await post(json.dumps({"request_id": "r0", "score": float("nan")}).encode())
        assert status == 400
        assert judged(path) == []

    run(path, talk)


def test_a_request_without_an_answer_cannot_be_judged(tmp_path):
    fields = {"key": "anonymous", "status": 502, "outcome": "failed"}
    path = write_all(tmp_path / "l.db", [record(0, **fields), record(1, expert=None, **fields)])

    async def talk(g, post):
        for name in ("r0", "r1"):
            assert refusal(await post({"request_id": name, "score": 1})) == (409, "no_answer")
        assert judged(path) == []

    run(path, talk)


@pytest.mark.parametrize("keep_text", [False, True])
def test_comments_are_kept_where_texts_are(tmp_path, keep_text):
    path = write_all(tmp_path / "l.db", [record(0, key="anonymous")])

    async def talk(g, post):
        body = {"request_id": "r0", "score": 0.5, "comment": "too long"}
        assert [(await post(body))[1]["result"] for _ in range(2)] == ["created", "unchanged"]
        (found,) = read_feedback(path)
        assert found.comment == ("too long" if keep_text else None)

    run(path, talk, keep_text=keep_text)


def test_a_row_that_comes_late_is_waited_for(tmp_path, patient, monkeypatch):
    path = write_all(tmp_path / "l.db", [record(0)])
    looks = []
    judge = module._judge

    def noted(*arguments):
        result = judge(*arguments)
        looks.append(result)
        return result

    monkeypatch.setattr(module, "_judge", noted)

    async def talk(g, post):
        waiting = asyncio.create_task(post({"request_id": "r1", "score": 1}))
        await until(lambda: looks)
        assert looks[0] is None
        # As another worker would.
        await asyncio.to_thread(write_all, path, [record(1, key="anonymous")])
        assert (await waiting)[0] == 200

    run(path, talk)


def test_feedback_of_a_key_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PER_MINUTE", 3)
    path = write_all(tmp_path / "l.db", [record(0, key="alice"), record(1, key="bob")])

    async def talk(g, post):
        said = [await post({"request_id": "r0", "score": k / 8}, "alice") for k in range(5)]
        assert [status for status, _ in said] == [200, 200, 200, 429, 429]
        assert said[-1][1]["error"]["code"] == "rate_limit_exceeded"
        assert judged(path) == [("r0", "small", 0.25)]
        # Not that of others, and not what else the key asks for.
        assert (await post({"request_id": "r1", "score": 1}, "bob"))[0] == 200
        assert (await post(chat(), "alice", "/v1/chat/completions"))[0] == 200

    run(path, talk, keys={"alice": {}, "bob": {}})


def test_feedback_counts_towards_the_requests_of_its_key(tmp_path):
    path = write_all(tmp_path / "l.db", [record(0, key="alice")])

    async def talk(g, post):
        said = [(await post({"request_id": "r0", "score": 1}, "alice"))[0] for _ in range(3)]
        assert said == [200, 200, 429]

    run(path, talk, keys={"alice": {"requests_per_minute": 2}})


def test_a_ledger_that_is_locked_is_told(tmp_path, monkeypatch):
    path = write_all(tmp_path / "l.db", [record(0, key="anonymous")])
    monkeypatch.setattr(module, "PATIENCE", 3.0)
    has_begun = threading.Event()
    judge = module._judge

    def noted(*arguments):
        has_begun.set()
        return judge(*arguments)

    monkeypatch.setattr(module, "_judge", noted)

    async def talk(g, post):
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        slow = asyncio.create_task(post({"request_id": "r0", "score": 1}))
        await until(has_begun.is_set)
        # Whoever waits for the file keeps nobody else waiting.
        assert (await ask(g.port, None, "/health", "GET")).status == 200
        assert not slow.done()
        assert refusal(await slow) == (503, "ledger_unavailable")
        other.execute("ROLLBACK")
        other.close()
        assert (await post({"request_id": "r0", "score": 1}))[0] == 200

    run(path, talk)


def test_without_a_ledger_there_is_no_feedback():
    async def talk(g, post):
        assert refusal(await post({"request_id": "r0", "score": 1})) == (501, "no_ledger")

    run(None, talk)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_every_worker_takes_feedback_on_the_answers_of_all(tmp_path, where, request):
    place, extra = tmp_path / "ledger.sqlite", ""
    if where == "postgres":
        postgres = request.getfixturevalue("postgres")
        place, extra = postgres.address, f'store = "{postgres.url}"'

    async def main():
        async with FakeUpstream() as up:
            write_files(tmp_path, [("small", up.base_url)], extra=extra, workers=2)
            (tmp_path / "mild.toml").chmod(0o600)
            async with served(tmp_path) as g:

                async def one(k):
                    name = (await ask(g.port, chat())).headers["x-mild-request-id"]
                    # A new connection may meet the other worker.
                    found = await ask(g.port, {"request_id": name, "score": k / 20}, PATH)
                    assert found.status == 200, found.body
                    return name, "small", k / 20

                return await asyncio.gather(*(one(k) for k in range(20)))

    expected = asyncio.run(main())
    assert sorted(judged(place)) == sorted(expected)

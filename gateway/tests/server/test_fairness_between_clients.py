"""No client takes the places or the time of the others."""

import asyncio
import contextlib
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import (
    Client,
    ask,
    chat,
    events,
    expert,
    gateway,
    idle,
    reply,
    request_bytes,
    rows,
    solo,
)
from mild_gateway.access import AccessStore
from mild_gateway.access.keys import Key, digest_of, hint_of, new_key
from mild_gateway.config import AccessSettings
from waiting import PATIENCE, until


@pytest.fixture
def keyed(tmp_path, monkeypatch):
    """Starts a gateway with keys, by name and requests per minute; ``g.keys`` has their headers."""
    monkeypatch.setattr("mild_gateway.access.writer.REFRESH_SECONDS", 0.05)
    path = str(tmp_path / "store.sqlite")

    @contextlib.asynccontextmanager
    async def start(keys, up=None, **parts):
        store = AccessStore(path)
        store.open()
        headers = {}
        for name, rate in keys.items():
            text = new_key()
            digest = digest_of(text, store.salt())
            store.add_key(Key(name, digest, hint_of(text), 1.0, requests_per_minute=rate))
            headers[name] = {"authorization": f"Bearer {text}"}
        needed = AccessSettings(require_key=True)
        async with (
            up or FakeUpstream() as up,
            gateway([expert("one", up)], store=path, access_settings=needed, **parts) as g,
        ):
            g.keys, g.store, g.up = headers, store, up
            yield g
        store.close()

    return start


def code_of(answer):
    return json.loads(answer.body)["error"]["code"]


@contextlib.asynccontextmanager
async def unfinished(g, key, count, length=10, body=b"{", refused=0, **parts):
    """Requests whose bodies do not end; gives the answers of those that are refused, at least so many."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(g.port)) for _ in range(count)]
        headers = {"content-length": length, **g.keys[key]}
        for client in clients:
            client.send(request_bytes(b"", **parts, **headers) + body)

        def is_settled():
            answered = sum(bool(client.reader._buffer) for client in clients)
            return answered >= refused and answered + g.app.in_flight == count

        await until(is_settled)
        yield [await client.answer() for client in clients if client.reader._buffer]


async def test_bodies_that_do_not_end_take_no_more_places_than_the_rate_of_their_key(keyed):
    async with keyed({"slow": 5, "other": None}, limits={"max_in_flight": 20}) as g:
        async with unfinished(g, "slow", 30) as refused:
            held = g.app.in_flight
            found = [await ask(g.port, chat(), **g.keys["other"]) for _ in range(3)]
        assert (held, [answer.status for answer in found]) == (5, [200] * 3)
        assert [(answer.status, code_of(answer)) for answer in refused] == [
            (429, "rate_limit_exceeded")
        ] * 25


async def test_a_request_is_counted_once_and_one_over_the_rate_has_no_row(keyed):
    async with keyed({"five": 5}) as g:
        statuses = [(await ask(g.port, chat(), **g.keys["five"])).status for _ in range(7)]
        refused = g.app.metrics.value("mild_refused_total", status="429")
        assert (statuses, refused) == ([200] * 5 + [429] * 2, 2)
        assert len(await rows(g, 5)) == 5


async def test_decisions_count_towards_the_rate(keyed):
    async with keyed({"five": 5}) as g:
        paths = ["/v1/route"] * 3 + ["/v1/chat/completions"] * 2 + ["/v1/route"]
        found = [await ask(g.port, chat(), path, **g.keys["five"]) for path in paths]
        assert [answer.status for answer in found] == [200] * 5 + [429]
        assert code_of(found[-1]) == "rate_limit_exceeded"


async def test_bodies_for_a_decision_take_places_too(keyed):
    async with (
        keyed({"slow": None, "other": None}, limits={"max_in_flight": 8}) as g,
        unfinished(g, "slow", 12, path="/v1/route") as refused,
    ):
        assert (g.app.in_flight, len(refused)) == (4, 8)
        assert (await ask(g.port, chat(), **g.keys["other"])).status == 200


async def test_an_unknown_key_takes_no_place(keyed):
    async with keyed({"one": None}, limits={"max_in_flight": 2}) as g:
        g.keys["none"] = {"authorization": "Bearer mild-unknown"}
        async with unfinished(g, "none", 5) as refused:
            assert (len(refused), {answer.status for answer in refused}) == (5, {401})
            assert g.app.in_flight == 0


@pytest.mark.parametrize(("names", "most"), [(("a", "b"), 4), (("a",), 8)])
async def test_one_key_has_half_of_the_places_unless_it_is_the_only_one(keyed, names, most):
    async with keyed(dict.fromkeys(names), limits={"max_in_flight": 8}) as g:
        async with unfinished(g, "a", 12) as refused:
            assert (g.app.in_flight, len(refused)) == (most, 12 - most)
            assert {(answer.status, code_of(answer)) for answer in refused} == {(429, "overloaded")}
            if "b" in names:
                assert (await ask(g.port, chat(), **g.keys["b"])).status == 200
        await idle(g)
        assert (await ask(g.port, chat(), **g.keys["a"])).status == 200


@pytest.mark.parametrize("mark", ["\N{GRINNING FACE}".encode(), b"\\ud83d\\ude00"])
async def test_characters_that_take_four_bytes_are_no_way_to_much_memory(mark, monkeypatch):
    monkeypatch.setattr("mild_gateway.server.expert_answer._MAX_WIDE_BYTES", 1_500_000)
    found = []
    for first in (b"", mark):
        text = json.dumps({"choices": [{"message": {"content": "a" * 2_000_000}}]}).encode()
        async with solo(FakeUpstream()) as (up, g):
            up.script = [reply(200, text.replace(b"aa", first + b"aa", 1))] * 2
            found.append(await ask(g.port, chat()))
    assert [answer.status for answer in found] == [200, 502]
    assert code_of(found[1]) == "expert_garbled"


async def test_a_large_error_of_an_expert_is_not_passed_on():
    async with solo(FakeUpstream()) as (up, g):
        up.script = [reply(400, json.dumps({"error": {"message": "x" * 2_000_000}}))] * 2
        found = await ask(g.port, chat())
    assert (found.status, code_of(found)) == (502, "expert_garbled")


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_request_ends_when_its_key_is_revoked(keyed, streamed):
    up = FakeUpstream(held=True)
    async with keyed({"alice": None, "bob": None}, up) as g:
        document = chat(stream=streamed)
        alice, bob = (asyncio.create_task(ask(g.port, document, **key)) for key in g.keys.values())
        await until(lambda: up.in_flight == 2)
        if streamed:
            # Their first events are on their way.
            await until(lambda: up.begun == 2)
        await asyncio.to_thread(g.store.revoke_key, "alice", 2.0)
        cut = await asyncio.wait_for(alice, PATIENCE)
        (row,) = await rows(g)
        await until(lambda: up.in_flight == 1)
        up.held = False
        whole = await asyncio.wait_for(bob, PATIENCE)
        again = await ask(g.port, document, **g.keys["alice"])
    assert (row.key, row.error) == ("alice", "invalid_api_key")
    assert (whole.status, whole.whole, again.status) == (200, True, 401)
    if streamed:
        assert (cut.status, cut.whole, row.outcome) == (200, False, "cut")
        assert json.loads(events(cut.body.replace(b"event: error\n", b""))[-1])["error"][
            "code"
        ] == ("invalid_api_key")
    else:
        assert (cut.status, code_of(cut), row.outcome) == (401, "invalid_api_key", "failed")
    assert g.app.asked_last() == {"one": False}


async def test_a_key_that_is_revoked_while_its_body_arrives_is_not_served(keyed):
    async with keyed({"alice": None}) as g, Client(g.port) as client:
        data = request_bytes(chat(), **g.keys["alice"])
        client.send(data[:-1])
        await until(lambda: g.app.in_flight)
        await asyncio.to_thread(g.store.revoke_key, "alice", 2.0)

        async def is_revoked():
            return (await ask(g.port, chat(), **g.keys["alice"])).status == 401

        await until(is_revoked)
        asked = g.up.asked
        client.send(data[-1:])
        found = await asyncio.wait_for(client.answer(), PATIENCE)
        assert (found.status, g.up.asked) == (401, asked)

"""No client takes the places, the memory or the time of the others."""

import asyncio
import contextlib
import json
import socket
import time

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
from mild_gateway.experts import json_edit
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import FairLimit, HeldAnswers
from raw_http_cases import POST
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
        assert (g.app.in_flight, len(refused)) == (6, 6)
        assert (await ask(g.port, chat(), **g.keys["other"])).status == 200


async def test_an_unknown_key_takes_no_place(keyed):
    async with keyed({"one": None}, limits={"max_in_flight": 2}) as g:
        g.keys["none"] = {"authorization": "Bearer mild-unknown"}
        async with unfinished(g, "none", 5) as refused:
            assert (len(refused), {answer.status for answer in refused}) == (5, {401})
            assert g.app.in_flight == 0


@pytest.mark.parametrize(("names", "most"), [(("a", "b"), 6), (("a",), 8)])
async def test_the_last_quarter_of_the_places_is_for_keys_with_less_than_a_quarter(
    keyed, names, most
):
    async with keyed(dict.fromkeys(names), limits={"max_in_flight": 8}) as g:
        async with unfinished(g, "a", 12) as refused:
            assert (g.app.in_flight, len(refused)) == (most, 12 - most)
            assert {(answer.status, code_of(answer)) for answer in refused} == {(429, "overloaded")}
            if "b" in names:
                assert (await ask(g.port, chat(), **g.keys["b"])).status == 200
        await idle(g)
        assert (await ask(g.port, chat(), **g.keys["a"])).status == 200


async def test_the_last_quarter_of_the_bytes_is_for_keys_with_less_than_a_quarter(keyed):
    async with keyed({"a": None, "b": None}, limits={"max_bytes_in_flight": 100_000}) as g:
        async with unfinished(g, "a", 6, 50_000, b" " * 20_000, refused=3) as refused:
            assert {(answer.status, code_of(answer)) for answer in refused} == {(503, "overloaded")}
            assert len(refused) == 3
            assert (await ask(g.port, chat("x" * 20_000), **g.keys["b"])).status == 200
        await idle(g)
        assert (await ask(g.port, chat("x" * 60_000), **g.keys["a"])).status == 200


def test_a_limit_over_workers_counts_what_the_others_hold():
    places = FairLimit(16, lambda: False, workers=2)
    assert all(places.take("a", 1, elsewhere=6) for _ in range(6))
    # Three quarters are taken; a quarter of a worker's part is two.
    assert not places.take("a", 1, elsewhere=6)
    assert [places.take("b", 1, elsewhere=6) for _ in range(3)] == [True, True, False]
    assert not places.take("c", 1, elsewhere=9)
    places.give_back("a", 1)
    assert (places.take("a", 1, elsewhere=3), places.held) == (True, 8)


@pytest.mark.parametrize(("pause", "status"), [(0.05, 408), (0.0, 200)])
async def test_a_body_that_comes_slower_than_the_floor_is_closed(pause, status, monkeypatch):
    monkeypatch.setattr("mild_gateway.server.protocol.SLOW_BODY_SECONDS", 0.3)
    # At the floor, this would take a hundred seconds.
    data = json.dumps(chat("x" * 200_000)).encode()
    async with solo(limits={"min_body_rate": 2000}) as (up, g), Client(g.port) as client:
        client.send(POST + b"content-length: %d\r\n\r\n" % len(data))
        # All but the last byte soon, or 200 bytes a second.
        size = 10 if pause else len(data) - 1
        for start in range(0, len(data), size):
            client.send(data[start : start + size])
            await asyncio.sleep(pause or 0.5)
            if client.reader._buffer:
                break
        found = await asyncio.wait_for(client.answer(), PATIENCE)
        assert (found.status, up.asked) == (status, int(status == 200))
        if status == 408:
            assert (code_of(found), found.headers["connection"]) == ("body_too_slow", "close")
            assert await client.reader.read() == b""
        assert (await ask(g.port, chat())).status == 200


def silent(port, document):
    """A client that asks and never reads."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(request_bytes(document))
    return sock


def held_bytes(g):
    return sum(one.transport.get_write_buffer_size() for one in g.server.server_state.connections)


@pytest.mark.parametrize(
    ("streamed", "limit", "cuts"), [(False, 20_000_000, 8), (True, 12_000_000, 2)]
)
async def test_answers_that_nobody_reads_are_cut_beyond_a_total(streamed, limit, cuts):
    """Twelve answers of 7 MB; of streams, two events of 1 MB wait, and the rest is not asked for."""
    text = "word" * 250_000 + " "
    most = 0
    async with solo(
        FakeUpstream(text=text * 7),
        limits={"max_unread_bytes": limit},
    ) as (_, g):
        with contextlib.ExitStack() as stack:
            for _ in range(12):
                stack.enter_context(silent(g.port, chat(stream=streamed)))
                for _ in range(5):
                    await asyncio.sleep(0.01)
                    most = max(most, held_bytes(g))
            await until(lambda: g.app.metrics.value("mild_unread_cut_total") >= cuts)
            cut = g.app.metrics.value("mild_unread_cut_total")
            records = list(await rows(g, int(cut)))
            # Who reads gets all of it.
            found = await asyncio.wait_for(ask(g.port, chat(stream=streamed)), PATIENCE)
        assert (found.status, found.whole, len(found.body) > 6_000_000) == (200, True, True)
        assert {row.outcome for row in records} == {"cancelled"}
        assert most <= limit


# Short enough for an event.
BRACKETS = b'{"x": [' + b"[]," * 2_600_000 + b'[]], "model": "m", "usage": {"prompt_tokens": 1}}'


@pytest.mark.parametrize(
    ("content", "kind", "streamed"),
    [
        (BRACKETS, "application/json", False),
        (b'{"error": "x",' + BRACKETS[1:], "application/json", False),
        (b"data: " + BRACKETS + b"\n\n", "text/event-stream", True),
    ],
    ids=["answer", "error", "event"],
)
async def test_brackets_of_an_expert_are_counted_and_not_parsed(
    content, kind, streamed, monkeypatch
):
    parsed = []

    def note(text, *arguments, **options):
        parsed.append(len(text))
        return loads(text, *arguments, **options)

    loads = json.loads
    monkeypatch.setattr(json_edit.json, "loads", note)
    async with solo(FakeUpstream(), one={"retries": 0}) as (up, g):
        up.script = [reply(200, content, content_type=kind)]
        found = await ask(g.port, chat(stream=streamed))
        (row,) = await rows(g)
        after = await ask(g.port, chat())
    assert max(parsed) < 1_000_000
    assert after.status == 200
    if streamed:
        assert (found.status, row.outcome) == (200, "cut")
    else:
        assert (found.status, code_of(found)) == (502, "expert_garbled")


async def test_a_request_with_very_many_fields_is_refused():
    document = {**chat(), **{f"k{n}": 1 for n in range(400_000)}}
    async with solo() as (_, g):
        found = await ask(g.port, document)
    assert (found.status, code_of(found)) == (400, "invalid_body")


@pytest.mark.parametrize("mark", ["\N{GRINNING FACE}".encode(), b"\\ud83d\\ude00"])
async def test_characters_that_take_four_bytes_are_no_way_to_much_memory(mark, monkeypatch):
    monkeypatch.setattr("mild_gateway.server.attempts._MAX_WIDE_BYTES", 1_500_000)
    found = []
    for first in (b"", mark):
        text = json.dumps({"choices": [{"message": {"content": "a" * 2_000_000}}]}).encode()
        async with solo(FakeUpstream(), one={"retries": 0}) as (up, g):
            up.script = [reply(200, text.replace(b"aa", first + b"aa", 1))]
            found.append(await ask(g.port, chat()))
    assert [answer.status for answer in found] == [200, 502]
    assert code_of(found[1]) == "expert_garbled"


async def test_a_large_error_of_an_expert_is_not_passed_on():
    async with solo(FakeUpstream(), one={"retries": 0}) as (up, g):
        up.script = [reply(400, json.dumps({"error": {"message": "x" * 2_000_000}}))]
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
    assert g.app.clients["one"].state() == "closed"


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


class Silent:
    """A connection that is not read."""

    def __init__(self, unread_bytes):
        self.unread_bytes = unread_bytes
        self.is_cut = False

    def cut(self):
        self.is_cut = True


async def test_what_arrives_cuts_what_is_not_read_and_then_waits(monkeypatch):
    cuts = []
    held = HeldAnswers(1_000_000, lambda: cuts.append(1))
    small, old, new = Silent(100_000), Silent(500_000), Silent(500_000)
    held.unread = {small: time.monotonic(), old: 0.0, new: time.monotonic()}
    assert held.make_room()
    assert [one.is_cut for one in (small, old, new)] == [False, True, False]
    await held.hold("first", 600_000)
    assert (new.is_cut, small.is_cut, len(cuts)) == (True, False, 2)
    # Another waits for the first, which may go on: else they would wait for each other.
    task = asyncio.create_task(held.hold("second", 500_000))
    await asyncio.sleep(0.05)
    await held.hold("first", 1_100_000)
    assert (task.done(), small.is_cut) == (False, True)
    held.drop("first")
    await asyncio.wait_for(task, PATIENCE)
    monkeypatch.setattr("mild_gateway.server.body.ROOM_SECONDS", 0.02)
    with pytest.raises(Refusal) as caught:
        await held.hold("third", 700_000)
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    await held.hold("third", 1000)


@pytest.mark.parametrize("streamed", [False, True])
async def test_large_answers_that_arrive_are_counted_and_given_back(streamed, monkeypatch):
    most = 0
    hold = HeldAnswers.hold

    async def note(self, answer, size):
        nonlocal most
        await hold(self, answer, size)
        most = max(most, sum(self._arriving.values()))

    monkeypatch.setattr(HeldAnswers, "hold", note)
    up = FakeUpstream(text="word" * 500_000)
    async with solo(up, one={"retries": 0}, limits={"max_unread_bytes": 5_000_000}) as (_, g):
        found = await asyncio.gather(*(ask(g.port, chat(stream=streamed)) for _ in range(6)))
        up.script = ["cut"]
        await ask(g.port, chat(stream=streamed))
        assert {(answer.status, answer.whole) for answer in found} == {(200, True)}
        assert 2_000_000 < most <= 9_100_000
        await until(lambda: not g.app.answers._arriving and not g.app.answers.unread)

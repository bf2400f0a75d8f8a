"""Bytes that are broken or evil do nothing; requests on one connection are answered in order."""

import asyncio
import contextlib
import gc
import socket
import struct
import weakref

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, events, idle, request_bytes, rows, solo
from raw_http_cases import BODY, LENGTH, POST, exchange
from waiting import PATIENCE, until


async def test_a_query_string_changes_nothing():
    async with solo() as (up, g):
        found, line = (
            await ask(g.port, chat(), "/v1/chat/completions?path=../x%23y"),
            up.heads[0][0],
        )
    assert found.status == 200
    assert line == "POST /v1/chat/completions HTTP/1.1"


async def test_small_answers_are_sent_at_once():
    """Without waiting for the client to confirm what came before, which takes it up to 40 ms."""
    async with solo() as (_, g), Client(g.port) as client:
        await client.ask(None, "/health", "GET")
        (wire,) = g.server.server_state.connections
        sock = wire.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_pipelined_requests_are_answered_in_order():
    data = b"".join(
        request_bytes(chat(model=name)) for name in ("one", "nope", "one", "mild", "nope")
    )
    async with solo() as (_, g), Client(g.port) as client:
        client.send(data)
        assert [(await client.answer()).status for _ in range(5)] == [200, 404, 200, 200, 404]


async def test_a_pipelining_client_that_leaves_takes_its_upstream_call_with_it():
    async with solo(FakeUpstream(held=True)) as (up, g):
        async with Client(g.port) as client:
            client.send(request_bytes(chat()) * 3)
            await until(lambda: up.in_flight)
        await idle(g)
        await until(lambda: up.in_flight == 0)
        (row,) = await rows(g)
        assert (row.outcome, up.asked) == ("cancelled", 1)


LONG = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 40_000 + b"\r\n\r\n"
CHUNKS = POST + b"transfer-encoding: chunked\r\n\r\nno number\r\n"


@pytest.mark.parametrize(
    ("broken", "status"), [(LONG, 431), (b"GARBAGE\r\n\r\n", 400), (CHUNKS, 400)]
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_is_broken_is_refused_behind_the_answers_to_those_before_it(
    broken, status, at_once
):
    async with solo(FakeUpstream(delay=0.05)) as (up, g), Client(g.port) as client:
        client.send(request_bytes(chat(stream=True)))
        if not at_once:
            await until(lambda: up.asked)
        client.send(request_bytes(chat()) + broken + request_bytes(chat()))
        found = [await asyncio.wait_for(client.answer(), PATIENCE) for _ in range(3)]
        rest = await asyncio.wait_for(client.reader.read(), PATIENCE)
        records, refused = await rows(g, 2), g.app.metrics.value("mild_refused_total", status="431")
    assert [answer.status for answer in found] == [200, 200, status]
    assert events(found[0].body)[-1] == "[DONE]"
    assert (found[2].headers["connection"], rest) == ("close", b"")
    assert ([row.outcome for row in records], up.asked) == (["ok", "ok"], 2)
    assert refused == (status == 431)


async def test_a_second_request_whose_body_is_late_is_served_in_its_turn():
    async with (
        solo(FakeUpstream(delay=1.2), limits={"body_seconds": 1.0}) as (_, g),
        Client(g.port) as client,
    ):
        data = request_bytes(chat())
        client.send(data + data[:-20])
        first = await asyncio.wait_for(client.answer(), PATIENCE)
        client.send(data[-20:])
        assert (first.status, (await asyncio.wait_for(client.answer(), PATIENCE)).status) == (
            200,
            200,
        )


def test_too_many_waiting_requests_are_cut():
    _, asked, _ = exchange(request_bytes(chat()) * 200)
    assert asked <= 40


async def test_a_reset_connection_leaves_nothing_behind():
    async with solo(FakeUpstream(held=True)) as (up, g):
        for sent in (b"POST", POST, POST + LENGTH + b"\r\n" + BODY):
            sock = socket.create_connection(("127.0.0.1", g.port))
            sock.sendall(sent)
            await until(lambda: g.server.server_state.connections)
            # Time to read what was sent.
            await asyncio.sleep(0.05)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
            await idle(g)
        await until(lambda: up.in_flight == 0)
        assert up.asked == 1


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        POST + b"x: a\x00b\r\n\r\n",
        POST + LENGTH + b"\r\n" + BODY,
        POST + LENGTH + b"\r\n" + BODY[:9],
    ],
)
def test_a_connection_that_is_over_leaves_no_memory_to_the_collector(data):
    async def run():
        async with solo(FakeUpstream(delay=0.1)) as (_, g):
            async with Client(g.port) as client:
                (wire,) = await until(lambda: g.server.server_state.connections)
                kept = weakref.ref(wire)
                del wire
                client.send(data)
                # Time to read it, and perhaps to answer.
                await asyncio.sleep(0.05)
            await until(lambda: kept() is None)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


async def test_more_connections_than_allowed_are_refused_and_room_comes_back():
    async with solo(limits={"max_connections": 2}) as (_, g):
        async with Client(g.port) as one, Client(g.port) as two:
            found = [(await client.ask(chat())).status for client in (one, two)]
            for client in (one, two):
                client.send(request_bytes(b"", **{"content-length": 10}) + b"{")
            await until(lambda: g.app.in_flight == 2)
            async with Client(g.port) as third:
                refused = await asyncio.wait_for(third.answer(), PATIENCE)
                rest = await third.reader.read()
        await idle(g)
        after = (await ask(g.port, chat())).status
    assert found == [200, 200]
    assert (refused.status, refused.headers["retry-after"], rest) == (503, "1", b"")
    assert after == 200


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1", b"GET /health/liveliness HTTP/1.1\r\nHost: a\r\n\r\n"]
)
async def test_connections_without_a_request_make_room_for_new_ones(sent):
    """The one that has waited longest is closed; those that are in use stay."""
    async with solo(limits={"max_connections": 3}) as (_, g), contextlib.AsyncExitStack() as stack:
        busy = await stack.enter_async_context(Client(g.port))
        busy.send(request_bytes(b"", **{"content-length": 10}) + b"{")
        waiting = [await stack.enter_async_context(Client(g.port)) for _ in range(10)]
        for client in waiting:
            client.send(sent)
        await until(lambda: sum(client.reader._eof for client in waiting) >= 8)
        found = [(await ask(g.port, chat())).status for _ in range(3)]
        busy.send(b"        }")
        late = await busy.answer()
        assert await asyncio.wait_for(waiting[0].reader.read(), PATIENCE) is not None
        assert len(g.app.idle) <= 3
    assert (found, late.status) == ([200] * 3, 400)

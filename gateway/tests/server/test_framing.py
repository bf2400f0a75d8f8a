"""Bodies of requests and of responses, in whatever framing they come."""

import asyncio
import json
import re

import pytest

from gateway_cases import Client, ask, chat, request_bytes, solo
from mild_gateway.server.context import AppContext
from raw_http_cases import BODY, LENGTH, POST, exchange
from waiting import PATIENCE


async def test_a_body_up_to_the_limit_is_taken():
    body = json.dumps(chat("x" * 3_000_000)).encode()
    async with solo() as (up, g):
        found, size = await ask(g.port, body), len(up.bodies[0])
    assert found.status == 200
    assert size == len(body) - len("mild") + len("one-model")


def test_chunked_bodies_are_put_together():
    parts = [BODY[start : start + 11] for start in range(0, len(BODY), 11)]
    data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    head = POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    said, asked, _ = exchange(head + data)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert asked == 1


async def test_http_1_0_and_heads():
    async with solo() as (_, g):
        async with Client(g.port) as client:
            client.send(b"GET /health HTTP/1.0\r\n\r\n")
            old = await asyncio.wait_for(client.reader.read(), PATIENCE)
        head = await ask(g.port, None, "/health", "HEAD")
        async with Client(g.port) as client:
            client.send(request_bytes(chat(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            stream = await asyncio.wait_for(client.reader.read(), PATIENCE)
    assert old.startswith(b"HTTP/1.1 200 OK")
    assert head.status == 200
    assert b"transfer-encoding" not in stream
    assert stream.endswith(b"data: [DONE]\n\n")


async def test_expect_100_continue():
    async with solo() as (_, g), Client(g.port) as client:
        client.send(POST + LENGTH + b"expect: 100-continue\r\n\r\n")
        first = await client.reader.readuntil(b"\r\n\r\n")
        client.send(BODY)
        answer = await client.answer()
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.status == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/nowhere"])
async def test_a_long_body_that_nobody_read_does_not_hold_up_the_next_request(path, monkeypatch):
    # It comes in one piece, and is longer than what may wait for its reader.
    long = request_bytes(chat("x" * 65_530), path)
    monkeypatch.setattr(AppContext, "total_in_flight", 1)
    refused = 404 if path == "/nowhere" else 429
    async with solo(limits={"max_in_flight": 1}) as (_, g), Client(g.port) as client:
        found = []
        for _ in range(3):
            client.send(long)
            found.append((await asyncio.wait_for(client.answer(), PATIENCE)).status)
            client.send(request_bytes(None, "/health", "GET"))
            found.append((await asyncio.wait_for(client.answer("GET"), PATIENCE)).status)
        assert found == [refused, 200] * 3


@pytest.mark.parametrize(
    "behind",
    [
        b"0\r\nx: " + b"y" * 400_000,
        b"1;" + b"y" * 400_000,
        b"0\r\n" + b"x: y\r\n" * 17_000,
        b"0\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_stands_behind_a_chunked_body_is_bounded(behind):
    data = POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
    said, *_ = exchange(data + behind)
    assert said.startswith(b"HTTP/1.1 431 ")


async def test_headers_behind_a_chunked_body_do_not_count():
    chunk = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    data = POST + b"transfer-encoding: chunked\r\n\r\n" + chunk + b"traceparent: late\r\n\r\n"
    async with solo() as (up, g), Client(g.port) as client:
        client.send(data)
        found, sent = await client.answer(), up.heads[0][1]
    assert found.status == 200
    assert "traceparent" not in sent


def test_chunks_of_an_old_client_end_the_connection():
    head = POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"connection: keep-alive\r\n"
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    smuggled = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    data = head + b"transfer-encoding: chunked\r\n\r\n" + chunk + smuggled
    said, *_ = exchange(data)
    assert len(re.findall(rb"HTTP/1.1 \d", said)) == 1

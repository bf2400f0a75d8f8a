"""Clients that are broken, slow or evil: what they send does nothing, and they are cut."""

import asyncio
import json
import re
import socket
import struct

import pytest

from gateway.fake_upstream import FakeUpstream
from gateway.gateway_cases import Client, ask, chat, expert, gateway, request_bytes, rows

BODY = json.dumps(chat()).encode()
LENGTH = b"content-length: %d\r\n" % len(BODY)
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"


def exchange(data, limits=None, wait=3.0, eof=False, routing=None):
    """Send bytes, read until the gateway closes or has nothing more to say."""

    async def run():
        async with FakeUpstream() as up, gateway([expert("one", up)], limits=limits or {}) as g:
            async with Client(g.port) as client:
                client.send(data)
                if eof:
                    client.writer.write_eof()
                said, closed = b"", False
                try:
                    async with asyncio.timeout(wait):
                        while piece := await client.reader.read(65_536):
                            said += piece
                        closed = True
                except TimeoutError:
                    pass
            return said, closed, up.asked, list(g.ledger.records)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "data",
    [
        POST + LENGTH + b"transfer-encoding: chunked\r\n\r\n" + BODY,
        POST + b"transfer-encoding: chunked\r\n" + LENGTH + b"\r\n0\r\n\r\n" + BODY,
        POST + LENGTH + b"content-length: 3\r\n\r\n" + BODY,
        POST + b"content-length: +5\r\n\r\n12345",
        POST + b"content-length: 5, 5\r\n\r\n12345",
        POST + b"content-length: -1\r\n\r\n",
        POST + b"content-length: 99999999999999999999999999\r\n\r\n",
        POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        POST + b"x: a\x00b\r\n\r\n",
        POST + b"x y: a\r\n\r\n",
        POST + b" folded: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_plain_http_is_refused_and_the_connection_closed(data):
    smuggled = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    said, closed, asked, records = exchange(data + smuggled)
    assert closed
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 "))
    assert len(re.findall(rb"HTTP/1.1 \d", said)) == 1
    assert asked == 0
    assert records == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../v1/chat/completions",
        "//v1/chat/completions",
        "/v1/chat/completions/",
        "/v1%2Fchat/completions",
        "/v1/chat/completions%00",
        "/V1/chat/completions",
        "/v1/chat/completions;x=1",
        "http://evil.example/v1/chat/completions",
        "/../../etc/passwd",
        "*",
    ],
)
def test_path_tricks_find_nothing(path):
    async def run():
        async with FakeUpstream() as up, gateway([expert("one", up)]) as g:
            return await ask(g.port, chat(), path), up.asked

    found, asked = asyncio.run(run())
    assert found.status in (404, 400)
    assert asked == 0


def test_a_query_string_changes_nothing():
    async def run():
        async with FakeUpstream() as up, gateway([expert("one", up)]) as g:
            return await ask(g.port, chat(), "/v1/chat/completions?path=../x#y"), up.heads[0][0]

    found, line = asyncio.run(run())
    assert found.status == 200
    assert line == "POST /v1/chat/completions HTTP/1.1"


def test_headers_of_a_client_make_none_upstream_or_in_the_answer():
    data = request_bytes(chat(model="one\r\nx-evil: 1"), traceparent="a\tb", x_mild_session_id="é")

    said, *_ = exchange(data, wait=0.5)
    assert said.startswith(b"HTTP/1.1 404")
    assert b"\r\nx-evil" not in said


@pytest.mark.parametrize("how", ["length", "chunked", "many pieces"])
def test_a_body_over_the_limit_is_refused_with_413(how):
    big = b"x" * 200_000
    if how == "length":
        data = POST + b"content-length: %d\r\n\r\n" % len(big) + big
    elif how == "chunked":
        data = POST + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(big), big)
    else:
        pieces = b"".join(b"10\r\n" + b"y" * 16 + b"\r\n" for _ in range(10_000))
        data = POST + b"transfer-encoding: chunked\r\n\r\n" + pieces
    said, closed, asked, records = exchange(data, {"max_body_bytes": 100_000}, wait=6)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert closed
    assert json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "request_too_large"
    assert (asked, records) == (0, [])


def test_a_body_up_to_the_limit_is_taken():
    body = json.dumps(chat("x" * 3_000_000)).encode()

    async def run():
        async with FakeUpstream() as up, gateway([expert("one", up)]) as g:
            return await ask(g.port, body), len(up.bodies[0])

    found, size = asyncio.run(run())
    assert found.status == 200
    assert size == len(body) - len("mild") + len("one-model")


def test_chunked_bodies_are_put_together():
    parts = [BODY[start : start + 11] for start in range(0, len(BODY), 11)]
    data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    said, _, asked, _ = exchange(POST + b"transfer-encoding: chunked\r\n\r\n" + data, wait=0.5)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert asked == 1


@pytest.mark.parametrize(
    "head",
    [
        b"x: " + b"y" * 100_000 + b"\r\n\r\n",
        b"".join(b"x%d: y\r\n" % n for n in range(500)) + b"\r\n",
        b"x" * 100_000,
    ],
)
def test_a_head_that_is_too_long_is_refused_with_431(head):
    said, closed, *_ = exchange(POST + head)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert closed


def test_an_address_that_is_too_long_is_refused():
    said, closed, *_ = exchange(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 431 ")
    assert closed


SLOW = {"header_seconds": 0.2, "body_seconds": 0.3, "keep_alive_seconds": 0.3}


@pytest.mark.parametrize("sent", [b"", b"POST /v1/ch", POST, POST + LENGTH + b"\r\n" + BODY[:20]])
def test_a_client_that_does_not_go_on_is_cut(sent):
    said, closed, asked, records = exchange(sent, SLOW)
    assert closed
    assert said.startswith(b"HTTP/1.1 408 ")
    assert (asked, records) == (0, [])


def test_dripping_bytes_do_not_extend_the_time():
    async def run():
        async with (
            FakeUpstream() as up,
            gateway([expert("one", up)], limits=SLOW) as g,
            Client(g.port) as client,
        ):
            start = asyncio.get_running_loop().time()
            try:
                for byte in POST * 20:
                    client.send(bytes([byte]))
                    await asyncio.sleep(0.02)
                    if client.reader._buffer or client.reader.at_eof():
                        break
            except ConnectionError:
                pass
            return asyncio.get_running_loop().time() - start

    assert asyncio.run(run()) < 2.0


def test_an_idle_connection_is_closed_and_a_busy_one_is_not():
    async def run():
        async with (
            FakeUpstream(delay=0.8) as up,
            gateway([expert("one", up)], limits=SLOW) as g,
            Client(g.port) as client,
        ):
            slow = await client.ask(chat())
            rest = await asyncio.wait_for(client.reader.read(), 3)
            return slow, rest

    slow, rest = asyncio.run(run())
    assert slow.status == 200
    assert rest == b"" or rest.startswith(b"HTTP/1.1 408")


def test_a_client_that_does_not_read_is_cut_and_slows_only_itself(monkeypatch):
    monkeypatch.setattr("mild.gateway.server.pipe.STALL_SECONDS", 0.4)

    async def run():
        async with (
            FakeUpstream(text="word " * 60_000) as up,
            gateway([expert("one", up, idle_seconds=5)], limits=SLOW) as g,
        ):
            sock = socket.create_connection(("127.0.0.1", g.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(request_bytes(chat(stream=True)))
            (row,) = await rows(g, 1, 8)
            quick = await ask(g.port, None, "/health", "GET")
            sock.close()
            return row, quick, up

    row, quick, _ = asyncio.run(run())
    assert row.outcome == "cancelled"
    assert quick.status == 200


def test_pipelined_requests_are_answered_in_order():
    data = b"".join(
        request_bytes(chat(model=name)) for name in ("one", "nope", "one", "mild", "nope")
    )

    async def run():
        async with (
            FakeUpstream() as up,
            gateway([expert("one", up)]) as g,
            Client(g.port) as client,
        ):
            client.send(data)
            return [(await client.answer()).status for _ in range(5)]

    assert asyncio.run(run()) == [200, 404, 200, 200, 404]


def test_too_many_waiting_requests_are_cut():
    _, closed, asked, _ = exchange(request_bytes(chat()) * 200, wait=3)
    assert closed
    assert asked <= 40


def test_http_1_0_and_heads():
    async def run():
        async with FakeUpstream() as up, gateway([expert("one", up)]) as g:
            async with Client(g.port) as client:
                client.send(b"GET /health HTTP/1.0\r\n\r\n")
                old = await asyncio.wait_for(client.reader.read(), 2)
            head = await ask(g.port, None, "/health", "HEAD")
            async with Client(g.port) as client:
                client.send(request_bytes(chat(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
                stream = await asyncio.wait_for(client.reader.read(), 2)
            return old, head, stream

    old, head, stream = asyncio.run(run())
    assert old.startswith(b"HTTP/1.1 200 OK")
    assert head.status == 200
    assert b"transfer-encoding" not in stream
    assert stream.endswith(b"data: [DONE]\n\n")


def test_expect_100_continue():
    async def run():
        async with (
            FakeUpstream() as up,
            gateway([expert("one", up)]) as g,
            Client(g.port) as client,
        ):
            client.send(POST + LENGTH + b"expect: 100-continue\r\n\r\n")
            first = await client.reader.readuntil(b"\r\n\r\n")
            client.send(BODY)
            return first, await client.answer()

    first, answer = asyncio.run(run())
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.status == 200


def test_a_reset_connection_leaves_nothing_behind():
    async def run():
        async with FakeUpstream(delay=0.2) as up, gateway([expert("one", up)]) as g:
            for sent in (b"POST", POST, POST + LENGTH + b"\r\n" + BODY):
                sock = socket.create_connection(("127.0.0.1", g.port))
                sock.sendall(sent)
                await asyncio.sleep(0.05)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            await asyncio.sleep(0.1)
            return len(g.listener.wires), g.app.in_flight

    assert asyncio.run(run()) == (0, 0)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/nowhere"])
def test_a_long_body_that_nobody_read_does_not_hold_up_the_next_request(path):
    # It comes in one piece, and is longer than what may wait for its reader.
    long = request_bytes(chat("x" * 65_530), path)

    async def run():
        async with (
            FakeUpstream() as up,
            gateway([expert("one", up)], limits={"max_in_flight": 0}) as g,
            Client(g.port) as client,
        ):
            found = []
            for _ in range(3):
                client.send(long)
                found.append((await asyncio.wait_for(client.answer(), 3)).status)
                client.send(request_bytes(None, "/health", "GET"))
                found.append((await asyncio.wait_for(client.answer("GET"), 3)).status)
            return found

    refused = 404 if path == "/nowhere" else 429
    assert asyncio.run(run()) == [refused, 200] * 3


@pytest.mark.parametrize("more", [b"\r\n", b"POST /v1"])
def test_a_head_that_comes_slowly_behind_a_request_does_not_cut_its_answer(more):
    async def run():
        async with (
            FakeUpstream(delay=0.8) as up,
            gateway([expert("one", up)], limits=SLOW) as g,
            Client(g.port) as client,
        ):
            client.send(request_bytes(chat()))
            await asyncio.sleep(0.05)
            client.send(more)
            found = await asyncio.wait_for(client.answer(), 3)
            return found, await asyncio.wait_for(client.reader.read(), 3)

    found, rest = asyncio.run(run())
    assert found.status == 200
    assert rest.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("behind", [b"0\r\nx: ", b"1;"])
def test_what_stands_behind_a_chunked_body_is_bounded(behind):
    data = POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
    said, closed, *_ = exchange(data + behind + b"y" * 400_000)
    assert closed
    assert said.startswith(b"HTTP/1.1 431 ")


def test_headers_behind_a_chunked_body_do_not_count():
    chunk = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    data = POST + b"transfer-encoding: chunked\r\n\r\n" + chunk + b"traceparent: late\r\n\r\n"

    async def run():
        async with (
            FakeUpstream() as up,
            gateway([expert("one", up)]) as g,
            Client(g.port) as client,
        ):
            client.send(data)
            return await client.answer(), up.heads[0][1]

    found, sent = asyncio.run(run())
    assert found.status == 200
    assert "traceparent" not in sent


def test_chunks_of_an_old_client_end_the_connection():
    head = POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"connection: keep-alive\r\n"
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    smuggled = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    data = head + b"transfer-encoding: chunked\r\n\r\n" + chunk + smuggled
    said, closed, *_ = exchange(data)
    assert closed
    assert len(re.findall(rb"HTTP/1.1 \d", said)) == 1


OFFER = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
)


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_an_offer_of_http2_is_passed_over(step):
    """In whatever pieces it comes; what follows on the connection is served, too."""
    data = POST + OFFER + LENGTH + b"\r\n" + BODY
    data += (
        POST
        + OFFER
        + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (
            len(BODY),
            BODY,
        )
    )
    data += b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"

    async def run():
        async with (
            FakeUpstream() as up,
            gateway([expert("one", up)]) as g,
            Client(g.port) as client,
        ):
            for start in range(0, len(data), step):
                client.send(data[start : start + step])
                await asyncio.sleep(0)
            answers = [await asyncio.wait_for(client.answer(), 3) for _ in range(3)]
            return answers, up.bodies, up.heads

    answers, bodies, heads = asyncio.run(run())
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert all("upgrade" not in answer.headers for answer in answers)
    assert len(bodies) == 2
    assert all(json.loads(body)["messages"] == chat()["messages"] for body in bodies)
    assert not any({"upgrade", "http2-settings"} & set(headers) for _, headers in heads)


@pytest.mark.parametrize(
    "lines",
    [
        b"connection: upgrade\r\nupgrade: h2c, websocket\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\nupgrade: websocket\r\n",
        OFFER + b"content-length: 3\r\n",
    ],
)
def test_an_offer_hides_nothing(lines):
    said, closed, asked, records = exchange(POST + lines + LENGTH + b"\r\n" + BODY)
    assert closed
    assert said.startswith(b"HTTP/1.1 400 ")
    assert (asked, records) == (0, [])


def test_an_offer_with_close_still_closes():
    head = POST + b"connection: close, upgrade\r\nupgrade: h2c\r\n" + LENGTH + b"\r\n"
    said, closed, asked, _ = exchange(head + BODY)
    assert closed
    assert said.startswith(b"HTTP/1.1 200 ")
    assert asked == 1

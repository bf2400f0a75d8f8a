"""Clients that are slow are cut, and slow down nobody else."""

import asyncio
import socket

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, request_bytes, rows, solo
from raw_http_cases import BODY, LENGTH, POST, SLOW, exchange
from waiting import PATIENCE, until


@pytest.mark.parametrize("sent", [b"", b"POST /v1/ch", POST, POST + LENGTH + b"\r\n" + BODY[:20]])
def test_a_client_that_does_not_go_on_is_cut(sent):
    said, asked, records = exchange(sent, SLOW)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert (asked, records) == (0, [])


async def test_dripping_bytes_do_not_extend_the_time():
    drops = POST * 20
    # Cut long before the last: at 50 bytes a second they would take a hundred times as long.
    async with solo(limits=SLOW) as (_, g), Client(g.port) as client:
        sent = 0
        try:
            for byte in drops:
                client.send(bytes([byte]))
                sent += 1
                await asyncio.sleep(0.02)
                if client.reader._buffer or client.reader.at_eof():
                    break
        except ConnectionError:
            pass
        assert sent < len(drops) / 2


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not():
    async with solo(FakeUpstream(delay=0.8), limits=SLOW) as (_, g), Client(g.port) as client:
        slow = await client.ask(chat())
        rest = await asyncio.wait_for(client.reader.read(), PATIENCE)
    assert slow.status == 200
    assert rest == b"" or rest.startswith(b"HTTP/1.1 408")


async def test_a_client_that_does_not_read_is_cut_and_slows_only_itself(monkeypatch):
    monkeypatch.setattr("mild_gateway.server.protocol.STALL_SECONDS", 0.4)
    async with (
        solo(
            FakeUpstream(text=f"{'word' * 1500} " * 2000), one={"idle_seconds": 5}, limits=SLOW
        ) as (_, g),
    ):
        sock = socket.create_connection(("127.0.0.1", g.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(request_bytes(chat(stream=True)))
        (row,) = await rows(g)
        quick = await ask(g.port, None, "/health", "GET")
        sock.close()
    assert row.outcome == "cancelled"
    assert quick.status == 200


@pytest.mark.parametrize("more", [b"\r\n", b"POST /v1"])
async def test_a_head_that_comes_slowly_behind_a_request_does_not_cut_its_answer(more):
    async with solo(FakeUpstream(delay=0.8), limits=SLOW) as (up, g), Client(g.port) as client:
        client.send(request_bytes(chat()))
        await until(lambda: up.in_flight)
        client.send(more)
        found = await asyncio.wait_for(client.answer(), PATIENCE)
        rest = await asyncio.wait_for(client.reader.read(), PATIENCE)
    assert found.status == 200
    assert rest.startswith(b"HTTP/1.1 408 ")

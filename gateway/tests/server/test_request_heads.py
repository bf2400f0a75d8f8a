"""Heads that are too long, or offer another protocol."""

import asyncio
import json

import pytest

from gateway_cases import Client, chat, request_bytes, solo
from raw_http_cases import BODY, LENGTH, POST, exchange
from waiting import PATIENCE


def test_headers_of_a_client_make_none_upstream_or_in_the_answer():
    headers = {"traceparent": "a\tb", "x_mild_session_id": "é", "connection": "close"}
    said, *_ = exchange(request_bytes(chat(model="one\r\nx-evil: 1"), **headers))
    assert said.startswith(b"HTTP/1.1 404")
    assert b"\r\nx-evil" not in said


OFFER = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
)


@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_an_offer_of_http2_is_passed_over(step):
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
    async with solo() as (up, g), Client(g.port) as client:
        for start in range(0, len(data), step):
            client.send(data[start : start + step])
            await asyncio.sleep(0)
        answers = [await asyncio.wait_for(client.answer(), PATIENCE) for _ in range(3)]
        bodies, heads = up.bodies, up.heads
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
    said, asked, records = exchange(POST + lines + LENGTH + b"\r\n" + BODY)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert (asked, records) == (0, [])


def test_an_offer_with_close_still_closes():
    head = POST + b"connection: close, upgrade\r\nupgrade: h2c\r\n" + LENGTH + b"\r\n"
    said, asked, _ = exchange(head + BODY)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert asked == 1

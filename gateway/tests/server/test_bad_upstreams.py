"""Experts whose HTTP is hostile: the client gets another expert's answer, or an error, in bounded time."""

import asyncio
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, endpoint_of, events, expert, gateway, rows
from waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("no_retry", "short_pauses")
QUICK = {"first_byte_seconds": 0.5, "total_seconds": 1.0}
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'


def hostile(first, again=b""):
    """The address of an expert that sends ``first``, then ``again`` for ever; it closes without one."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        while again:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(0)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return endpoint_of(serve)


def answer(first, again=b"", streamed=False, good=True, **settings):
    """The answer of a gateway that asks the hostile expert first, and its row."""

    async def run():
        async with hostile(first, again) as url, FakeUpstream() as up:
            experts = [expert("bad", url, **{**QUICK, **settings})]
            experts += [expert("good", up)] if good else []
            async with gateway(experts) as g:
                found = await asyncio.wait_for(ask(g.port, chat(stream=streamed)), PATIENCE)
                (row,) = await rows(g)
                return found, row

    return asyncio.run(run())


HOSTILE = {
    "endless body": (OK + b"\r\n", b"x" * 10_000),
    "endless chunks": (OK + CHUNKED, b"2710\r\n" + b"x" * 10_000 + b"\r\n"),
    "chunk size that is no number": (OK + CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", b""),
    "negative chunk size": (OK + CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", b""),
    "chunk longer than it says": (OK + CHUNKED + b"2\r\n{}xx\r\n0\r\n\r\n", b""),
    "chunk extension without end": (OK + CHUNKED + b"2;", b"x" * 10_000),
    "huge header": (OK + b"x: " + b"y" * 1_000_000 + b"\r\n\r\n{}", b""),
    "header without end": (OK + b"x: ", b"y" * 10_000),
    "headers without end": (OK, b"x: y\r\n"),
    "status line without end": (b"HTTP/1.1 200 ", b"y" * 10_000),
    "body shorter than its length": (OK + b"content-length: 100\r\n\r\n{}", b""),
    "length that is no number": (OK + b"content-length: 2x\r\n\r\n{}", b""),
    "negative length": (OK + b"content-length: -2\r\n\r\n{}", b""),
    "two lengths": (OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{} ", b""),
    "length and chunks": (OK + b"content-length: 2\r\n" + CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", b""),
    "redirect": (
        b"HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
        b"",
    ),
    "compressed garbage": (OK + b"content-encoding: gzip\r\n\r\n" + b"\x1f\x8b\x08garbage", b""),
    "brotli": (OK + b"content-encoding: br\r\n\r\n" + b"\x0b\x02\x80", b""),
    "interim responses without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500),
    "early hints without end": (b"", b"HTTP/1.1 103 Hints\r\nlink: a\r\n\r\n" * 300),
    "switching protocols": (b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", b""),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""),
    "JSON nested too deeply": (OK + b"\r\n" + b'{"a":' * 100_000, b""),
}


CASES = [(case, False) for case in HOSTILE]
CASES += [(case, True) for case in HOSTILE if "body" in case or "chunk" in case]


@pytest.mark.parametrize(("case", "streamed"), CASES)
def test_another_expert_answers(case, streamed, monkeypatch):
    monkeypatch.setattr("mild_gateway.experts.client.MAX_BODY_BYTES", 1_000_000)
    monkeypatch.setattr("mild_gateway.experts.events.MAX_EVENT_BYTES", 1_000_000)
    first, again = HOSTILE[case]
    if streamed:
        first = first.replace(b"application/json", b"text/event-stream")
    # A chunk's extension is no body: only the total time ends it.
    total = {"total_seconds": 0.5} if "extension" in case else {}
    found, row = answer(first, again, streamed, **total)
    assert (found.status, found.whole) == (200, True)
    assert found.headers["x-mild-expert"] == "good"
    assert (row.outcome, row.attempts) == ("ok", 2)


@pytest.mark.parametrize(
    ("first", "again", "settings"),
    [
        (EVENT + b"data: ", b"x" * 10_000, {}),
        (EVENT, b": ping\n\n", {"total_seconds": 0.4}),
        (EVENT, EVENT, {"total_seconds": 0.4}),
    ],
    ids=["event without end", "comments for ever", "events for ever"],
)
def test_a_stream_without_end_is_cut_and_says_so(first, again, settings, monkeypatch):
    monkeypatch.setattr("mild_gateway.experts.events.MAX_EVENT_BYTES", 200_000)
    found, row = answer(STREAM + b"\r\n" + first, again, True, **settings)
    assert (found.status, found.whole, row.outcome) == (200, False, "cut")
    assert "[DONE]" not in events(found.body)
    assert found.body.endswith(b'"code": "stream_broken"}}\n\n')


def test_comments_before_the_first_event_end_at_the_total_time():
    found, row = answer(STREAM + b"\r\n", b": ping\n\n", True, good=False, total_seconds=0.4)
    assert (found.status, row.error) == (504, "expert_timeout")


def test_an_error_body_without_end_delays_nobody(monkeypatch):
    monkeypatch.setattr("mild_gateway.server.expert_answer._ERROR_SECONDS", 0.1)
    head = b"HTTP/1.1 500 X\r\ncontent-length: 1000000000\r\n\r\n"
    for again in (b"", b"x" * 10_000):
        assert answer(head, again)[0].headers["x-mild-expert"] == "good"


def test_a_stream_with_a_byte_order_mark_is_read():
    last = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    found, row = answer(STREAM + b"\r\n\xef\xbb\xbf" + EVENT + last, b"", True)
    assert (found.whole, row.outcome, row.expert) == (True, "ok", "bad")
    assert json.loads(events(found.body)[0])["choices"][0]["delta"] == {"content": "a"}

"""Bodies: how large, how slow, and what they must say."""

import asyncio
import json
import time
from dataclasses import replace

import pytest
from starlette.requests import Request

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, request_bytes, solo
from mild_gateway.config import LimitSettings
from mild_gateway.experts.expert import Expert
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import LimitedBody, parse_body
from mild_gateway.server.completion_request import CompletionRequest
from waiting import PATIENCE

LIMITS = LimitSettings(max_body_bytes=10_000_000, body_seconds=60.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff{}",
        b'{"a":' + b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    ],
    ids=["empty", "list", "cut", "not UTF-8", "deep lists", "deep objects"],
)
def test_what_is_no_object_is_refused(body):
    with pytest.raises(Refusal) as caught:
        parse_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_body")


def test_a_body_with_very_many_lists_is_read():
    body = b'{"a":[' + b"[]," * 100_000 + b"[]]}"
    assert len(parse_body(body)["a"]) == 100_001


def receiving(*pieces):
    """A ``receive`` that gives these pieces of a body, and then waits for ever."""
    left = list(pieces)

    async def receive():
        if not left:
            await asyncio.Event().wait()
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    return receive


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5]])
async def test_a_body_beyond_the_size_is_refused_as_soon_as_that_is_known(pieces):
    body = LimitedBody(receiving(*pieces), replace(LIMITS, max_body_bytes=1024))
    body._max_bytes = 10
    with pytest.raises(Refusal) as caught:
        await Request({"type": "http"}, body).body()
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")


async def test_a_body_that_does_not_end_is_refused_and_a_whole_one_may_wait():
    async def stuck():
        if pieces:
            return {"type": "http.request", "body": pieces.pop(), "more_body": True}
        return await asyncio.Event().wait()

    pieces = [b"{"]
    with pytest.raises(Refusal) as caught:
        await Request(
            {"type": "http"}, LimitedBody(stuck, replace(LIMITS, body_seconds=0.05))
        ).body()
    assert (caught.value.status, caught.value.code) == (408, "request_timeout")
    assert caught.value.headers == {"Connection": "close"}
    # Behind a whole body, receive() waits for the client to leave, which has no time limit.
    body = LimitedBody(receiving(b"{}"), replace(LIMITS, body_seconds=0.01))
    assert (await body())["body"] == b"{}"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await body()


async def test_a_slow_body_is_answered_with_408_and_its_place_is_free_again():
    async with solo(limits={"body_seconds": 0.1, "max_in_flight": 1}) as (up, g):
        async with Client(g.port) as client:
            client.send(request_bytes(chat())[:-1])
            found = await asyncio.wait_for(client.answer(), PATIENCE)
            rest = await asyncio.wait_for(client.reader.read(), PATIENCE)
        after = await ask(g.port, chat())
        assert (found.status, json.loads(found.body)["error"]["code"]) == (408, "request_timeout")
        assert (found.headers["connection"], rest) == ("close", b"")
        assert (after.status, up.asked) == (200, 1)


async def test_the_parsed_document_is_dropped_once_the_expert_is_chosen(monkeypatch):
    requests = []
    forget = CompletionRequest.forget

    def note(request, *, keep_text):
        requests.append((request, request._document is not None, request.text))
        forget(request, keep_text=keep_text)

    monkeypatch.setattr(CompletionRequest, "forget", note)
    document = chat("Hello", max_tokens=7, tools=[{"type": "function"}], metadata={"a": "b"})
    async with solo(FakeUpstream(delay=0.2)) as (up, g):
        task = asyncio.create_task(ask(g.port, document))
        while not up.in_flight:
            await asyncio.sleep(0.005)
        ((request, had, text),) = requests
        found = request._document, request.text, request.max_tokens(g.settings.experts[0])
        # No part of it is kept, either.
        kept = [one for one in vars(request).values() if isinstance(one, dict) and one]
        # Who asks for it later gets it anew.
        assert request.document == document
        await task
        assert (had, text, found, kept) == (True, "Hello", (None, "", 7), [])


def test_a_long_body_in_small_pieces_is_put_together_once():
    """One client that adds a byte at a time to megabytes must not stall the others."""
    pieces = [b"x" * 9_000_000] + [b"y"] * 3000

    async def receive():
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    body = LimitedBody(receive, LIMITS)
    start = time.process_time()
    found = asyncio.run(Request({"type": "http"}, body).body())
    # Copied for every piece, it took three seconds.
    assert time.process_time() - start < 0.5
    assert (len(found), found[-3001:]) == (9_003_000, b"x" + b"y" * 3000)


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ({}, 100),
        ({"n": 3}, 300),
        ({"max_tokens": 7, "n": 3}, 21),
        ({"max_tokens": "9", "best_of": {}}, 9),
        ({"max_tokens": [7], "max_completion_tokens": 1, "max_output_tokens": 1}, 100),
        ({"prompt": []}, 100),
        ({"prompt": ["x"] * 5, "max_tokens": 2}, 10),
        ({"prompt": [[1, 2], [3]], "max_tokens": 2}, 4),
        ({"prompt": [1, 2, 3], "max_tokens": 2}, 2),
    ],
)
def test_the_limit_of_tokens_outlives_the_document(more, most):
    expert = Expert("small", "http://x/v1", "m", max_tokens=100)
    document = {"model": "mild", "prompt": "x", **more}
    request = CompletionRequest([], "/completions", json.dumps(document).encode(), "last")
    request.forget(keep_text=False)
    assert request.max_tokens(expert) == most


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"model": "mild", "max_tokens": 9, "max_tokens": 1}', "max_tokens"),
        (b'{"model": "mild", "max_tok\\u0065ns": 9, "max_tokens": 1}', "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "a", "content": "b"}]}', "content"),
        (b'{"a": 1, "a": 1}', "a"),
    ],
)
async def test_a_key_that_stands_twice_is_refused(body, key):
    async with solo() as (up, g):
        found = await ask(g.port, body)
    error = json.loads(found.body)["error"]
    assert (found.status, error["code"], error["param"], up.asked) == (400, "duplicate_key", key, 0)
    assert repr(key) in error["message"]


def test_a_key_may_stand_in_several_objects():
    body = b'{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}'
    assert parse_body(body) == json.loads(body)

"""Bodies are bounded in structure before they are parsed, and in bytes while they are held."""

import asyncio
import json
import time
import tracemalloc

import pytest
from starlette.requests import Request

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, request_bytes, solo
from mild_gateway.experts import json_edit
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.json_edit import MAX_DEPTH, REQUEST_LIMITS
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import FairLimit, HeldAnswers, RequestAnswers, parse_body
from mild_gateway.server.completion_request import CompletionRequest
from mild_gateway.server.middleware import LimitedBody
from waiting import until

MAX_CONTAINERS, MAX_VALUES = REQUEST_LIMITS


def lists(count):
    return b'{"a":[' + b",".join([b"[]"] * count) + b"]}"


def nested(depth, text=b"1"):
    return b'{"a":' + b"[" * (depth - 1) + text + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    "body",
    [
        lists(MAX_CONTAINERS - 2),
        b'{"a":[' + b"7," * (MAX_VALUES - 3) + b"7]}",
        nested(MAX_DEPTH),
        # Marks within texts are no structure, whatever stands before their quotes.
        json.dumps({"a": "[{," * MAX_VALUES}).encode(),
        json.dumps(
            {"a": ['\\"', "\\", '"[' * MAX_CONTAINERS, "\\\\" + "[" * MAX_CONTAINERS]}
        ).encode(),
        json.dumps({"a": [["x, y"] for _ in range(MAX_DEPTH)], "b": "é" * 10}).encode(),
    ],
    ids=["containers", "values", "depth", "text", "escapes", "mixed"],
)
def test_what_is_within_the_bounds_is_read_as_it_is(body):
    assert parse_body(body) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        lists(MAX_CONTAINERS),
        b'{"a":[' + b"{}," * MAX_CONTAINERS + b"{}]}",
        b'{"a":[' + b"7," * MAX_VALUES + b"7]}",
        b"{" + b",".join(b'"%d":0' % n for n in range(MAX_VALUES + 1)) + b"}",
        nested(MAX_DEPTH + 1),
        b'{"a":' + b'{"a":' * MAX_DEPTH + b"1" + b"}" * (MAX_DEPTH + 1),
        b'{"a":"\\\\",' + lists(MAX_CONTAINERS)[1:],
    ],
    ids=["lists", "objects", "values", "keys", "depth", "depth of objects", "behind an escape"],
)
def test_what_is_beyond_the_bounds_is_never_parsed(body, monkeypatch):
    parsed = []
    monkeypatch.setattr(json_edit.json, "loads", parsed.append)
    with pytest.raises(Refusal) as caught:
        parse_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_body")
    assert parsed == []


@pytest.mark.parametrize("text", ["\\\\", '\\"[', "[", '\\u005b"'.replace('"', '\\"')])
@pytest.mark.parametrize("shift", range(4))
def test_blocks_are_counted_as_one_body(text, shift, monkeypatch):
    """Wherever a block ends: within a text, behind a backslash, between brackets."""
    monkeypatch.setattr(json_edit, "_BLOCK_BYTES", 8)
    inside = b'{"a":"' + b"x" * shift + text.encode() * 50 + b'","b":'
    assert parse_body(inside + b"[" * 99 + b"]" * 99 + b"}")["a"]
    with pytest.raises(Refusal):
        parse_body(inside + b"[" * 100 + b"]" * 100 + b"}")


@pytest.mark.parametrize("part", [b"[],", b"{},", b'"",', b"1,", b'"', b"\\", b'\\"', b"["])
def test_ten_megabytes_of_anything_take_a_few_times_their_bytes(part):
    body = b'{"a":[' + part * (9_900_000 // len(part))
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            parse_body(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Parsed, they took 20 times their bytes.
    assert peak < 6 * len(body)


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

    body = LimitedBody(receive, 10_000_000, FairLimit(10_000_000, lambda: True))
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


def test_bytes_are_held_up_to_the_limit():
    held = FairLimit(10, lambda: True)
    assert (held.take("a", 4), held.take("a", 6), held.take("a", 1)) == (True, True, False)
    held.give_back("a", 4)
    assert (held.take("a", 3), held.held) == (True, 9)


async def test_bodies_of_many_requests_are_held_within_the_limit(monkeypatch):
    """Ten uploads at once; those beyond the limit are refused, and what was held is given back."""
    memories = []
    start = FairLimit.__init__

    def note(memory, limit, *arguments):
        memories.append(memory)
        memory.highest = 0
        start(memory, limit, *arguments)

    def take(memory, *arguments):
        found = plain(memory, *arguments)
        memory.highest = max(memory.highest, memory.held)
        return found

    plain = FairLimit.take
    monkeypatch.setattr(FairLimit, "__init__", note)
    monkeypatch.setattr(FairLimit, "take", take)
    big = request_bytes(chat("x" * 300_000))
    async with solo(FakeUpstream(held=True), limits={"max_bytes_in_flight": 1_000_000}) as (up, g):

        async def upload():
            async with Client(g.port) as client:
                client.send(big)
                return await client.answer()

        uploads = [asyncio.create_task(upload()) for _ in range(10)]
        await until(lambda: up.in_flight + sum(task.done() for task in uploads) == 10)
        up.held = False
        found = await asyncio.gather(*uploads)
        after = await ask(g.port, chat())
        after = after.status
    statuses = [answer.status for answer in found]
    assert set(statuses) == {200, 503}
    assert after == 200
    assert statuses.count(200) <= 3
    (memory,) = (memory for memory in memories if memory.highest > 100)
    assert memory.highest <= 1_000_000
    assert memory.held == 0


async def test_answers_of_one_request_count_as_one():
    held = HeldAnswers(300_000, lambda: None)
    one, other = RequestAnswers(held), RequestAnswers(held)
    await one.hold("a", 200_000)
    # Beyond the limit, but the first may go on.
    await one.hold("b", 200_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await other.hold("c", 100_000)
    one.drop("a")
    assert list(held._arriving.values()) == [200_000]
    async with asyncio.timeout(0.05):
        await other.hold("c", 100_000)
    one.drop("b")
    other.drop("c")
    assert not held._arriving

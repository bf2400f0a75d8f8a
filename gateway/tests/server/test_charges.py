"""What is charged for answers that end early, report no usage or an impossible one."""

import asyncio
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, reply, request_bytes, rows, said, solo
from waiting import PATIENCE, until

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
PRICES = {"price_in": 10.0, "price_out": 10.0}
LIMIT = 8000
REQUESTS = {
    CHAT: chat("Hello", max_tokens=LIMIT),
    COMPLETIONS: {"model": "mild", "prompt": "Hello", "max_tokens": LIMIT},
    RESPONSES: {"model": "mild", "input": "Hello", "max_output_tokens": LIMIT},
    MESSAGES: chat("Hello", max_tokens=LIMIT),
}
APIS = ("openai", "anthropic")
# Four events with 1,000 tokens of 3 bytes each.
LARGE = " ".join(["x" * 2999] * 4)


async def leave(g, document, path=CHAT, after=b"x" * 2999, times=4):
    """Begin a stream, and leave it after some bytes were read so often."""
    async with Client(g.port) as client:
        client.send(request_bytes({**document, "stream": True}, path))
        found = b""
        while found.count(after) < times:
            piece = await asyncio.wait_for(client.reader.read(65536), PATIENCE)
            assert piece
            found += piece
    (row,) = await rows(g)
    return row


async def spent(g, row):
    """What the account of the day was charged."""
    found = g.app.access.spend()["all"]["day"]
    assert found["held"] == 0
    assert found["spent"] == pytest.approx(row.price)
    return found["spent"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("path", REQUESTS)
async def test_a_client_that_leaves_pays_for_large_events_by_their_bytes(path, api):
    async with solo(FakeUpstream(text=LARGE, delay=0.05), one={"api": api, **PRICES}) as (_, g):
        row = await leave(g, REQUESTS[path], path)
        dollars = await spent(g, row)
    assert (row.outcome, row.status) == ("cancelled", 200)
    assert row.tokens_out == 4000
    assert dollars == pytest.approx(0.0401, abs=0.0006)
    if api == "anthropic":
        # As its first event says.
        assert row.tokens_in == 10


async def test_the_estimate_is_never_above_the_reservation():
    async with solo(FakeUpstream(text=LARGE, delay=0.05), one=PRICES) as (_, g):
        row = await leave(g, chat("Hello", max_tokens=500))
    assert row.tokens_out == 500


async def test_many_small_events_are_charged_one_token_each():
    async with solo(FakeUpstream(text="a " * 50, delay=0.002), one=PRICES) as (_, g):
        row = await leave(g, chat("Hello"), after=b'"a "', times=40)
    assert 40 <= row.tokens_out <= 51


async def test_reasoning_and_arguments_of_tools_are_charged():
    deltas = [{"reasoning_content": "r" * 300, "reasoning": "r" * 300}, {"content": "ü" * 150}]
    deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": "a" * 300}}]})
    body = [b"data: " + json.dumps({"choices": [{"delta": one}]}).encode() for one in deltas]
    stream = reply(200, b"\n\n".join([*body, b""]), content_type="text/event-stream")
    async with solo(FakeUpstream(script=[stream]), one=PRICES) as (_, g):
        found = await ask(g.port, chat("Hello", stream=True))
        (row,) = await rows(g)
    assert b"stream_broken" in found.body
    assert (row.outcome, row.tokens_out) == ("cut", 300)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_the_usage_behind_a_finished_answer_is_waited_for(path):
    usage = {"prompt_tokens": 10, "completion_tokens": 3000}
    upstream = FakeUpstream(text=LARGE, delay=0.1, usage=usage)
    async with solo(upstream, one=PRICES) as (up, g):
        last = b'"finish_reason": "stop"' if path == CHAT else b"x" * 2999
        async with Client(g.port) as client:
            client.send(request_bytes({**REQUESTS[path], "stream": True}, path))
            found = b""
            while found.count(last) < (1 if path == CHAT else 4):
                found += await client.reader.read(65536)
            # The finish of a translated stream is written with its end.
            await asyncio.sleep(0 if path == CHAT else 0.15)
            assert up.in_flight == g.app.in_flight == 1
        (row,) = await rows(g)
        await spent(g, row)
        client = g.app.clients["one"]
        held = g.app.in_flight, client.limiter.in_flight
    assert row.outcome == "cancelled"
    assert (row.tokens_in, row.tokens_out) == (10, 3000)
    assert held == (0, 0)


async def test_an_expert_that_still_writes_is_read_for_a_while(monkeypatch):
    monkeypatch.setattr("mild_gateway.server.time_limit.READ_ON_SECONDS", 0.1)
    async with solo(FakeUpstream(text="word " * 100, held=True), one=PRICES) as (up, g):
        row = await leave(g, chat("Hello", max_tokens=500), after=b"word", times=1)
        await spent(g, row)
        await until(lambda: up.in_flight == 0)
    assert (up.cancelled, up.answered) == (1, 0)
    # As reserved: nobody knows how much was written.
    assert (row.outcome, row.tokens_out) == ("cancelled", 500)


async def test_reading_on_does_not_delay_the_end(monkeypatch):
    monkeypatch.setattr("mild_gateway.server.time_limit.READ_ON_SECONDS", 3600.0)
    upstream = FakeUpstream(held=True)
    async with solo(upstream, one=PRICES, limits={"drain_seconds": 0.2}) as (_, g):
        async with Client(g.port) as client:
            client.send(request_bytes(chat("Hello", stream=True, max_tokens=500)))
            await client.reader.readuntil(b"one")
        await asyncio.sleep(0.1)
        assert (g.ledger.records, g.app.in_flight) == ([], 1)
        await asyncio.wait_for(g.stop(), PATIENCE)
        (row,) = g.ledger.records
        await spent(g, row)
    assert (row.outcome, row.tokens_out) == ("cancelled", 500)


IMPOSSIBLE = [
    {"prompt_tokens": 10, "completion_tokens": 0},
    {"prompt_tokens": 10, "completion_tokens": float("nan")},
    {"prompt_tokens": 3_000_000, "completion_tokens": 10},
    "none",
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=str)
async def test_an_impossible_usage_is_replaced_by_the_estimate(usage, streamed):
    async with solo(FakeUpstream(text=LARGE, usage=usage), one=PRICES) as (_, g):
        found = await ask(g.port, {**REQUESTS[CHAT], "stream": streamed})
        (row,) = await rows(g)
        await spent(g, row)
    assert (found.status, row.outcome) == (200, "ok")
    assert row.tokens_out == 4000
    assert 0 < row.tokens_in < 100


@pytest.mark.parametrize("context", [None, 2000])
async def test_usage_is_plausible_up_to_the_context_and_max_tokens(context):
    usage = {"prompt_tokens": 2000, "completion_tokens": 8001}
    async with solo(FakeUpstream(usage=usage), one={"context": context, **PRICES}) as (_, g):
        # More than the context is not reserved, whatever is asked for.
        await ask(g.port, chat("Hello", max_tokens=8000))
        (row,) = await rows(g)
    assert (row.tokens_in, row.tokens_out) == ((2000, 8001) if context is None else (30, 5))


@pytest.mark.parametrize(
    ("limits", "reserved"),
    [
        ({"context": 2000}, 2000),
        ({"max_output": 500, "context": 2000}, 500),
        ({"context": 2000, "max_tokens": 8000}, 2000),
        ({}, 1_000_000),
        ({"context": 3_000_000}, 3_000_000),
    ],
)
async def test_max_tokens_above_the_limit_of_the_expert_reserves_the_limit(limits, reserved):
    one = {"price_out": 1.0, **limits}
    budget = {"budget_day": reserved * 1e-6 * 0.999}
    # By its name, an expert is asked whatever it declares.
    document = chat("Hello", model="one", max_tokens=10**13)
    async with solo(one=one, access_settings=budget) as (_, g):
        refused = await ask(g.port, document)
    async with solo(one=one, access_settings={"budget_day": reserved * 1.001e-6}) as (_, g):
        served = await ask(g.port, document)
    assert (refused.status, served.status) == (402, 200)


@pytest.mark.parametrize("body", [b"{}", b'{"choices": []}', b'{"choices": null}', b'{"id": "c"}'])
@pytest.mark.parametrize(("path", "api"), [(CHAT, "openai"), (MESSAGES, "anthropic")])
async def test_a_body_without_an_answer_is_none(path, api, body):
    one = {"api": api, **PRICES}
    async with solo(FakeUpstream(script=[reply(200, body)]), one=one) as (up, g):
        found = await ask(g.port, REQUESTS[path], path)
        (row,) = await rows(g)
    assert (found.status, up.asked, row.attempts) == (200, 2, 2)
    assert b"one two three" in found.body


async def test_a_stream_that_begins_without_an_answer_is_none():
    stream = reply(200, b"data: {}\n\ndata: [DONE]\n\n", content_type="text/event-stream")
    async with solo(FakeUpstream(script=[stream])) as (up, g):
        found = await ask(g.port, chat(stream=True))
    assert (found.whole, up.asked, said(found.body)) == (True, 2, "one two three")


@pytest.mark.parametrize("of_the_expert", [True, False])
async def test_a_stream_that_the_gateway_ends_is_charged_as_reserved(of_the_expert):
    """Nobody knows what it would have cost, such as for reasoning that is not shown."""
    time = {"total_seconds": 1.0}
    settings = {"one": {**PRICES, **time}} if of_the_expert else {"one": PRICES, "limits": time}
    async with solo(FakeUpstream(text="a " * 10_000, delay=0.02), **settings) as (_, g):
        await ask(g.port, chat("Hello", max_tokens=LIMIT, stream=True))
        (row,) = await rows(g)
        await spent(g, row)
    assert (row.outcome, row.tokens_out) == ("cut", LIMIT)

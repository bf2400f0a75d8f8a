"""Input whose tokens nobody can count: what is reserved and charged for it, and when it is refused."""

import asyncio
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, expert, gateway, reply, request_bytes, rows, solo
from mild_gateway.selection.text import uncountable_input
from waiting import PATIENCE

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
# Dollars per million tokens; 150,000 of them cost 0.45.
PRICES = {"price_in": 3.0, "price_out": 3.0}
PDF = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
FILE = {"type": "file", "file": {"file_id": "file-1"}}
INLINE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
REMOTE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def turn(*parts):
    return {"role": "user", "content": list(parts)}


def messages(*parts, **more):
    return {"messages": [turn(*parts)], **more}


@pytest.mark.parametrize(
    "document",
    [
        messages(PDF),
        messages({"type": "document", "source": {"type": "file", "file_id": "f"}}),
        messages({"type": "document", "source": {"type": "base64", "data": "AAAA"}}),
        messages(FILE),
        messages(REMOTE),
        messages({"type": "image_url", "image_url": {"url": "data:application/pdf;base64,AA"}}),
        messages({"type": "image_url", "image_url": "https://example.com/a.png"}),
        messages({"image_url": {"url": "https://example.com/a.png"}}),
        messages({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}),
        messages({"type": "image", "source": {"type": "file", "file_id": "f"}}),
        messages({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        messages({"type": "tool_result", "tool_use_id": "t", "content": [PDF]}),
        messages({"type": "new_kind", "text": "Hello"}),
        messages({"type": ["text"]}),
        {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
        {"messages": [{"role": "user", "content": PDF}]},
        {"messages": [], "system": [PDF]},
        {"input": [turn({"type": "input_file", "file_id": "f"})]},
        {"input": [turn({"type": "input_image", "file_id": "f"})]},
        {"input": [{"type": "item_reference", "id": "i"}]},
        {"input": [{"type": "function_call_output", "output": [{"type": "input_file"}]}]},
        {"input": "Go on", "previous_response_id": "resp_1"},
        {"input": "Go on", "conversation": "conv_1"},
        {"input": "Hello", "prompt": {"id": "pmpt_1"}},
        {"messages": [], "mcp_servers": [{"url": "https://example.com"}]},
        {"messages": [], "web_search_options": {"search_context_size": "high"}},
        *[
            {"messages": [], "tools": [{"type": kind}]}
            for kind in (
                "web_search", "file_search", "code_interpreter", "computer_use_preview", "mcp",
                "web_search_20250305",
            )
        ],
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_is_not_in_the_request_is_uncountable(document):
    assert uncountable_input(document)


@pytest.mark.parametrize(
    "document",
    [
        chat("Hello"),
        messages({"type": "text", "text": "Hello"}, INLINE),
        messages({"text": "Hello"}),
        messages({"type": "image", "source": {"type": "base64", "data": "AAAA"}}),
        messages({"type": "document", "source": {"type": "text", "data": "A long text."}}),
        messages({"type": "tool_result", "content": [{"type": "text", "text": "5"}]}),
        chat("Hello", tools=[{"type": "function", "function": {"name": "f"}}, {"name": "g"}]),
        {"input": [{"type": "message", **turn({"type": "input_text", "text": "Hello"})}]},
        {"input": [{"type": "function_call", "name": "f"}, {"type": "reasoning", "content": []}]},
        {"input": ["one", "two"]},
        {"prompt": ["one", "two"]},
        {"prompt": [1, 2, 3]},
        {"messages": 5, "tools": "x", "system": 3, "input": None, "previous_response_id": None},
    ],
    ids=json.dumps,
)
def test_texts_and_images_in_the_request_are_counted(document):
    assert uncountable_input(document) == ""


async def test_a_document_reserves_the_context():
    document = {**messages(FILE, model="mild"), "max_tokens": 10}
    one = {"context": 100_000, **PRICES}
    for budget, status in ((0.29, 402), (0.31, 200)):
        async with solo(one=one, access_settings={"budget_day": budget}) as (up, g):
            found = await ask(g.port, document)
            await rows(g)
        assert (found.status, up.asked) == (status, int(status == 200))


async def test_many_documents_at_once_spend_no_more_than_the_budget():
    usage = {"prompt_tokens": 150_000, "completion_tokens": 3}
    one = {"context": 200_000, **PRICES}
    document = {**messages(FILE, model="mild"), "max_tokens": 10}
    async with solo(FakeUpstream(usage=usage), one=one, access_settings={"budget_day": 1.0}) as (
        _,
        g,
    ):
        found = await asyncio.gather(*[ask(g.port, document) for _ in range(20)])
        await rows(g, 20)
        spent = g.app.access.spend()["all"]["day"]["spent"]
    assert {answer.status for answer in found} <= {200, 402, 429}
    assert any(answer.status == 200 for answer in found)
    assert 0.45 <= spent <= 1.0


async def test_an_expert_without_a_context_refuses_it_under_a_budget():
    async with solo(one=PRICES, access_settings={"budget_day": 1.0}) as (up, g):
        found = await ask(g.port, messages(FILE, model="one"))
    error = json.loads(found.body)["error"]
    assert (found.status, error["code"], up.asked) == (400, "uncountable_input", 0)
    assert "content of type file" in error["message"]
    assert "experts.one.context" in error["message"]


async def test_without_a_budget_no_context_is_needed():
    async with solo(one=PRICES) as (up, g):
        found = await ask(g.port, messages(FILE, model="one"))
    assert (found.status, up.asked) == (200, 1)


async def test_an_expert_with_a_context_is_asked_instead():
    async with FakeUpstream("one") as one, FakeUpstream("two") as two:
        experts = [expert("one", one, **PRICES), expert("two", two, context=1000, **PRICES)]
        async with gateway(experts, access_settings={"budget_day": 1.0}) as g:
            found = await ask(g.port, messages(FILE, model="mild", max_tokens=10))
    assert (found.status, found.headers["x-mild-expert"]) == (200, "two")


async def test_reported_input_is_charged_as_reported():
    usage = {"prompt_tokens": 150_000, "completion_tokens": 3}
    one = {"context": 200_000, **PRICES}
    async with solo(FakeUpstream(usage=usage), one=one) as (_, g):
        await ask(g.port, messages(FILE, model="mild", max_tokens=10))
        (row,) = await rows(g)
    assert (row.tokens_in, row.tokens_out) == (150_000, 3)
    assert row.price == pytest.approx(150_003 * 3e-6)


@pytest.mark.parametrize("streamed", [False, True])
async def test_without_reported_usage_the_reservation_is_charged(streamed):
    one = {"context": 200_000, "stream_usage": False, **PRICES}
    access = {"budget_day": 1.0}
    async with solo(FakeUpstream(usage="none"), one=one, access_settings=access) as (_, g):
        await ask(g.port, messages(FILE, model="mild", max_tokens=1000, stream=streamed))
        (row,) = await rows(g)
        spent = g.app.access.spend()["all"]["day"]["spent"]
    assert (row.tokens_in, row.tokens_out) == (200_000, 1000)
    assert spent == pytest.approx(row.price) == pytest.approx(201_000 * 3e-6)


@pytest.fixture
def not_read_on(monkeypatch):
    """An answer is read for a moment only, once its client has left."""
    monkeypatch.setattr("mild_gateway.server.time_limit.READ_ON_SECONDS", 0.1)


async def leave(g, document, path, after):
    """Begin a stream, and leave it after these bytes."""
    async with Client(g.port) as client:
        client.send(request_bytes({**document, "stream": True}, path))
        await asyncio.wait_for(client.reader.readuntil(after), PATIENCE)
    (row,) = await rows(g)
    return row


def message_start(tokens_in, **usage):
    """A stream of Anthropic's API that has begun, and never ends."""
    usage = {"input_tokens": tokens_in, "output_tokens": 1, **usage}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage}
    start = {"type": "message_start", "message": message}
    delta = {"type": "text_delta", "text": "Hello"}
    begun = {"type": "content_block_delta", "index": 0, "delta": delta}
    events = b"".join(
        b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode())
        for one in (start, begun)
    )
    return reply(200, events, content_type="text/event-stream", content_length=10**6)


@pytest.mark.usefixtures("not_read_on")
async def test_a_stream_that_its_client_cuts_pays_for_the_input_that_was_reported():
    one = {"api": "anthropic", "context": 200_000, **PRICES}
    upstream = FakeUpstream(script=[message_start(150_000)])
    async with solo(upstream, one=one, access_settings={"budget_day": 1.0}) as (_, g):
        row = await leave(g, messages(PDF, model="mild", max_tokens=100), MESSAGES, b"Hello")
        spent = g.app.access.spend()["all"]["day"]["spent"]
    assert row.outcome == "cancelled"
    assert row.tokens_in == 150_000
    assert spent == pytest.approx(row.price) == pytest.approx(0.45, abs=0.001)


@pytest.mark.usefixtures("not_read_on")
async def test_even_a_text_pays_for_the_input_that_was_reported():
    upstream = FakeUpstream(script=[message_start(5000)])
    async with solo(upstream, one={"api": "anthropic", **PRICES}) as (_, g):
        row = await leave(g, chat("Hi", max_tokens=100), MESSAGES, b"Hello")
    assert row.tokens_in == 5000


@pytest.mark.usefixtures("not_read_on")
async def test_a_stream_that_its_client_cuts_without_usage_pays_its_reservation():
    upstream = FakeUpstream(text="word " * 50, held=True)
    one = {"context": 200_000, **PRICES}
    async with solo(upstream, one=one) as (_, g):
        row = await leave(g, messages(FILE, model="mild", max_tokens=1000), CHAT, b"word")
    assert (row.tokens_in, row.tokens_out) == (200_000, 1000)


async def test_a_failed_attempt_is_charged_for_the_context():
    one = {"context": 200_000, **PRICES}
    async with solo(FakeUpstream(script=["reset"]), one=one) as (_, g):
        found = await ask(g.port, messages(FILE, model="mild", max_tokens=10))
        (row,) = await rows(g)
    assert found.status == 200
    assert row.price >= 200_000 * 3e-6


async def test_a_hosted_tool_of_the_expert_itself_counts_too():
    one = {"extra": {"web_search_options": {"user_location": None}}, **PRICES}
    async with solo(one=one, access_settings={"budget_day": 1.0}) as (up, g):
        found = await ask(g.port, chat("Hello"))
    assert (found.status, up.asked) == (400, 0)
    assert json.loads(found.body)["error"]["code"] == "uncountable_input"


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"service_tier": "priority"}, 400),
        ({"service_tier": "flex"}, 400),
        ({"speed": "fast"}, 400),
        ({"inference_geo": "us"}, 400),
        ({"service_tier": ["priority"]}, 400),
        ({"service_tier": "auto"}, 200),
        ({"service_tier": "default"}, 200),
        ({"service_tier": "standard_only"}, 200),
        ({"service_tier": None, "speed": "standard"}, 200),
    ],
    ids=str,
)
async def test_a_service_with_a_price_of_its_own_is_refused_under_a_budget(document, status):
    async with solo(one=PRICES, access_settings={"budget_day": 1.0}) as (up, g):
        found = await ask(g.port, chat("Hello", **document))
        await rows(g)
    assert (found.status, up.asked) == (status, int(status == 200))
    if status == 400:
        error = json.loads(found.body)["error"]
        assert (error["code"], error["param"]) == ("unpriced_service", next(iter(document)))


async def test_a_service_is_passed_on_without_a_budget_and_by_an_expert_that_sets_it():
    async with solo(one=PRICES) as (up, g):
        await ask(g.port, chat("Hello", service_tier="priority"))
    assert json.loads(up.bodies[0])["service_tier"] == "priority"
    one = {"extra": {"service_tier": "flex"}, **PRICES}
    async with solo(one=one, access_settings={"budget_day": 1.0}) as (up, g):
        found = await ask(g.port, chat("Hello", service_tier="priority"))
    assert found.status == 200
    assert json.loads(up.bodies[0])["service_tier"] == "flex"


@pytest.mark.parametrize(("price", "dollars"), [(None, 2e-6), (2.5, 2.5e-6)])
async def test_tokens_that_are_written_to_the_cache_have_their_price(price, dollars):
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 1000, "output_tokens": 1},
    }
    upstream = FakeUpstream(script=[reply(200, json.dumps(message))] * 2)
    one = {"api": "anthropic", "price_in": 2.0, "price_cache_write": price}
    document = chat("Hello " * 1000, max_tokens=5)
    async with solo(upstream, one=one) as (_, g):
        await ask(g.port, document, MESSAGES)
        translated = await ask(g.port, document)
        first, second = await rows(g, 2)
    assert first.tokens_in == second.tokens_in == 1010
    assert first.price == second.price == pytest.approx(10 * 2e-6 + 1000 * dollars)
    details = json.loads(translated.body)["usage"]["prompt_tokens_details"]
    assert details == {"cached_tokens": 0, "cache_write_tokens": 1000}


async def test_the_price_of_cache_writes_is_reserved():
    document = chat("x" * 100_000, max_tokens=1)
    one = {"price_in": 1.0, "price_cache_write": 2.0}
    for budget, status in ((0.15, 402), (0.21, 200)):
        async with solo(one=one, access_settings={"budget_day": budget}) as (_, g):
            assert (await ask(g.port, document)).status == status

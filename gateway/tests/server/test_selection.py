"""Requests that not every expert can serve, fallback experts, sessions by content, prompt-cache prices."""

import asyncio
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, expert, gateway, priced_router, rows
from mild_gateway.config import AccessSettings

IMAGE = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def serve(experts, *documents, path="/v1/chat/completions", **parts):
    """Answers to the documents, one after the other, and the ledger's rows; ``experts`` by name."""

    async def run():
        async with FakeUpstream() as up:
            named = [expert(name, up, **more) for name, more in experts.items()]
            async with gateway(named, **parts) as g:
                found = [await ask(g.port, document, path) for document in documents]
                return found, g.ledger.records

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("limit", "document"),
    [
        ({"unsupported": ["images"]}, chat(IMAGE)),
        ({"unsupported": ["tools"]}, chat(tools=[TOOL])),
        (
            {"unsupported": ["json_schema"]},
            chat(response_format={"type": "json_schema", "json_schema": {}}),
        ),
        ({"unsupported": ["reasoning"]}, chat(reasoning_effort="low")),
        ({"context": 100}, chat("word " * 200)),
        ({"max_output": 100}, chat(max_tokens=101)),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_goes_to_an_expert_that_can_serve_it(limit, document, streamed):
    # The router prefers the first.
    found, records = serve({"one": limit, "two": {}}, chat(), {**document, "stream": streamed})
    assert [answer.headers["x-mild-expert"] for answer in found] == ["one", "two"]
    assert [row.propensity for row in records] == [1.0, 1.0]
    assert records[1].probabilities == [None, 1.0]
    assert None not in records[0].probabilities


def test_an_image_counts_as_little_text_for_the_length():
    (found,), _ = serve({"one": {"context": 2000}, "two": {}}, chat(IMAGE))
    assert found.headers["x-mild-expert"] == "one"


def test_a_request_that_nobody_can_serve_is_refused_and_costs_nothing():
    experts = {
        "one": {"unsupported": ["images"], "price_in": 1.0},
        "two": {"context": 10, "price_in": 1.0},
    }
    (found,), (row,) = serve(experts, chat(IMAGE), access_settings=AccessSettings(budget_day=1.0))
    error = json.loads(found.body)["error"]
    assert (found.status, error["code"]) == (400, "no_capable_expert")
    assert error["type"] == "invalid_request_error"
    assert "one takes no images" in error["message"]
    assert "two takes 10 tokens" in error["message"]
    assert (row.outcome, row.status, row.error) == ("refused", 400, "no_capable_expert")
    assert (row.attempts, row.price, row.chosen) == (0, None, None)


def test_a_named_expert_is_asked_whatever_its_limits():
    (found,), _ = serve({"one": {"unsupported": ["images"]}, "two": {}}, chat(IMAGE, model="one"))
    assert found.headers["x-mild-expert"] == "one"


def test_the_decision_alone_says_who_cannot_serve():
    path = "/v1/route?probabilities=true"
    found, _ = serve(
        {"one": {"unsupported": ["images"]}, "two": {}}, chat(IMAGE), chat(), path=path
    )
    seen, plain = (json.loads(answer.body) for answer in found)
    assert (seen["expert"], seen["order"]) == ("two", ["two"])
    assert seen["cannot_serve"] == {"one": "takes no images"}
    assert seen["probabilities"] == {"one": None, "two": 1.0}
    assert (seen["reason"], plain["reason"]) == ("cannot_serve", "router")
    assert (plain["expert"], plain["cannot_serve"]) == ("one", {})
    (refused,), _ = serve({"one": {"unsupported": ["images"]}}, chat(IMAGE), path="/v1/route")
    assert refused.status == 400


@pytest.mark.parametrize("script", [["500"], ["close"], ["garbage"]])
@pytest.mark.usefixtures("no_retry")
async def test_a_fallback_expert_answers_only_where_the_others_fail(script):
    async with FakeUpstream(script=script * 2) as ill, FakeUpstream() as well:
        experts = [
            expert("last", well, role="fallback"),
            expert("one", ill),
            expert("two", ill),
        ]
        # The router does not know the fallback.
        router = priced_router(("one", "two"), (0.1, 0.2), (0.01, 0.01))
        async with gateway(experts, router) as g:
            found = [await ask(g.port, chat()) for _ in range(2)]
            (failed, served) = await rows(g, 2)
    assert [answer.headers["x-mild-expert"] for answer in found] == ["last", "one"]
    assert (failed.chosen, failed.expert, failed.attempts) == ("one", "last", 3)
    assert (failed.propensity, served.chosen, served.attempts) == (1.0, "one", 1)


async def test_a_conversation_without_an_id_stays_with_its_expert():
    async with FakeUpstream() as up:
        routing = {"explore": 1.0, "session_from_content": True}
        async with gateway([expert(n, up) for n in "abc"], routing=routing, seed=3) as g:
            for number in range(6):
                turns = [{"role": "system", "content": "Be kind."}]
                for turn in range(3):
                    turns.append({"role": "user", "content": f"question {number} {turn}"})
                    await ask(g.port, {"model": "mild", "messages": turns})
                    turns.append({"role": "assistant", "content": "one two three"})
                    # A side call: another system prompt about the same conversation.
                    title = [{"role": "system", "content": "Give it a title."}, turns[1]]
                    await ask(g.port, {"model": "mild", "messages": title})
            await ask(g.port, {"model": "mild", "prompt": "x"}, "/v1/completions")
            *records, completion = g.ledger.records
    assert completion.session is None
    talks, sides = records[::2], records[1::2]
    for number in range(6):
        first, *later = talks[3 * number : 3 * number + 3]
        assert first.pinned_by is None
        assert {row.pinned_by for row in later} == {first.request_id}
        assert {(row.session, row.expert) for row in later} == {(first.session, first.expert)}
    assert len({row.session for row in talks}) == 6
    assert {row.session for row in talks}.isdisjoint({row.session for row in sides})
    assert all(row.pinned_by is None for row in sides)


@pytest.mark.parametrize("routing", [{}, {"session_from_content": True, "pin_sessions": False}])
def test_conversations_are_not_known_by_content_unless_configured(routing):
    begun = chat("Hello")["messages"]
    later = [*begun, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "And?"}]
    documents = [{"model": "mild", "messages": turns} for turns in (begun, later)]
    _, records = serve({"one": {}, "two": {}}, *documents, routing=routing)
    assert [row.pinned_by for row in records] == [None, None]


@pytest.mark.parametrize("streamed", [False, True])
async def test_cached_tokens_are_settled_at_their_price(streamed):
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 900},
    }
    async with FakeUpstream(usage=usage) as up:
        prices = {"price_in": 10.0, "price_out": 100.0, "price_cached_in": 1.0}
        budget = AccessSettings(budget_day=1.0)
        async with gateway([expert("one", up, **prices)], access_settings=budget) as g:
            found = await ask(g.port, chat(stream=streamed))
            (row,) = await rows(g)
            day = g.app.access.spend()["all"]["day"]
    assert found.status == 200
    # 100 new tokens, 900 cached ones, 10 of the answer.
    assert row.price == pytest.approx((100 * 10 + 900 * 1 + 10 * 100) * 1e-6)
    assert (row.tokens_in, row.tokens_out) == (1000, 10)
    assert day["held"] == 0
    assert day["spent"] == pytest.approx(row.price)

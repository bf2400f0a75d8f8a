"""Cascades: which experts are asked, whose answer the client gets, what is charged and written down."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fake_upstream import USAGE, FakeUpstream
from gateway_cases import (
    Client,
    ask,
    cascade_router,
    chat,
    events,
    expert,
    gateway,
    priced_router,
    reply,
    request_bytes,
    rows,
    said,
)
from mild.policies import ConstantPolicy, MixPolicy
from mild_gateway.access import Access
from mild_gateway.config import AccessSettings, LedgerSettings, Settings
from mild_gateway.experts.errors import ExpertError
from mild_gateway.ledger.reading import read_ledger
from mild_gateway.ledger.summary import summarize
from mild_gateway.ledger.writer import LedgerWriter
from mild_gateway.metrics import NO_EXPERT
from mild_gateway.server.calls import Calls
from waiting import until

NAMES = ("small", "medium", "large")
# Dollars per million tokens: an answer has 10 tokens in and 3 out.
PRICES = {"small": 1.0, "medium": 2.0, "large": 100.0}
PAID = {name: 13 * price / 1e6 for name, price in PRICES.items()}


@asynccontextmanager
async def cascading(texts, *, names=NAMES, router=None, own=None, up=None, **parts):
    """A gateway with a cascade; ``texts`` are the answers of its experts."""
    async with AsyncExitStack() as stack:
        ups = {}
        for name, text in zip(names, texts, strict=True):
            made = FakeUpstream(name, text=text, **(up or {}).get(name, {}))
            ups[name] = await stack.enter_async_context(made)
        experts = []
        for name in names:
            price = PRICES.get(name, 1.0)
            more = {"price_in": price, "price_out": price, **(own or {}).get(name, {})}
            experts.append(expert(name, ups[name], **more))
        router = cascade_router(names) if router is None else router
        g = await stack.enter_async_context(gateway(experts, router, **parts))
        yield g, SimpleNamespace(**ups)


def mixed_router(share):
    """A cascade, and for a share of the queries always its last expert."""
    router = cascade_router(NAMES)
    last = ConstantPolicy(np.zeros(3), router.n_features, 2)
    return replace(router, policy=MixPolicy(router.policy, last, share, "salt"))


async def test_a_mix_runs_the_cascade_that_is_drawn_for_each_query():
    router = mixed_router(0.5)
    texts = [f"What is {number} + 2?" for number in range(12)]
    async with cascading(["4", "4", "five"], router=router) as (g, _):
        for text in texts:
            found = await ask(g.port, chat(text))
            expected = "large" if router.mix.draws([text])[0] < 0.5 else "small,medium"
            assert found.headers["x-mild-path"] == expected
        records = await rows(g, len(texts))
    assert {record.chosen for record in records} == {"cascade"}
    assert {record.propensity for record in records} == {1.0}
    assert len({record.expert for record in records}) > 1


def answer_of(found):
    return json.loads(found.body)["choices"][0]["message"]["content"]


def asked(ups):
    return [up.asked for up in vars(ups).values()]


async def test_experts_that_agree_answer_and_nobody_else_is_asked():
    async with cascading(["It is 4.", "4.0", "five"]) as (g, ups):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert found.status == 200
    assert answer_of(found) in ("It is 4.", "4.0")
    assert found.headers["x-mild-path"] == "small,medium"
    assert found.headers["x-mild-expert"] == json.loads(found.body)["model"] == record.expert
    assert asked(ups) == [1, 1, 0]
    assert record.chosen == "cascade"
    assert record.propensity == 1.0
    assert record.price == pytest.approx(PAID["small"] + PAID["medium"])
    assert (record.tokens_in, record.tokens_out, record.attempts) == (20, 6, 2)
    assert [(call["expert"], call["step"], call["outcome"]) for call in record.calls] == [
        ("small", 1, "ok"),
        ("medium", 1, "ok"),
    ]
    assert sum(call["dollars"] for call in record.calls) == record.price
    assert all(call["latency_ms"] > 0 for call in record.calls)


async def test_the_experts_of_a_step_are_asked_at_the_same_time():
    slow = {name: {"delay": 0.2} for name in NAMES}
    async with cascading(["4", "4", "4"], up=slow) as (g, ups):
        await ask(g.port, chat())
        (record,) = await rows(g)
    assert abs(ups.small.times[0] - ups.medium.times[0]) < 0.1
    assert record.latency_ms < 400 + record.overhead_ms


async def test_experts_that_disagree_lead_to_the_next_step():
    async with cascading(["4", "5", "6"]) as (g, _):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
        steps = [g.app.metrics.value("mild_cascades_total", step=step) for step in "12"]
        escalations = g.app.metrics.value("mild_cascade_escalations_total")
    assert answer_of(found) == "6"
    assert found.headers["x-mild-path"] == "small,medium>large"
    assert found.headers["x-mild-expert"] == record.expert == "large"
    assert record.price == pytest.approx(sum(PAID.values()))
    assert [call["step"] for call in record.calls] == [1, 1, 2]
    assert steps == [0, 1]
    assert escalations == 1


@pytest.mark.parametrize("fault", ["500", "reset", "garbage", "429", "401", "400"])
async def test_an_expert_that_fails_is_a_disagreement(fault):
    script = [fault] * 2
    async with cascading(["4", "4", "6"], up={"small": {"script": script}}) as (g, _):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert found.status == 200
    assert answer_of(found) == "6"
    assert record.calls[0]["outcome"] != "ok"
    assert record.outcome == "ok"
    assert record.error is None


async def test_an_expert_that_failed_three_times_is_passed_over():
    up = {"small": {"script": ["500"] * 4}}
    async with cascading(["4", "4", "6"], up=up) as (g, ups):
        for _ in range(3):
            found = await ask(g.port, chat())
        records = await rows(g, 3)
    assert answer_of(found) == "6"
    assert found.headers["x-mild-path"] == "medium>large"
    assert ups.small.asked == 4
    assert [call["expert"] for call in records[-1].calls] == ["medium", "large"]


async def test_where_all_experts_failed_three_times_the_cascade_asks_them():
    async with cascading(["4", "4", "6"]) as (g, _):
        for client in g.app.clients.values():
            for _ in range(3):
                client.health.failed(ExpertError("server", "a test"), None)
            assert client.health.is_last(None)
        found = await ask(g.port, chat())
    assert found.headers["x-mild-path"] == "small,medium"


async def test_a_limited_expert_is_not_waited_for():
    up = {"small": {"script": ["429"], "retry_after": "2"}}
    async with cascading(["4", "4", "6"], up=up) as (g, _):
        async with asyncio.timeout(1.9):
            found = await ask(g.port, chat())
    assert answer_of(found) == "6"


async def test_an_accepted_stream_is_given_whole():
    async with cascading(["the 4", "4", "6"]) as (g, ups):
        found = await ask(g.port, chat(stream=True))
        usage = await ask(g.port, chat(stream=True, stream_options={"include_usage": True}))
        records = await rows(g, 2)
    assert found.headers["content-type"].startswith("text/event-stream")
    assert said(found.body) in ("the 4", "4")
    assert events(found.body)[-1] == "[DONE]"
    assert found.whole
    assert found.headers["x-mild-path"] == "small,medium"
    assert asked(ups) == [2, 2, 0]
    assert b"usage" not in found.body
    assert json.loads(events(usage.body)[-2])["usage"] == USAGE
    for record in records:
        assert record.price == pytest.approx(PAID["small"] + PAID["medium"])
        assert record.streamed


async def test_the_last_step_streams_live():
    slow = {"large": {"delay": 0.05}}
    async with cascading(["4", "5", "six and more"], up=slow) as (g, _), Client(g.port) as client:
        client.send(request_bytes(chat(stream=True)))
        head = await client.reader.readuntil(b"six")
        early = b"more" not in head
        rest = await client.reader.readuntil(b"0\r\n\r\n")
        (record,) = await rows(g)
    assert early
    assert b"x-mild-path: small,medium>large" in head
    assert b"[DONE]" in rest
    assert record.first_byte_ms < record.latency_ms - 90


async def test_streams_may_go_direct():
    async with cascading(["4", "4", "6"], cascade={"stream": "direct"}) as (g, ups):
        streamed = await ask(g.port, chat(stream=True))
        plain = await ask(g.port, chat())
    assert said(streamed.body) == "6"
    assert "x-mild-path" not in streamed.headers
    assert answer_of(plain) == "4"
    assert asked(ups) == [1, 1, 1]


@pytest.mark.parametrize("fault", ["cut", "error_middle", "cut_clean"])
async def test_a_judged_stream_that_breaks_is_a_disagreement(fault):
    own = {"small": {"script": [fault]}}
    async with cascading(["4 4 4 4", "4", "6"], up=own) as (g, _):
        found = await ask(g.port, chat(stream=True))
        (record,) = await rows(g)
        cut = g.app.metrics.value("mild_streams_cut_total", expert="small")
    assert said(found.body) == "6"
    assert events(found.body)[-1] == "[DONE]"
    assert record.outcome == "ok"
    assert record.calls[0]["outcome"] in ("cut", "server")
    assert record.calls[0]["dollars"] > 0
    assert cut == 1


async def test_direct_asks_one_expert():
    async with cascading(["4", "4", "6"]) as (g, ups):
        found = await ask(g.port, chat(model="mild-direct"))
        listed = await ask(g.port, b"", "/v1/models", "GET")
        (record,) = await rows(g)
    assert answer_of(found) == "6"
    assert asked(ups) == [0, 0, 1]
    assert "x-mild-path" not in found.headers
    assert (record.chosen, record.propensity, record.calls) == ("large", 1.0, None)
    assert [one["id"] for one in json.loads(listed.body)["data"]][:2] == ["mild", "mild-direct"]


async def test_direct_is_the_same_without_a_cascade():
    async with cascading(
        ["4", "4", "6"], router=priced_router(NAMES, (0.9, 0.1, 0.5), (0, 0, 0))
    ) as (
        g,
        _,
    ):
        found = [await ask(g.port, chat(model=model)) for model in ("mild", "mild-direct")]
    assert [one.headers["x-mild-expert"] for one in found] == ["medium", "medium"]


CALLS = [
    [("weather", '{"city": "Rome", "days": 2}'), ("time", "{}")],
    [("time", "{}"), ("weather", '{"days": 2.0, "city": "Rome"}')],
    [("weather", '{"city": "Oslo"}')],
]


def call_reply(calls):
    listed = [
        {"id": f"c{k}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for k, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": listed}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return reply(200, json.dumps({"choices": [choice], "model": "m", "usage": USAGE}))


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


@pytest.mark.parametrize(("other", "path"), [(1, "small,medium"), (2, "small,medium>large")])
async def test_tool_calls_are_compared_as_such(other, path):
    up = {
        "small": {"script": [call_reply(CALLS[0])]},
        "medium": {"script": [call_reply(CALLS[other])]},
    }
    async with cascading(["4", "4", "6"], up=up) as (g, _):
        found = await ask(g.port, chat(tools=TOOLS))
    assert found.headers["x-mild-path"] == path
    assert json.loads(found.body)["choices"][0]["message"]["tool_calls"]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_streamed_tool_calls_agree_over_apis(api):
    async with cascading(["4", "4", "6"], own={"medium": {"api": api}}) as (g, ups):
        found = await ask(g.port, chat(tools=TOOLS, stream=True))
    assert found.headers["x-mild-path"] == "small,medium"
    assert asked(ups)[:2] == [1, 1]
    assert b"Rome" in found.body


async def test_structured_output_is_compared_as_json():
    router = cascade_router(kind="free_text")
    texts = ['{"a": 1, "b": [2, 3]}', '```json\n{"b": [2, 3], "a": 1.0}\n```', "no"]
    form = {"type": "json_object"}
    async with cascading(texts, router=router) as (g, _):
        found = await ask(g.port, chat(response_format=form))
        plain = await ask(g.port, chat())
    assert found.headers["x-mild-path"] == "small,medium"
    assert plain.headers["x-mild-path"] == "small,medium>large"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "2 + 2?"}),
        ("/v1/responses", {"input": "2 + 2?"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "2 + 2?"}], "max_tokens": 20}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "2 + 2?"}]}),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_every_api_gets_its_own_shape(path, body, streamed):
    own = {"medium": {"api": "anthropic"}}
    async with cascading(["4", "4.0", "6"], own=own) as (g, ups):
        document = {"model": "mild", "stream": streamed, **body}
        found = await ask(g.port, document, path)
        direct = await ask(g.port, {**document, "model": found.headers["x-mild-expert"]}, path)
    assert found.status == 200
    assert found.headers["x-mild-path"] == "small,medium"
    assert ups.large.asked == 0

    def shape(answer):
        return json.loads(answer.body).keys() if not streamed else answer.body.count(b"\n\n")

    assert shape(found) == shape(direct)
    assert found.headers["content-type"] == direct.headers["content-type"]


async def test_experts_that_cannot_take_a_request_are_passed_over():
    own = {"small": {"unsupported": ["tools"]}, "medium": {"unsupported": ["tools"]}}
    async with cascading(["4", "4", "6"], own=own) as (g, ups):
        found = await ask(g.port, chat(tools=TOOLS))
        (record,) = await rows(g)
    assert found.headers["x-mild-path"] == "large"
    assert asked(ups) == [0, 0, 1]
    assert [call["expert"] for call in record.calls] == ["large"]


async def test_a_field_that_cannot_be_translated_passes_an_expert_over():
    async with cascading(["4", "4", "6"], own={"small": {"api": "anthropic"}}) as (g, ups):
        found = await ask(g.port, chat(logit_bias={"5": 1}))
    assert found.status == 200
    assert ups.small.asked == 0


async def test_several_answers_go_direct():
    async with cascading(["4", "4", "6"]) as (g, ups):
        found = await ask(g.port, chat(n=2))
    assert found.status == 200
    assert asked(ups) == [0, 0, 1]


def budget(dollars):
    settings = AccessSettings(budget_day=dollars)
    return {"access_settings": settings, "access": Access(Settings(access=settings))}


async def test_the_worst_case_is_reserved_and_what_was_paid_is_charged():
    held = []
    parts = budget(10.0)
    access = parts["access"]
    reserve = access.reserve

    async def noted(caller, dollars):
        held.append(dollars)
        return await reserve(caller, dollars)

    access.reserve = noted
    async with cascading(["4", "4", "6"], **parts) as (g, _):
        await ask(g.port, chat(max_tokens=10))
        (record,) = await rows(g)
        body = len(json.dumps(chat(max_tokens=10)))
        await until(lambda: access.spend()["all"]["day"]["spent"])
        spent = access.spend()["all"]["day"]
    assert held == [pytest.approx((body + 10) * sum(PRICES.values()) / 1e6)]
    assert spent["spent"] == pytest.approx(record.price) == pytest.approx(3 * 13 / 1e6)
    assert spent["held"] == 0


async def test_a_budget_that_allows_one_answer_only_is_used_for_that():
    cheap = priced_router(NAMES, (0.1, 0.5, 0.5), (0, 0, 0)).policy
    router = cascade_router()
    router.policy.direct = cheap
    body = len(json.dumps(chat(max_tokens=10)))
    async with cascading(["4", "4", "6"], router=router, **budget((body + 10) * 2 / 1e6)) as (
        g,
        ups,
    ):
        found = await ask(g.port, chat(max_tokens=10))
        (record,) = await rows(g)
    assert found.status == 200
    assert answer_of(found) == "4"
    assert asked(ups) == [1, 0, 0]
    assert found.headers["x-mild-path"] == record.expert == "small"


@pytest.mark.parametrize(
    ("tokens_paid", "expected"), [(1, [1, 0, 0]), (3, [1, 1, 0]), (103, [1, 1, 1])]
)
async def test_of_a_cascade_what_fits_into_the_budget_is_asked(tokens_paid, expected):
    # The model mild-direct asks the dearest expert; small, medium and large cost 1, 2 and 100.
    body = len(json.dumps(chat(max_tokens=10)))
    dollars = (body + 10) * tokens_paid * 1.001 / 1e6
    async with cascading(["4", "5", "6"], **budget(dollars)) as (g, ups):
        found = await ask(g.port, chat(max_tokens=10))
        await rows(g)
    assert found.status == 200
    assert asked(ups) == expected


async def test_if_the_cascade_fits_nowhere_the_cheapest_expert_is_asked():
    names = (*NAMES, "tiny")
    router = cascade_router(names, steps=((0, 1), (2,)))
    body = len(json.dumps(chat(max_tokens=10)))
    own = {"tiny": {"price_in": 0.1, "price_out": 0.1}}
    dollars = (body + 10) * 0.5 / 1e6
    async with cascading(
        ["4", "5", "6", "7"], names=names, router=router, own=own, **budget(dollars)
    ) as (g, _):
        found = await ask(g.port, chat(max_tokens=10))
        await rows(g)
    assert (found.status, answer_of(found)) == (200, "7")


async def test_experts_of_the_router_without_an_endpoint_are_left_out():
    names = ("small", "absent", "medium", "large", "missing")
    router = cascade_router(names, steps=((0, 1, 2), (3,)))
    present = ("small", "medium", "large")
    async with cascading(["4", "4", "6"], names=present, router=router) as (g, ups):
        found = await ask(g.port, chat())
        direct = await ask(g.port, chat(model="mild-direct"))
        first, second = await rows(g, 2)
    assert (answer_of(found), found.headers["x-mild-path"]) == ("4", "small,medium")
    assert direct.headers["x-mild-expert"] in present
    # Rows have all experts of the router, in its order, whatever is configured.
    assert len(first.probabilities) == len(second.probabilities) == len(names)
    assert asked(ups)[:2] == [1, 1]


async def test_a_cascade_without_any_endpoint_asks_one_expert():
    router = cascade_router(("a", "b", "c", "d"), steps=((0, 1), (2,)))
    async with cascading(["7"], names=("d",), router=router) as (g, _):
        found = await ask(g.port, chat())
    assert answer_of(found) == "7"
    assert "x-mild-path" not in found.headers


NO_ANSWERS = ["I cannot help with that.", "...", "-", "\u200b", ""]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("text", NO_ANSWERS)
@pytest.mark.parametrize("kind", ["number", "short_text", "free_text", "json"])
async def test_equal_texts_that_are_no_answers_do_not_agree(kind, text, streamed):
    router = cascade_router(kind=kind)
    async with cascading([text, text, "six"], router=router) as (g, ups):
        found = await ask(g.port, chat(stream=streamed))
    assert asked(ups) == [1, 1, 1]
    assert "six" in (said(found.body) if streamed else answer_of(found))


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"role": "assistant", "content": "4"}, "finish_reason": "length"},
        {"message": {"role": "assistant", "content": "4"}, "finish_reason": "content_filter"},
        {
            "message": {"role": "assistant", "content": None, "refusal": "4"},
            "finish_reason": "stop",
        },
    ],
    ids=["length", "content_filter", "refusal"],
)
async def test_answers_that_were_cut_short_or_refused_do_not_agree(choice):
    script = [reply(200, json.dumps({"id": "c", "choices": [{"index": 0, **choice}]}))]
    up = {name: {"script": script} for name in ("small", "medium")}
    async with cascading(["4", "4", "6"], up=up) as (g, ups):
        found = await ask(g.port, chat())
    assert (answer_of(found), asked(ups)) == ("6", [1, 1, 1])


@pytest.mark.parametrize("stop_reason", ["max_tokens", "refusal"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_messages_that_were_cut_short_or_refused_do_not_agree(stop_reason, streamed):
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    if streamed:
        text = {"type": "text_delta", "text": "4"}
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_delta", "index": 0, "delta": text},
            {"type": "message_delta", "delta": {"stop_reason": stop_reason}},
            {"type": "message_stop"},
        ]
        body = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
        answer = reply(200, body, content_type="text/event-stream")
    else:
        content = [{"type": "text", "text": "4"}]
        answer = reply(200, json.dumps({**message, "content": content, "stop_reason": stop_reason}))
    own = {name: {"api": "anthropic"} for name in ("small", "medium")}
    up = {name: {"script": [answer]} for name in ("small", "medium")}
    async with cascading(["4", "4", "6"], own=own, up=up) as (g, ups):
        await ask(g.port, chat(stream=streamed))
    assert asked(ups) == [1, 1, 1]


async def test_if_all_experts_refuse_a_refusal_is_given_and_nobody_is_asked_twice():
    refusal = "I cannot help with that."
    async with cascading([refusal] * 3) as (g, ups):
        found = await ask(g.port, chat())
    assert (found.status, answer_of(found), asked(ups)) == (200, refusal, [1, 1, 1])


async def test_too_little_for_anybody_is_refused_as_ever():
    async with cascading(["4", "4", "6"], **budget(1e-8)) as (g, ups):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert found.status == 402
    assert record.outcome == "refused"
    assert asked(ups) == [0, 0, 0]


async def test_a_deadline_gives_the_best_answer_so_far():
    up = {"large": {"script": ["hang"]}}
    async with cascading(["4", "5", "6"], up=up, cascade={"deadline_seconds": 1.0}) as (g, _):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert answer_of(found) in ("4", "5")
    assert found.headers["x-mild-path"] == "small,medium>large"
    assert record.calls[2]["outcome"] == "cancelled"
    assert record.calls[2]["dollars"] > 0
    assert record.outcome == "ok"
    assert record.latency_ms > 990


async def test_a_deadline_of_the_client_ends_a_step():
    up = {"small": {"script": ["hang"]}}
    async with cascading(["4", "5", "6"], up=up) as (g, ups):
        found = await ask(g.port, chat(), x_mild_deadline="1.0")
        wrong = await ask(g.port, chat(), x_mild_deadline="soon")
    assert answer_of(found) == "5"
    assert ups.large.asked == 0
    assert wrong.status == 400
    assert json.loads(wrong.body)["error"]["code"] == "invalid_deadline"


async def test_a_deadline_without_an_answer_is_a_time_out():
    up = {name: {"script": ["hang"]} for name in NAMES}
    async with cascading(["4", "5", "6"], up=up, cascade={"deadline_seconds": 0.2}) as (g, _):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert found.status == 504
    assert json.loads(found.body)["error"]["code"] == "total_timeout"
    assert record.outcome == "failed"
    assert record.price > 0


async def test_a_step_that_hangs_leaves_time_for_the_last():
    up = {"small": {"script": ["hang"]}}
    limits = {"total_seconds": 2.0}
    async with cascading(["4", "5", "6"], up=up, limits=limits) as (g, _):
        found = await ask(g.port, chat())
    assert answer_of(found) == "6"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_cancels_every_call(streamed):
    up = {name: {"delay": 3600.0} for name in NAMES}
    async with cascading(["4", "5", "6"], up=up) as (g, ups):
        async with Client(g.port) as client:
            client.send(request_bytes(chat(stream=streamed)))
            await until(lambda: ups.small.in_flight + ups.medium.in_flight == 2)
        (record,) = await rows(g)
        await until(lambda: ups.small.in_flight + ups.medium.in_flight == 0)
        free = [g.app.clients[name].limiter.in_flight for name in NAMES]
    assert (record.outcome, record.status, record.expert) == ("cancelled", 499, None)
    assert [call["outcome"] for call in record.calls] == ["cancelled", "cancelled"]
    assert record.price == sum(call["dollars"] for call in record.calls) > 0
    assert ups.small.cancelled + ups.medium.cancelled == 2
    assert ups.large.asked == 0
    assert free == [0, 0, 0]


async def test_after_a_failed_last_step_the_best_answer_is_given():
    up = {"large": {"script": ["500"] * 5}}
    async with cascading(["4", "5", "6"], up=up) as (g, _):
        plain = await ask(g.port, chat())
        (record,) = await rows(g)
    assert plain.status == 200
    assert answer_of(plain) in ("4", "5")
    assert record.outcome == "ok"
    assert record.calls[2]["outcome"] == "expert_server"


async def test_fallbacks_answer_if_the_whole_cascade_fails():
    names = (*NAMES, "spare")
    up = {name: {"script": ["500"] * 5} for name in NAMES}
    own = {"spare": {"role": "fallback"}}
    router = cascade_router(NAMES)
    async with cascading(["4", "5", "6", "7"], names=names, router=router, up=up, own=own) as (
        g,
        ups,
    ):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert answer_of(found) == "7"
    assert found.headers["x-mild-path"] == "small,medium>large>spare"
    assert [call["step"] for call in record.calls] == [1, 1, 2, None]
    assert ups.large.asked == 2


async def test_if_everybody_fails_the_error_is_that_of_a_plain_request():
    up = {name: {"script": ["500"] * 9} for name in NAMES}
    async with cascading(["4", "5", "6"], up=up) as (g, ups):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert found.status == 502
    assert json.loads(found.body)["error"]["code"] == "expert_server"
    assert (record.outcome, record.expert) == ("failed", None)
    assert [call["expert"] for call in record.calls] == [*NAMES, None]
    assert sum(one.asked for one in vars(ups).values()) == record.attempts == 9


async def test_samples_are_calls_of_the_same_expert():
    names = ("small", "small#2", "large")
    async with cascading(["4", "6"], names=("small", "large"), router=cascade_router(names)) as (
        g,
        ups,
    ):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
        dollars = g.app.metrics.value("mild_dollars_total", expert="small")
    assert found.headers["x-mild-path"] == "small,small#2"
    assert found.headers["x-mild-expert"] == "small"
    assert [ups.small.asked, ups.large.asked] == [2, 0]
    assert record.expert == "small"
    assert dollars == pytest.approx(record.price) == pytest.approx(2 * PAID["small"])


async def test_every_expert_of_a_cascade_gets_its_limit():
    budget = {"budget_day": 1.0}
    async with cascading(["4", "5", "6"], access_settings=budget) as (g, ups):
        await ask(g.port, chat())
        bodies = [json.loads(body) for one in vars(ups).values() for body in one.bodies]
    assert [body["max_tokens"] for body in bodies] == [4096] * 3


async def test_exploration_draws_one_expert_with_its_share():
    async with cascading(["4", "4", "6"], routing={"explore": 0.5}, seed=1) as (g, _):
        for _ in range(30):
            await ask(g.port, chat())
        records = await rows(g, 30)
    cascades = [one for one in records if one.chosen == "cascade"]
    drawn = [one for one in records if one.chosen != "cascade"]
    assert 5 < len(cascades) < 25
    assert {one.propensity for one in cascades} == {0.5}
    assert {one.propensity for one in drawn} == {0.5 / 3}
    assert {one.chosen for one in drawn} == set(NAMES)
    assert all(one.calls is None and one.expert == one.chosen for one in drawn)


async def test_metrics_count_dollars_by_the_expert_that_was_paid():
    async with cascading(["4", "4", "6"]) as (g, _):
        await ask(g.port, chat())
        await rows(g)
        value = g.app.metrics.value
        paid = {name: value("mild_dollars_total", expert=name) for name in (*NAMES, NO_EXPERT)}
        requests = [value("mild_requests_total", expert=name, outcome="ok") for name in NAMES]
    assert paid == {
        "small": pytest.approx(PAID["small"]),
        "medium": pytest.approx(PAID["medium"]),
        "large": 0,
        NO_EXPERT: 0,
    }
    assert sum(requests) == 1


async def test_the_route_says_the_first_step():
    own = {"small": {"unsupported": ["tools"]}}
    async with cascading(["4", "4", "6"], own=own) as (g, ups):
        both = json.loads((await ask(g.port, chat(), "/v1/route")).body)
        able = json.loads((await ask(g.port, chat(tools=TOOLS), "/v1/route")).body)
        direct = json.loads((await ask(g.port, chat(model="mild-direct"), "/v1/route")).body)
    assert (both["expert"], both["first_step"], both["reason"]) == (
        "small",
        ["small", "medium"],
        "router",
    )
    assert both["order"] == ["small", "medium", "large"]
    assert both["why"]["by"] == "first step"
    assert (able["expert"], able["first_step"], able["reason"]) == (
        "medium",
        ["medium"],
        "cannot_serve",
    )
    assert direct["expert"] == "large"
    assert "first_step" not in direct
    assert asked(ups) == [0, 0, 0]


async def test_sessions_are_judged_request_by_request():
    async with cascading(["4", "4", "6"]) as (g, ups):
        for _ in range(2):
            found = await ask(g.port, chat(), x_mild_session_id="s")
        records = await rows(g, 2)
    assert found.headers["x-mild-path"] == "small,medium"
    assert asked(ups) == [2, 2, 0]
    assert [one.pinned_by for one in records] == [None, None]


async def test_an_answer_that_cannot_be_compared_may_still_be_given():
    """Its tool calls have no names: a plain request would have passed it on."""
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {}}]}
    odd = reply(200, json.dumps({"choices": [{"index": 0, "message": message}], "usage": USAGE}))
    up = {
        "small": {"script": [odd]},
        "medium": {"script": ["500"] * 2},
        "large": {"script": ["500"] * 2},
    }
    async with cascading(["4", "5", "6"], up=up) as (g, _):
        found = await ask(g.port, chat(tools=TOOLS))
    assert found.status == 200
    assert found.headers["x-mild-expert"] == "small"


@pytest.mark.parametrize("streamed", [False, True])
async def test_very_long_answers_are_not_compared(streamed):
    long = "4 " * 40_000
    async with cascading([long, long, "6"]) as (g, _):
        found = await ask(g.port, chat(stream=streamed))
    assert found.headers["x-mild-path"] == "small,medium>large"


async def test_a_request_that_nobody_can_take_is_in_the_ledger(tmp_path):
    place = tmp_path / "ledger.db"
    own = {name: {"api": "anthropic"} for name in NAMES}
    writer = LedgerWriter(LedgerSettings(path=place), NAMES)
    async with cascading(["4", "4", "6"], own=own, ledger_writer=writer) as (g, _):
        refused = await ask(g.port, chat(logit_bias={"5": 1}))
        served = await ask(g.port, chat(max_tokens=9))
    assert (refused.status, served.status) == (400, 200)
    found = sorted(read_ledger(place), key=lambda one: one.time)
    assert [one.outcome for one in found] == ["refused", "ok"]
    assert found[0].calls is None
    assert len(found[1].calls) == 2


async def test_long_reasoning_does_not_keep_an_answer_from_being_compared():
    message = {"role": "assistant", "content": "4", "reasoning_content": "so " * 30_000}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    long = reply(200, json.dumps({"choices": [choice], "usage": USAGE}))
    async with cascading(["4", "4", "6"], up={"small": {"script": [long]}}) as (g, _):
        found = await ask(g.port, chat())
    assert found.headers["x-mild-path"] == "small,medium"


@pytest.mark.usefixtures("no_retry")
async def test_whoever_could_not_answer_in_a_step_is_asked_as_by_a_plain_request():
    up = {name: {"script": ["500"] * 9} for name in ("medium", "large")}
    up["small"] = {"script": ["500"]}
    async with cascading(["4", "5", "6"], up=up) as (g, _):
        found = await ask(g.port, chat())
        (record,) = await rows(g)
    assert found.status == 200
    assert answer_of(found) == "4"
    assert record.price == pytest.approx(sum(call["dollars"] or 0 for call in record.calls))


async def test_the_last_step_may_have_several_experts_and_all_of_the_time():
    up = {"small": {"script": ["hang"]}, "medium": {"delay": 0.3}, "large": {"delay": 0.3}}
    router = cascade_router(steps=((0,), (1, 2)))
    limits = {"total_seconds": 2.0}
    async with cascading(["4", "5", "6"], up=up, router=router, limits=limits) as (g, _):
        found = await ask(g.port, chat())
    assert found.headers["x-mild-path"] == "small>medium,large"
    assert answer_of(found) == "6"


async def test_when_the_time_of_a_request_ends_the_best_answer_is_given():
    up = {"large": {"script": ["hang"]}}
    limits = {"total_seconds": 1.5}
    async with cascading(["4", "5", "6"], up=up, limits=limits) as (g, _):
        found = await ask(g.port, chat())
    assert found.status == 200
    assert answer_of(found) in ("4", "5")


async def test_what_a_failed_request_cost_is_counted_for_nobody(tmp_path):
    place = tmp_path / "ledger.db"
    up = {name: {"script": ["cut"] * 9} for name in NAMES}
    writer = LedgerWriter(LedgerSettings(path=place), NAMES)
    async with cascading(["4", "5", "6"], up=up, ledger_writer=writer) as (g, _):
        found = await ask(g.port, chat())
    assert found.status == 502
    (record,), summary = read_ledger(place), summarize(place)
    assert set(summary["experts"]) <= set(NAMES)
    assert record.price == pytest.approx(sum(call["dollars"] or 0 for call in record.calls))


async def test_a_last_step_that_breaks_off_is_no_good_call():
    up = {"large": {"script": ["cut"]}}
    async with cascading(["4", "5", "6 6 6 6"], up=up) as (g, _):
        found = await ask(g.port, chat(stream=True))
        (record,) = await rows(g)
    assert events(found.body)[-1] != "[DONE]"
    assert (record.outcome, record.expert) == ("cut", "large")
    assert [call["outcome"] for call in record.calls] == ["ok", "ok", "cut"]
    assert record.price == sum(call["dollars"] for call in record.calls)


async def test_the_route_knows_what_is_not_served_by_a_cascade():
    async with cascading(["4", "4", "6"]) as (g, _):
        several = json.loads((await ask(g.port, chat(n=2), "/v1/route")).body)
    assert (several["expert"], "first_step" in several) == ("large", False)


def test_calls_of_one_step_that_follow_each_other_are_no_overhead():
    """Another expert of the step may be asked after the first has failed."""
    waits = [[(0.0, 2.0)], [(2.0, 3.0)], [(2.5, 4.0), (6.0, 7.0)]]
    calls = object.__new__(Calls)
    calls.all = [SimpleNamespace(step=1, waits=waits_of_call) for waits_of_call in waits]
    assert calls.waited == 5.0

"""A request that goes well: what travels, what comes back, what is written down."""

import asyncio
import json

import numpy as np
import pytest

from fake_upstream import USAGE, FakeUpstream
from gateway_cases import (
    Client,
    ask,
    chat,
    endpoint_of,
    events,
    expert,
    gateway,
    idle,
    priced_router,
    reply,
    request_bytes,
    rows,
    said,
    scored_router,
    solo,
)
from mild_gateway.config import AccessSettings
from mild_gateway.experts.secrets import Secret
from mild_gateway.server.time_limit import until_disconnect
from waiting import PATIENCE


async def test_a_plain_answer_comes_through_with_the_experts_name():
    async with solo(name="small", one={"price_in": 1.0}) as (up, g):
        found = await ask(g.port, chat())
        (row,) = await rows(g)
    assert found.status == 200
    document = json.loads(found.body)
    assert document["model"] == "small"
    assert document["choices"][0]["message"]["content"] == "one two three"
    assert found.headers["x-mild-expert"] == "small"
    assert found.headers["x-mild-request-id"] == row.request_id
    assert float(found.headers["x-mild-expected-cost"]) == pytest.approx(0.11)
    assert float(found.headers["x-mild-overhead-ms"]) == pytest.approx(row.overhead_ms, abs=0.001)
    assert 0 < row.overhead_ms <= row.first_byte_ms <= row.latency_ms
    assert (row.expert, row.chosen, row.outcome, row.status) == ("small", "small", "ok", 200)
    assert (row.tokens_in, row.tokens_out, row.price) == (10, 3, pytest.approx(1e-5))
    assert (row.asked, row.key, row.attempts, row.propensity) == ("mild", "anonymous", 1, 1.0)
    assert row.text is None
    assert json.loads(up.bodies[0]) == {**chat(), "model": "small-model"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_every_byte_of_a_body_travels_but_the_model(path, streamed):
    body = (
        '{ "messages":[{"role":"user","content":"\\u00e9 é 😀 \\"model\\""}] ,"prompt":"hé",\n'
        '"model" : "mild","vendor_extension":{"model":"keep","n":1.10,"big":123456789012345678901},'
        '"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"seed":1e3'
        + (',"stream":true,"stream_options":{"include_usage":true,"x":1}' if streamed else "")
        + "}"
    ).encode()
    async with solo(name="small") as (up, g):
        found = await ask(g.port, body, path)
    assert found.status == 200
    assert up.bodies == [body.replace(b'"mild"', b'"small-model"')]
    assert up.heads[0][0] == f"POST {path} HTTP/1.1"


async def test_a_stream_comes_through_event_by_event():
    async with solo(name="small", one={"price_out": 1.0}) as (up, g):
        found = await ask(g.port, chat(stream=True))
        (row,) = await rows(g)
    assert found.status == 200
    assert found.headers["content-type"].startswith("text/event-stream")
    assert found.whole
    assert said(found.body) == "one two three"
    assert events(found.body)[-1] == "[DONE]"
    assert {json.loads(data)["model"] for data in events(found.body)[:-1]} == {"small"}
    # Asked for by the gateway, so it is settled by, and not shown to the client.
    assert b'"usage"' not in found.body
    assert json.loads(up.bodies[0])["stream_options"] == {"include_usage": True}
    assert (row.tokens_in, row.tokens_out, row.streamed, row.outcome) == (10, 3, True, "ok")
    assert row.price == pytest.approx(3e-6)


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": True, "x": 2}])
async def test_a_client_that_asks_for_the_usage_of_a_stream_gets_it(options):
    async with solo(name="small") as (up, g):
        found = await ask(g.port, chat(stream=True, stream_options=options))
    assert json.loads(events(found.body)[-2])["usage"] == USAGE
    assert json.loads(up.bodies[0])["stream_options"] == options


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False, "x": 1}])
async def test_usage_is_asked_for_beside_what_the_client_says(options):
    async with solo(name="small") as (up, g):
        found = await ask(g.port, chat(stream=True, stream_options=options))
    sent = json.loads(up.bodies[0])["stream_options"]
    assert sent == {**(options or {}), "include_usage": True}
    assert b"usage" not in found.body


@pytest.mark.parametrize("step", ["comment", "crlf", "split", "together", "no_done"])
async def test_streams_of_every_manner_come_through(step):
    async with solo(FakeUpstream(script=[step]), name="small") as (_, g):
        found = await ask(g.port, chat(stream=True))
    assert found.whole
    assert "one two three" in said(found.body.replace(b"\r\n", b"\n"))
    assert b'"small"' in found.body


@pytest.mark.parametrize("streamed", [False, True])
async def test_without_reported_usage_an_estimate_is_settled(streamed):
    async with solo(FakeUpstream(usage=False), name="small", one={"price_out": 1.0}) as (_, g):
        await ask(g.port, chat(stream=streamed))
        row = (await rows(g))[0]
    # "one two three" by its bytes, or by its events with the last one.
    assert row.tokens_out == 5
    assert row.price == pytest.approx(5e-6)


async def test_model_names_choose():
    router = priced_router(("small", "large"), (0.3, 0.1), (0.001, 0.1))
    async with (
        FakeUpstream() as up,
        gateway([expert("small", up), expert("large", up)], router) as g,
    ):
        found = {}
        for model in ("mild", "router-mild-0", "router-mild-5", "small", "large"):
            answer = await ask(g.port, chat(model=model))
            found[model] = answer.headers["x-mild-expert"]
        records = g.ledger.records
    assert found == {
        "mild": "large",
        "router-mild-0": "large",
        "router-mild-5": "small",
        "small": "small",
        "large": "large",
    }
    assert [row.chosen for row in records] == ["large", "large", "small", None, None]
    assert records[2].expected_cost == pytest.approx(0.305)


async def test_a_one_head_router_refuses_a_weight():
    async with FakeUpstream() as up:
        experts = [expert("small", up), expert("large", up)]
        async with gateway(experts, scored_router()) as g:
            refused = await ask(g.port, chat(model="router-mild-0.5"))
            unknown = await ask(g.port, chat(model="gpt"))
            served = await ask(g.port, chat())
            records = list(g.ledger.records)
    assert refused.status == 400
    assert "one head" in json.loads(refused.body)["error"]["message"]
    assert unknown.status == 404
    assert (
        "Valid names: mild, mild-direct, small, large."
        in json.loads(unknown.body)["error"]["message"]
    )
    assert served.headers["x-mild-expert"] == "large"
    assert "x-mild-expected-cost" not in served.headers
    assert len(records) == 1


async def test_a_session_stays_with_its_expert():
    async with FakeUpstream() as up:
        experts = [expert("small", up), expert("large", up)]
        async with gateway(experts, routing={"explore": 1.0}, seed=5) as g:
            for name in range(8):
                for _ in range(3):
                    await ask(g.port, chat(user=f"user {name}"))
                for _ in range(3):
                    await ask(g.port, chat(), x_mild_session_id=f"s{name}")
            records = g.ledger.records
    groups = {}
    for row in records:
        groups.setdefault(row.session, []).append(row)
    assert len(groups) == 16
    for first, *others in groups.values():
        assert first.pinned_by is None
        assert {row.expert for row in others} == {first.expert}
        assert {row.pinned_by for row in others} == {first.request_id}
        assert {row.propensity for row in others} == {first.propensity}
    assert len({group[0].expert for group in groups.values()}) == 2


async def test_the_text_is_kept_only_if_configured():
    from mild_gateway.config import LedgerSettings

    async with solo(name="small", ledger=LedgerSettings(keep_text=True)) as (_, g):
        await ask(g.port, chat("keep me"))
        (row,) = await rows(g)
    assert row.text == "keep me"
    assert row.features is None


@pytest.mark.parametrize("text", ["keep me", "another one"])
async def test_features_of_the_text_are_kept_only_if_configured(text):
    from mild.artifact import features_tag
    from mild_gateway.config import LedgerSettings
    from mild_gateway.selection.stored_features import unpack_features

    router = priced_router(("small",), (0.1,), (0.01,))
    async with solo(name="small", ledger=LedgerSettings(keep_features=True)) as (_, g):
        await ask(g.port, chat(text))
        await ask(g.port, chat(text, model="small"))
        drawn, named = await rows(g)
    found = unpack_features(drawn.features, features_tag(router.text))
    np.testing.assert_allclose(found, router.features([text])[0], atol=1e-3)
    # No text, and no features of what the router did not decide.
    assert (drawn.text, named.text, named.features) == (None, None, None)


async def test_the_clients_key_never_travels_and_the_experts_does():
    from mild_gateway.experts.secrets import Secret

    secret = Secret("sk-expert", "a test")
    open_to_proxies = AccessSettings(require_key=False)
    async with (
        solo(name="small", one={"secret": secret}, access_settings=open_to_proxies) as (up, g),
    ):
        await ask(
            g.port,
            chat(),
            authorization="Bearer sk-client",
            cookie="a=b",
            traceparent="00-1-2-3",
            x_forwarded_for="1.2.3.4",
        )
        sent = up.heads[0][1]
    assert sent["authorization"] == "Bearer sk-expert"
    assert sent["traceparent"] == "00-1-2-3"
    assert "sk-client" not in str(sent)
    assert "cookie" not in sent
    assert "x-forwarded-for" not in sent


async def test_names_outside_ascii_make_no_header_of_their_own():
    name = "größe\r\nx-evil: 1"
    async with solo(name=name) as (_, g):
        found = await ask(g.port, chat())
    assert found.status == 200
    assert "x-evil" not in found.headers
    assert found.headers["x-mild-expert"] == "gr%C3%B6%C3%9Fe%0D%0Ax-evil: 1"
    assert json.loads(found.body)["model"] == name


ONCE = {"max_attempts": 1}
SECRET = "sk-0123456789abcdef"


def answered(step, **more):
    """The answer to a client whose expert answers so; its key is SECRET."""

    async def run():
        secret = Secret(SECRET, "a test")
        async with (
            solo(FakeUpstream(script=[step]), one={"secret": secret}, routing=ONCE) as (_, g),
        ):
            return await ask(g.port, chat(**more)), await rows(g)

    return asyncio.run(run())


ESCAPED = "".join(f"\\u{ord(mark):04x}" for mark in SECRET)


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("shown", [SECRET, ESCAPED])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_experts_error_is_relayed_without_the_key(status, shown, streamed):
    content = f'{{"error": {{"message": "too long; key {shown}"}}}}'.encode()
    found, (row,) = answered(reply(status, content), stream=streamed)
    assert found.status == status
    assert json.loads(found.body) == {"error": {"message": "too long; key [secret]"}}
    assert found.headers["content-type"] == "application/json"
    assert row.outcome == "failed"


@pytest.mark.parametrize("content", [b"<html>your key is " + SECRET.encode(), b"", b"[1]", b"\xff"])
def test_an_error_that_is_no_json_object_is_not_relayed(content):
    found, _ = answered(reply(400, content, content_type="text/html"))
    assert found.status == 400
    assert found.headers["content-type"] == "application/json"
    assert json.loads(found.body)["error"]["code"] == "client_error"
    assert SECRET.encode() not in found.body


def test_an_answer_is_passed_on_as_it_came():
    content = f'{{"choices": [{{"message": {{"content": "{ESCAPED}"}}}}], "model": "x"}}'.encode()
    found, _ = answered(reply(200, content))
    assert found.status == 200
    assert ESCAPED.encode() in found.body


def test_a_stream_with_a_byte_order_mark_is_read():
    event = (
        b'\xef\xbb\xbfdata: {"model": "x", "choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    )
    answer = reply(200, event + b"data: [DONE]\n\n", content_type="text/event-stream")
    found, (row,) = answered(answer, stream=True)
    assert found.whole
    assert json.loads(events(found.body)[0])["model"] == "one"
    assert row.outcome == "ok"


@pytest.mark.parametrize("first", [b"", b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'])
def test_comments_do_not_keep_a_call_open_for_ever(first):
    """Before the first event the call fails; behind it, the stream is cut."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + first)
        while True:
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def run():
        async with (
            endpoint_of(serve) as url,
            gateway([expert("one", url, total_seconds=0.3)]) as g,
        ):
            found = await asyncio.wait_for(ask(g.port, chat(stream=True)), PATIENCE)
            return found, await rows(g)

    found, (row,) = asyncio.run(run())
    if first:
        assert (found.status, found.whole, row.outcome) == (200, False, "cut")
    else:
        assert (found.status, row.outcome) == (504, "failed")


@pytest.mark.parametrize("first", [b"", b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'])
def test_a_request_with_all_its_attempts_ends_in_time(first):
    """Each attempt may take longer; the reservation of the request is charged soon behind that time."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + first)
        while await reader.read(65_536):
            pass

    async def run():
        async with endpoint_of(serve) as url:
            slow = expert("one", url, total_seconds=2 * PATIENCE)
            async with gateway([slow], limits={"total_seconds": 0.3}) as g:
                found = await asyncio.wait_for(ask(g.port, chat(stream=True)), PATIENCE)
                records = await rows(g)
                await idle(g)
                return found, records

    found, (row,) = asyncio.run(run())
    if first:
        assert (found.status, found.whole, row.outcome, row.status) == (200, False, "cut", 200)
        assert b"event: error" in found.body
    else:
        assert (found.status, row.outcome, row.error) == (504, "failed", "total_timeout")
        assert json.loads(found.body)["error"]["code"] == "total_timeout"


async def test_the_overhead_does_not_count_the_client_s_upload():
    async with solo() as (_, g), Client(g.port) as client:
        data = request_bytes(chat())
        client.send(data[:-5])
        await asyncio.sleep(1.0)
        client.send(data[-5:])
        found = await client.answer()
        (row,) = await rows(g)
    assert float(found.headers["x-mild-overhead-ms"]) < 900
    assert row.latency_ms < 900


async def test_the_overhead_is_never_negative():
    async with solo() as (_, g), Client(g.port) as client:
        found = [await client.ask(chat(stream=step % 2 == 0)) for step in range(60)]
        overheads = [float(answer.headers["x-mild-overhead-ms"]) for answer in found]
    assert min(overheads) > 0


async def test_a_client_that_leaves_cancels_its_request_once(monkeypatch):
    monkeypatch.setattr("mild_gateway.server.time_limit.READ_ON_SECONDS", 0.01)
    has_cleaned = False
    left = []

    async def serve():
        nonlocal has_cleaned
        async with until_disconnect(receive, lambda: left.append(has_cleaned)):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                has_cleaned = True

    async def receive():
        return {"type": "http.disconnect"}

    task = asyncio.create_task(serve())
    await task
    assert (has_cleaned, task.cancelling(), left) == (True, 0, [False])

"""Responses, Messages and embeddings keep what is promised for chats, with experts of both APIs."""

import asyncio
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, expert, gateway, priced_router, reply, rows, solo
from mild_gateway.access import Access, AccessStore
from mild_gateway.access.managing import add_key, open_store
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.experts.secrets import Secret

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
USER = [{"role": "user", "content": "What is 2 + 2?"}]
REQUESTS = {
    CHAT: {"model": "mild", "messages": USER},
    COMPLETIONS: {"model": "mild", "prompt": "What is 2 + 2?"},
    RESPONSES: {"model": "mild", "input": "What is 2 + 2?"},
    MESSAGES: {"model": "mild", "messages": USER, "max_tokens": 20},
    EMBEDDINGS: {"model": "mild", "input": "What is 2 + 2?"},
}
APIS = ("openai", "anthropic")
# Events without which no client takes a stream for a whole one.
ENDS = {
    CHAT: b"[DONE]",
    COMPLETIONS: b"[DONE]",
    RESPONSES: b"response.completed",
    MESSAGES: b"message_stop",
}
pytestmark = pytest.mark.usefixtures("no_retry")
QUICK = {"price_in": 1.0, "price_out": 100.0}


def served(path, *requests, api="openai", script=(), experts=None, **more):
    """The answers to requests, the rows of the ledger, and the endpoint behind the expert ``one``."""

    async def run():
        async with FakeUpstream(script=script) as up:
            given = experts(up) if experts else [expert("one", up, api=api, **QUICK)]
            async with gateway(given, **more) as g:
                found = [await ask(g.port, request, path) for request in requests]
                # Those that were not read have no row.
                return found, g.ledger.records, up, g

    return asyncio.run(run())


def error_of(answer):
    return json.loads(answer.body)["error"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ENDS)
def test_every_pair_is_served_settled_and_written_down(path, streamed, api):
    request = REQUESTS[path] | {"stream": streamed}
    (found,), (row,), up, _ = served(path, request, api=api)
    assert (found.status, found.whole) == (200, True)
    assert b"one" in found.body
    assert b"three" in found.body
    assert b'"model": "one"' in found.body
    assert (ENDS[path] in found.body) == streamed
    assert found.headers["x-mild-expert"] == "one"
    assert found.headers["x-mild-request-id"] == row.request_id
    assert "x-mild-overhead-ms" in found.headers
    assert (row.expert, row.outcome, row.streamed) == ("one", "ok", streamed)
    assert (row.tokens_in, row.tokens_out) == (10, 3)
    assert row.price == pytest.approx(10e-6 + 300e-6)
    sent = json.loads(up.bodies[0])
    assert sent["model"] == "one-model"
    native = {"openai": "/v1" + path.removeprefix("/v1"), "anthropic": MESSAGES}[api]
    native = CHAT if api == "openai" and path in (RESPONSES, MESSAGES) else native
    assert up.heads[0][0] == f"POST {native} HTTP/1.1"


@pytest.mark.parametrize("streamed", [False, True])
def test_every_byte_of_a_message_travels_but_the_model(streamed):
    body = (
        '{ "messages":[{"role":"user","content":"\\u00e9 é \\"model\\""}] ,"max_tokens":1e2,\n'
        '"model" : "mild","vendor_extension":{"model":"keep","n":1.10},"thinking":{"type":"enabled"}'
        + (',"stream":true' if streamed else "")
        + "}"
    ).encode()
    (found,), _, up, _ = served(MESSAGES, body, api="anthropic")
    assert found.status == 200
    assert up.bodies == [body.replace(b'"mild"', b'"one-model"')]


@pytest.mark.parametrize("api", APIS)
async def test_a_cut_stream_never_ends_as_a_whole_one(api):
    faults = ("cut", "cut_clean", "cut_event", "error_middle")
    async with (
        solo(
            FakeUpstream(script=[fault for _ in ENDS for fault in faults]),
            one={"api": api},
        ) as (_, g),
    ):
        found = [
            (path, await ask(g.port, REQUESTS[path] | {"stream": True}, path))
            for path in ENDS
            for _ in faults
        ]
        answers, records = found, await rows(g, len(found))
    assert {row.outcome for row in records} == {"cut"}
    for path, found in answers:
        assert (found.status, found.whole) == (200, False)
        assert ENDS[path] not in found.body
        document = json.loads(found.body.split(b"event: error\ndata: ")[1])
        assert document["error"]["code"] == "stream_broken"
        assert document.get("type") == (None if path in (CHAT, COMPLETIONS) else "error")
        if path == RESPONSES:
            assert document["sequence_number"] == found.body.count(b'"sequence_number"') - 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ENDS)
def test_another_expert_of_another_api_follows_before_the_first_byte(path, streamed):
    content = b'{"hello": "world"}'
    other = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
    script = ["500", "ok", "garbage", "ok", other, "ok"]
    first, second = APIS if path == MESSAGES else reversed(APIS)

    def experts(up):
        return [expert("first", up, api=first), expert("second", up, api=second)]

    requests = [REQUESTS[path] | {"stream": streamed}] * 3
    answers, records, _, _ = served(path, *requests, script=script, experts=experts)
    assert len(records) == 3
    for found, row in zip(answers, records, strict=True):
        assert found.status == 200
        assert (row.chosen, row.expert, row.attempts) == ("first", "second", 2)
        assert b'"model": "second"' in found.body


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_must_have_its_field(path):
    for field in REQUESTS[path].keys() - {"model"}:
        request = {key: value for key, value in REQUESTS[path].items() if key != field}
        found, _, up, g = served(path, request, request | {field: None})
        assert [answer.status for answer in found] == [400, 400]
        if path == MESSAGES:
            assert json.loads(found[0].body)["type"] == "error"
        else:
            assert error_of(found[0])["param"] == field
        assert error_of(found[0])["code"] == "missing_required_parameter"
        assert (up.asked, g.ledger.records) == (0, [])


def test_a_decision_takes_every_shape():
    (found, *others), _, up, _ = served("/v1/route", *REQUESTS.values())
    for other in others:
        assert json.loads(other.body) == json.loads(found.body)
    assert json.loads(found.body)["expert"] == "one"
    assert up.asked == 0


def test_a_field_that_an_expert_cannot_be_told_leaves_the_others():
    def experts(up):
        return [expert("first", up, api="anthropic"), expert("second", up)]

    several = REQUESTS[CHAT] | {"n": 2}
    requests = [several, several | {"model": "first"}]
    (found, named), (row, refused), up, _ = served(CHAT, *requests, experts=experts)
    assert (found.status, row.chosen, row.expert, row.attempts) == (200, "first", "second", 1)
    assert named.status == 400
    assert (error_of(named)["code"], error_of(named)["param"]) == ("unsupported_field", "n")
    assert (refused.outcome, refused.attempts) == ("refused", 0)
    assert up.asked == 1


@pytest.mark.parametrize(
    ("path", "more", "code"),
    [
        (RESPONSES, {"previous_response_id": "resp_1"}, "unsupported_field"),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_content"),
        (RESPONSES, {"vendor": 1}, "unknown_field"),
        (MESSAGES, {"top_k": 5}, "unsupported_field"),
        (MESSAGES, {"messages": 7}, "invalid_type"),
        # The answer repeats it, or the expert is told: neither can be written as JSON.
        (RESPONSES, {"metadata": {"a": float("inf")}}, "invalid_body"),
        (RESPONSES, {"metadata": {"a": float("nan")}, "stream": True}, "invalid_body"),
        (MESSAGES, {"temperature": float("inf")}, "invalid_body"),
    ],
)
def test_what_cannot_be_translated_is_refused(path, more, code):
    (found,), _, up, _ = served(path, REQUESTS[path] | more)
    assert found.status == 400
    assert error_of(found)["code"] == code
    assert up.asked == 0


def test_errors_of_messages_have_anthropics_shape():
    found, _, _, _ = served(
        MESSAGES,
        REQUESTS[MESSAGES] | {"model": "none"},
        b"{",
        b"x" * 2000,
        limits={"max_body_bytes": 1024},
    )
    kinds = ["not_found_error", "invalid_request_error", "request_too_large"]
    assert [error_of(answer)["type"] for answer in found] == kinds
    assert [answer.status for answer in found] == [404, 400, 413]
    assert {json.loads(answer.body)["type"] for answer in found} == {"error"}


COUNT = "/v1/messages/count_tokens"


def test_tokens_of_a_message_are_estimated_and_nobody_is_asked():
    long = {"model": "one", "messages": [{"role": "user", "content": "x" * 3000}]}
    short = {"model": "mild", "system": "Be brief.", "messages": USER}
    found, rows, up, _ = served(COUNT, long, short)
    assert [answer.status for answer in found] == [200, 200]
    tokens = [json.loads(answer.body) for answer in found]
    assert [list(one) for one in tokens] == [["input_tokens"]] * 2
    assert 1000 < tokens[0]["input_tokens"] < 1050
    assert 5 < tokens[1]["input_tokens"] < 50
    assert {answer.headers["x-mild-estimate"] for answer in found} == {"input_tokens"}
    assert (up.asked, rows) == (0, [])


def test_errors_below_messages_have_anthropics_shape():
    wrong = [{"model": "none", "messages": USER}, {"model": "mild"}, {"messages": USER}, b"{"]
    found = served(COUNT, *wrong)[0] + served(f"{MESSAGES}/batches", {})[0]
    assert [answer.status for answer in found] == [404, 400, 400, 400, 404]
    assert {json.loads(answer.body)["type"] for answer in found} == {"error"}
    assert [error_of(answer)["code"] for answer in found] == [
        "model_not_found",
        "missing_required_parameter",
        "model_missing",
        "invalid_body",
        "not_found",
    ]


async def test_counting_tokens_needs_a_key_and_counts_towards_its_rate(tmp_path):
    path = str(tmp_path / "mild.sqlite")
    with open_store(None, path) as store:
        key = add_key(store, "alice", requests_per_minute=2)
    settings = Settings(store=path, access=AccessSettings(require_key=True))
    async with solo(access=Access(settings, AccessStore(path))) as (_, g):
        keys = [{"x_api_key": key}] * 3 + [{}, {"x_api_key": "no"}]
        found = [await ask(g.port, REQUESTS[MESSAGES], COUNT, **headers) for headers in keys]
        get = await ask(g.port, None, COUNT, "GET", x_api_key=key)
    assert [answer.status for answer in found] == [200, 200, 429, 401, 401]
    assert (error_of(found[2])["type"], get.status) == ("rate_limit_error", 405)
    assert {json.loads(answer.body)["type"] for answer in (*found[2:], get)} == {"error"}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_an_experts_error_about_the_request_is_told_in_the_clients_shape(path, api):
    inner = {"type": "invalid_request_error", "message": "too long; key sk-123456"}
    content = json.dumps(
        {"type": "error", "error": inner} if api == "anthropic" else {"error": inner}
    )

    def experts(up):
        return [expert("one", up, api=api, secret=Secret("sk-123456", "a test"))]

    (found,), _, up, _ = served(path, REQUESTS[path], script=[reply(400, content)], experts=experts)
    assert found.status == 400
    assert error_of(found)["message"] == "too long; key [secret]"
    assert json.loads(found.body).get("type") == ("error" if path == MESSAGES else None)
    key = up.heads[0][1].get("x-api-key" if api == "anthropic" else "authorization")
    assert key == ("sk-123456" if api == "anthropic" else "Bearer sk-123456")
    assert ("anthropic-version" in up.heads[0][1]) == (api == "anthropic")


async def test_a_key_is_taken_from_either_header(tmp_path):
    with open_store(None, str(tmp_path / "mild.sqlite")) as store:
        key = add_key(store, "alice")
    access = AccessSettings(require_key=True)
    async with solo(access_settings=access, store=str(tmp_path / "mild.sqlite")) as (up, g):
        headers = [
            {"x_api_key": key},
            {"authorization": f"Bearer {key}"},
            {"x_api_key": "no"},
            {},
        ]
        found = [await ask(g.port, REQUESTS[MESSAGES], MESSAGES, **one) for one in headers]
        models = await ask(g.port, None, "/v1/models", "GET", x_api_key=key)
        records = await rows(g, 2)
    assert [answer.status for answer in found] == [200, 200, 401, 401]
    assert error_of(found[-1])["type"] == "authentication_error"
    assert models.status == 200
    assert {row.key for row in records} == {"alice"}
    assert key not in str(up.heads)


@pytest.mark.parametrize(
    ("path", "field"),
    [(CHAT, "max_tokens"), (RESPONSES, "max_output_tokens"), (MESSAGES, "max_tokens")],
)
@pytest.mark.parametrize("api", APIS)
def test_the_longest_answer_is_reserved(path, field, api):
    """At 100 dollars per million, 20 tokens fit into a cent and 2000 do not."""
    budget = AccessSettings(budget_day=0.01)
    requests = [REQUESTS[path] | {field: count} for count in (20, 2000)]
    (fits, not_), (_, row), _, g = served(path, *requests, api=api, access_settings=budget)
    assert (fits.status, not_.status) == (200, 402)
    assert row.outcome == "refused"
    assert error_of(not_)["type"] == ("billing_error" if path == MESSAGES else "insufficient_quota")
    assert g.app.access.spend()["all"]["day"]["spent"] == pytest.approx(310e-6)


def test_the_limit_of_tokens_has_the_name_that_an_expert_knows():
    def experts(up):
        return [expert("one", up, max_tokens_field="max_completion_tokens")]

    _, _, up, _ = served(MESSAGES, REQUESTS[MESSAGES], experts=experts)
    sent = json.loads(up.bodies[0])
    assert sent["max_completion_tokens"] == 20
    assert "max_tokens" not in sent


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
def test_usage_is_not_asked_for_where_that_is_refused(path):
    def experts(up):
        return [expert("one", up, stream_usage=False, **QUICK)]

    (found,), (row,), up, _ = served(path, REQUESTS[path] | {"stream": True}, experts=experts)
    assert found.whole
    assert "stream_options" not in json.loads(up.bodies[0])
    assert row.tokens_out == 5  # by the bytes of the text
    assert row.price > 0


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (RESPONSES, {"user": "alice"}),
        (MESSAGES, {"metadata": {"user_id": "alice"}}),
        (CHAT, {"user": "alice", "metadata": {"user_id": "somebody"}}),
    ],
)
async def test_a_session_stays_with_its_expert(path, more):
    router = priced_router(("one", "two"))
    async with FakeUpstream() as up:
        experts = [expert("one", up), expert("two", up, api="anthropic")]
        async with gateway(experts, router, routing={"explore": 1.0}, seed=3) as g:
            for _ in range(6):
                assert (await ask(g.port, REQUESTS[path] | more, path)).status == 200
            first, *others = g.ledger.records
    assert {row.expert for row in others} == {first.expert}
    assert {row.pinned_by for row in others} == {first.request_id}


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
def test_images_count_at_a_flat_rate(path):
    """By its length alone the image would cost 0.03 dollars."""
    data = "A" * 30_000
    source = {"type": "base64", "media_type": "image/png", "data": data}
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    turns = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    request = REQUESTS[MESSAGES] | {"messages": turns}
    if path == RESPONSES:
        turns = [{"role": "user", "content": [image]}]
        request = REQUESTS[RESPONSES] | {"input": turns, "max_output_tokens": 20}
    (found,), _, _, _ = served(path, request, access_settings=AccessSettings(budget_day=0.02))
    assert found.status == 200


def test_embeddings_go_to_experts_that_declare_them():
    def experts(up):
        return [expert("one", up, price_in=1.0), expert("two", up, embeddings=True, price_in=1.0)]

    requests = [REQUESTS[EMBEDDINGS], REQUESTS[EMBEDDINGS] | {"model": "two"}]
    (routed, named), (row, _), up, _ = served(EMBEDDINGS, *requests, experts=experts)
    assert routed.headers["x-mild-expert"] == named.headers["x-mild-expert"] == "two"
    assert json.loads(routed.body)["model"] == "two"
    assert json.loads(routed.body)["data"][0]["embedding"] == [0.25, -0.5]
    assert (row.tokens_in, row.tokens_out, row.price) == (5, 0, pytest.approx(5e-6))
    assert up.heads[0][0] == f"POST {EMBEDDINGS} HTTP/1.1"
    other = REQUESTS[EMBEDDINGS] | {"model": "one"}
    (refused,), _, _, _ = served(EMBEDDINGS, other, experts=experts)
    assert (refused.status, error_of(refused)["code"]) == (400, "embeddings_unsupported")


@pytest.mark.parametrize("declared", [False, True])
def test_embeddings_of_different_experts_are_not_mixed(declared):
    def experts(up):
        return [expert(name, up, embeddings=declared) for name in ("one", "two")]

    (found,), _, up, _ = served(EMBEDDINGS, REQUESTS[EMBEDDINGS], experts=experts)
    assert (found.status, error_of(found)["code"]) == (400, "embeddings_unsupported")
    assert ("one, two" in error_of(found)["message"]) == declared
    assert up.asked == 0


def test_a_deep_body_is_refused():
    for depth in (500, 900, 990):
        deep = b"[" * depth + b"]" * depth
        body = b'{"model": "mild", "max_tokens": 5, "messages": [{"role": "assistant", "content": '
        body += b'[{"type": "tool_use", "id": "a", "name": "f", "input": {"a": %b}}]}]}' % deep
        (found,), _, _, _ = served(MESSAGES, body, script=["ok"])
        assert found.status in (200, 400)

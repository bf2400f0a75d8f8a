"""Experts that differ in ``system`` and ``extra``, not in their model."""

import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, expert, gateway, priced_router, rows
from mild_gateway.config import read_settings
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.translation.fields import text_of
from mild_gateway.server.completion_request import CompletionRequest

CHAT, COMPLETIONS, EMBEDDINGS = "/chat/completions", "/completions", "/embeddings"
RESPONSES, MESSAGES = "/responses", "/messages"
OWN = {"system": "Be brief.", "extra": {"temperature": 0.2, "top_k": 5}}
RHYME = {"type": "text", "text": "Rhyme."}


def sent(endpoint, document, **own):
    """What an expert is sent for a request, which the gateway does not keep parsed."""
    one = Expert("high", "http://127.0.0.1:9/v1", "m", **own)
    request = CompletionRequest([], endpoint, json.dumps(document).encode(), "last")
    request.forget(keep_text=False)
    return json.loads(request.body_for(one))


LIMITED = {"price_out": 1.0, "max_tokens": 50}


def limit_of(endpoint, document, **one):
    """Fields that limit what is sent under a budget."""
    expert = Expert("one", one.pop("url", "http://127.0.0.1:9/v1"), "m", **{**LIMITED, **one})
    request = CompletionRequest([], endpoint, json.dumps(document).encode(), "last")
    request.has_budget = True
    body = json.loads(request.body_for(expert))
    return {name: body[name] for name in sorted(body) if "max" in name}


@pytest.mark.parametrize(
    ("document", "one", "sent"),
    [
        (chat("Hi"), {}, {"max_tokens": 50}),
        (chat("Hi", max_tokens=9), {}, {"max_tokens": 9}),
        (chat("Hi", max_tokens=9, max_completion_tokens=7), {}, {"max_tokens": 9}),
        (chat("Hi", max_tokens=-1), {}, {"max_tokens": 50}),
        # The field that the expert takes.
        (chat("Hi"), {"max_tokens_field": "max_new_tokens"}, {"max_new_tokens": 50}),
        (
            chat("Hi", max_tokens=9),
            {"url": "https://api.openai.com/v1"},
            {"max_completion_tokens": 9},
        ),
        (
            chat("Hi"),
            {"url": "https://a.openai.azure.com/openai/v1"},
            {"max_completion_tokens": 50},
        ),
        (chat("Hi"), {"extra": {"max_completion_tokens": 8}}, {"max_completion_tokens": 8}),
        # No more than the expert can.
        (chat("Hi", max_tokens=9000), {"max_output": 500}, {"max_tokens": 500}),
        (chat("Hi"), {"max_output": 30}, {"max_tokens": 30}),
        (chat("x" * 600), {"context": 240}, {"max_tokens": 18}),
        (chat("Hi", n=3), {}, {"max_tokens": 50}),
    ],
)
def test_the_limit_that_is_reserved_is_sent(document, one, sent):
    assert limit_of(CHAT, document, **one) == sent


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("endpoint", "document"),
    [
        (COMPLETIONS, {"model": "mild", "prompt": "Hi"}),
        (RESPONSES, {"model": "mild", "input": "Hi"}),
        (CHAT, chat("Hi")),
    ],
)
def test_it_is_sent_in_every_api(endpoint, document, api):
    assert limit_of(endpoint, document, api=api) == {"max_tokens": 50}


def test_embeddings_have_no_limit():
    assert limit_of(EMBEDDINGS, {"model": "one", "input": "Hi"}) == {}


async def test_two_efforts_of_one_model_are_two_experts():
    async with FakeUpstream() as up:
        efforts = {name: {"reasoning_effort": name} for name in ("low", "high")}
        url = up.base_url
        experts = [Expert(name, url, "same", extra=extra) for name, extra in efforts.items()]
        async with gateway(experts, priced_router(("low", "high"))) as g:
            models = json.loads((await ask(g.port, b"", "/v1/models", "GET")).body)["data"]
            for name in efforts:
                request = chat(model=name, stream=True, reasoning_effort="medium")
                found = await ask(g.port, request)
                assert found.headers["x-mild-expert"] == name
                assert b"usage" not in found.body
            row, other = await rows(g, 2)
    bodies = [json.loads(body) for body in up.bodies]
    assert {"low", "high"} <= {model["id"] for model in models}
    assert [body["reasoning_effort"] for body in bodies] == ["low", "high"]
    assert [body["model"] for body in bodies] == ["same", "same"]
    assert [body["stream_options"] for body in bodies] == [{"include_usage": True}] * 2
    assert (row.expert, other.expert, row.tokens_out) == ("low", "high", 3)


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("endpoint", "document"),
    [
        (CHAT, chat("Hi", max_tokens=9)),
        (RESPONSES, {"model": "mild", "input": "Hi", "max_output_tokens": 9}),
        (MESSAGES, chat("Hi", max_tokens=9)),
    ],
)
def test_the_fields_are_sent_in_every_api(endpoint, document, api):
    found = sent(endpoint, document, api=api, **OWN)
    one = Expert("high", "http://127.0.0.1:9/v1", "m", api=api, **OWN)
    # As collect sends them, but for how a text may be written.
    wanted = one.request("Hi")["body"] | {"max_tokens": 9}
    for body in (found, wanted):
        body["messages"][-1]["content"] = text_of(body["messages"][-1]["content"], "")
    assert found == wanted


def test_the_temperature_is_the_experts_and_the_system_prompts_are_both_sent():
    turns = [{"role": "system", "content": "Rhyme."}, {"role": "user", "content": "Hi"}]
    request = {"model": "mild", "messages": turns, "temperature": 0}
    found = sent(CHAT, request, **OWN)
    assert found["temperature"] == 0.2
    assert found["messages"] == [{"role": "system", "content": "Be brief."}, *turns]


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (None, "Be brief."),
        ("Rhyme.", "Be brief.\n\nRhyme."),
        ([RHYME], [{"type": "text", "text": "Be brief."}, RHYME]),
    ],
)
def test_system_prompts_of_messages_are_joined(own, wanted):
    document = chat("Hi", max_tokens=9) | ({} if own is None else {"system": own})
    assert sent(MESSAGES, document, api="anthropic", **OWN)["system"] == wanted


def test_an_object_of_the_request_is_extended():
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    extra = {"output_config": {"effort": "high"}}
    found = sent(CHAT, chat("Hi", response_format=form), api="anthropic", extra=extra)
    assert found["output_config"]["effort"] == "high"
    assert found["output_config"]["format"]["schema"] == {"type": "object"}


def test_completions_have_no_system_prompt_and_embeddings_nothing():
    found = sent(COMPLETIONS, {"model": "mild", "prompt": "Hi"}, **OWN)
    assert found == {"model": "m", "prompt": "Hi", "temperature": 0.2, "top_k": 5}
    found = sent(EMBEDDINGS, {"model": "mild", "input": "Hi"}, **OWN)
    assert found == {"model": "m", "input": "Hi"}


@pytest.mark.parametrize("messages", ["text", 5, {"a": 1}])
def test_what_the_expert_must_refuse_reaches_it(messages):
    document = {"model": "mild", "messages": messages, "system": 5}
    assert sent(CHAT, document, **OWN)["messages"] == messages


def test_without_the_fields_every_byte_stays():
    one = Expert("high", "http://127.0.0.1:9/v1", "m")
    body = b'{ "model":"mild", "messages":[ ],"x":1.00,"y":"\\u00e9" }'
    request = CompletionRequest([], CHAT, body, "last")
    assert request.body_for(one) == body.replace(b'"mild"', b'"m"')


async def test_the_fields_are_reserved():
    text = "x" * 30_000
    async with FakeUpstream() as up:
        one = {"price_in": 1.0, "system": text}
        for budget, status in ((0.029, 402), (0.035, 200)):
            settings = {"budget_day": budget}
            async with gateway([expert("one", up, **one)], access_settings=settings) as g:
                assert (await ask(g.port, chat())).status == status


async def test_a_body_that_cannot_be_written_anew_is_refused():
    deep = b"[" * 900 + b"]" * 900
    body = b'{"model":"mild","messages":[],"x":1e999,"y":%b}' % deep
    async with FakeUpstream() as up, gateway([expert("one", up, **OWN)]) as g:
        found = await ask(g.port, body)
    assert (found.status, up.asked) == (400, 0)
    assert json.loads(found.body)["error"]["code"] == "invalid_body"


def test_a_file_may_have_two_efforts_of_one_model(tmp_path):
    lines = []
    for name in ("low", "high"):
        lines += [f"[experts.{name}]", 'base_url = "http://127.0.0.1:9/v1"', 'model = "m"']
        lines.append(f'extra = {{ temperature = 0.5, reasoning_effort = "{name}" }}')
    (tmp_path / "mild.toml").write_text("\n".join(lines))
    settings = read_settings(tmp_path / "mild.toml", {})
    found = [(one.name, one.model, one.extra["reasoning_effort"]) for one in settings.experts]
    assert found == [("low", "m", "low"), ("high", "m", "high")]

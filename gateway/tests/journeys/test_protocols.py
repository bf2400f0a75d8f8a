"""Programs that use the SDKs of OpenAI and Anthropic, with experts that speak either protocol."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from journeys import adapter
from journeys.service import (
    DOLLARS,
    PRICES,
    TOKENS,
    experts_of,
    fit_router,
    one_question,
    serving,
)
from model_server import ModelServer

pytestmark = [
    pytest.mark.slow,
    # Of the SDKs' own machinery.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

#: Experts by what they speak, and a question for which the router chooses them.
SPEAKS = {"small": "openai", "medium": "anthropic"}
QUESTIONS = {"small": one_question("plus"), "medium": one_question("river")}
ANSWER = 'Langsam:  "drei" Pläne\n\nund 😀 '
SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["town"],
    "additionalProperties": False,
}
GIVEN = {"town": 'Łódź "Ost"\n', "deep": {"list": [1, 2.5, None, True, "\\"]}}
RESULT = '{"sky": "blau", "wind": [1, 2]}'
PROMPT = "Be brief."


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("protocols")
    fit_router(folder)
    with ModelServer() as models:
        adapter.write_config(folder, experts_of(models, **SPEAKS))
        with serving(folder, models) as service:
            for text in (*QUESTIONS.values(), RESULT):
                models.set_answers({text: ANSWER})
            yield service


@pytest.fixture(scope="module")
def openai():
    """The package, which takes seconds to import and is not when tests are collected."""
    return pytest.importorskip("openai")


@pytest.fixture(scope="module")
def anthropic():
    return pytest.importorskip("anthropic")


@pytest.fixture(scope="module")
def of_openai(openai, service):
    url = f"{service.gateway.address}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def of_anthropic(anthropic, service):
    url = service.gateway.address
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@contextmanager
def calling_a_tool(service, name):
    """An expert calls a tool instead of answering."""
    service.set_rules({name: {"tool": {"name": "weather", "arguments": GIVEN}}})
    yield
    service.set_rules({})


def check_calls(service, name, n_requests):
    """So many requests came to this expert, in its protocol, and each was charged by its usage."""
    received = service.received()
    assert len(received) == n_requests
    path = adapter.CHAT if SPEAKS[name] == "openai" else adapter.MESSAGES
    assert {(entry["model"], entry["path"]) for entry in received} == {(f"{name}-model", path)}
    rows = service.new_rows(n_requests)
    assert len(rows) == n_requests
    for row in rows:
        assert (row.expert, row.outcome, row.attempts) == (name, "ok", 1)
        assert row.tokens == TOKENS[name]
        assert row.dollars == pytest.approx(DOLLARS[name])
    return received


def tools_of(body):
    """Names and schemas of the tools that an expert was told of, in either protocol."""
    tools = [tool.get("function", tool) for tool in body["tools"]]
    return [(tool["name"], tool.get("parameters") or tool.get("input_schema")) for tool in tools]


def call_and_result(body):
    """Arguments of the call and its result, with their ids, that an expert was reminded of, in either
    protocol."""
    *_, call, result = body["messages"]
    if "tool_calls" in call:
        (made,) = call["tool_calls"]
        arguments = json.loads(made["function"]["arguments"])
        return made["id"], arguments, result["tool_call_id"], result["content"]
    (made,) = [part for part in call["content"] if part["type"] == "tool_use"]
    (given,) = result["content"]
    content = given["content"]
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content)
    return made["id"], made["input"], given["tool_use_id"], content


@pytest.mark.parametrize("asked", ["router", "expert"])
@pytest.mark.parametrize("name", SPEAKS)
def test_chat_completions(service, of_openai, name, asked):
    service.received()
    request = {
        "model": adapter.ROUTER_MODEL if asked == "router" else name,
        "messages": [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": QUESTIONS[name]},
        ],
    }
    completions = of_openai.chat.completions
    raw = completions.with_raw_response.create(**request)
    assert raw.headers[adapter.EXPERT] == name
    answer = raw.parse()
    assert answer.model == adapter.named_model(name, f"{name}-model")
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == TOKENS[name]

    usage = {"include_usage": True}
    chunks = list(completions.create(**request, stream=True, stream_options=usage))
    texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(texts) == ANSWER
    assert len([text for text in texts if text]) > 1
    used = chunks[-1].usage
    assert (used.prompt_tokens, used.completion_tokens) == TOKENS[name]
    with completions.stream(**request) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        assert stream.get_final_completion().choices[0].message.content == ANSWER
    assert "".join(pieces) == ANSWER

    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    with calling_a_tool(service, name):
        called = completions.create(**request, tools=[tool]).choices[0]
        with completions.stream(**request, tools=[tool]) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion().choices[0]
    for choice in (called, streamed):
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments) == GIVEN
    result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
    request["messages"] += [called.message, result]
    assert completions.create(**request, tools=[tool]).choices[0].message.content == ANSWER

    *_, with_tools, _, with_result = [entry["body"] for entry in check_calls(service, name, 6)]
    assert tools_of(with_tools) == [("weather", SCHEMA)]
    assert call_and_result(with_result) == (call.id, GIVEN, call.id, RESULT)


@pytest.mark.parametrize("asked", ["router", "expert"])
@pytest.mark.parametrize("name", SPEAKS)
def test_responses(service, of_openai, name, asked):
    service.received()
    turns = [{"role": "user", "content": QUESTIONS[name]}]
    request = {
        "model": adapter.ROUTER_MODEL if asked == "router" else name,
        "input": turns,
        "instructions": PROMPT,
    }
    responses = of_openai.responses
    raw = responses.with_raw_response.create(**{**request, "input": QUESTIONS[name]})
    assert raw.headers[adapter.EXPERT] == name
    answer = raw.parse()
    assert answer.model == adapter.named_model(name, f"{name}-model")
    assert (answer.status, answer.output_text) == ("completed", ANSWER)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == TOKENS[name]

    events = list(responses.create(**request, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(pieces) > 1
    assert "".join(pieces) == events[-1].response.output_text == ANSWER
    used = events[-1].response.usage
    assert (used.input_tokens, used.output_tokens) == TOKENS[name]

    tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
    with calling_a_tool(service, name):
        called = responses.create(**request, tools=[tool])
        with responses.stream(**request, tools=[tool]) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_response()
    for response in (called, streamed):
        (call,) = response.output
        assert (call.type, call.name) == ("function_call", "weather")
        assert json.loads(call.arguments) == GIVEN
    (call,) = called.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    turns += [call.model_dump(exclude_none=True), result]
    assert responses.create(**request, tools=[tool]).output_text == ANSWER

    *_, with_tools, _, with_result = [entry["body"] for entry in check_calls(service, name, 5)]
    assert tools_of(with_tools) == [("weather", SCHEMA)]
    assert call_and_result(with_result) == (call.call_id, GIVEN, call.call_id, RESULT)


@pytest.mark.parametrize("asked", ["router", "expert"])
@pytest.mark.parametrize("name", SPEAKS)
def test_messages(service, of_anthropic, name, asked):
    service.received()
    request = {
        "model": adapter.ROUTER_MODEL if asked == "router" else name,
        "max_tokens": 500,
        "system": PROMPT,
        "messages": [{"role": "user", "content": QUESTIONS[name]}],
    }
    messages = of_anthropic.messages
    raw = messages.with_raw_response.create(**request)
    assert raw.headers[adapter.EXPERT] == name
    answer = raw.parse()
    assert answer.model == adapter.named_model(name, f"{name}-model")
    assert [block.text for block in answer.content] == [ANSWER]
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == TOKENS[name]

    events = list(messages.create(**request, stream=True))
    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")
    with messages.stream(**request) as stream:
        pieces = list(stream.text_stream)
        answer = stream.get_final_message()
    assert len(pieces) > 1
    assert "".join(pieces) == answer.content[0].text == ANSWER
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == TOKENS[name]

    tool = {"name": "weather", "input_schema": SCHEMA}
    with calling_a_tool(service, name):
        called = messages.create(**request, tools=[tool])
        with messages.stream(**request, tools=[tool]) as stream:
            streamed = stream.get_final_message()
    for message in (called, streamed):
        assert message.stop_reason == "tool_use"
        (call,) = message.content
        assert (call.type, call.name, call.input) == ("tool_use", "weather", GIVEN)
    (call,) = called.content
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    request["messages"] += [
        {"role": "assistant", "content": [block.model_dump() for block in called.content]},
        {"role": "user", "content": [result]},
    ]
    assert messages.create(**request, tools=[tool]).content[0].text == ANSWER

    received = check_calls(service, name, 6)
    *_, with_tools, _, with_result = [entry["body"] for entry in received]
    assert tools_of(with_tools) == [("weather", SCHEMA)]
    assert call_and_result(with_result) == (call.id, GIVEN, call.id, RESULT)
    assert messages.count_tokens(model=name, messages=request["messages"]).input_tokens > 0
    assert service.received() == []


def test_experts_of_the_other_protocol_take_over(service, of_openai, of_anthropic):
    for chosen, failing in (("medium", ["medium"]), ("small", ["small", "large"])):
        turns = [{"role": "user", "content": QUESTIONS[chosen]}]
        request = {"model": adapter.ROUTER_MODEL, "messages": turns}
        service.set_rules({name: {"status": 429} for name in failing})
        service.received()
        chat = of_openai.chat.completions.create(**request).choices[0].message
        assert chat.content == ANSWER
        assert of_openai.responses.create(model=request["model"], input=turns).output_text == ANSWER
        with of_anthropic.messages.stream(**request, max_tokens=500) as stream:
            assert stream.get_final_text() == ANSWER
        service.set_rules({})
        received = service.received()
        for row in service.new_rows(3):
            assert row.chosen == chosen
            assert SPEAKS.get(row.expert, "openai") != SPEAKS[chosen]
            assert (row.tokens, row.outcome) == (TOKENS[row.expert], "ok")
            assert row.dollars == pytest.approx(DOLLARS[row.expert])
        assert {entry["path"] for entry in received} == {adapter.CHAT, adapter.MESSAGES}


def test_completions_and_embeddings_of_a_named_expert(service, of_openai):
    service.received()
    completions = of_openai.completions
    answer = completions.create(model="small", prompt=RESULT)
    assert answer.choices[0].text == ANSWER
    pieces = [
        chunk.choices[0].text
        for chunk in completions.create(model="small", prompt=RESULT, stream=True)
    ]
    assert "".join(pieces) == ANSWER
    found = of_openai.embeddings.create(model="small", input=["a", "b"])
    assert [one.embedding for one in found.data] == [[0.25, -0.5]] * 2
    assert found.usage.prompt_tokens == TOKENS["small"][0]
    paths = [entry["path"] for entry in service.received()]
    assert paths == ["/v1/completions", "/v1/completions", "/v1/embeddings"]
    rows = service.new_rows(3)
    assert [(row.expert, row.outcome, row.streamed) for row in rows] == [
        ("small", "ok", False),
        ("small", "ok", True),
        ("small", "ok", False),
    ]
    # What was read costs the same; vectors are no tokens.
    price_in = PRICES["small"][0]
    of_vectors = price_in * TOKENS["small"][0] / 1e6
    charged = [DOLLARS["small"], DOLLARS["small"], of_vectors]
    assert [row.dollars for row in rows] == pytest.approx(charged)


def test_errors_are_exceptions_of_the_sdk(service, openai, anthropic, of_openai, of_anthropic):
    turns = [{"role": "user", "content": "Why?"}]

    def ask(protocol, name, **more):
        if protocol == "chat":
            return of_openai.chat.completions.create(model=name, messages=turns, **more)
        if protocol == "responses":
            return of_openai.responses.create(model=name, input=turns, **more)
        return of_anthropic.messages.create(model=name, messages=turns, max_tokens=9, **more)

    for protocol, sdk in (("chat", openai), ("responses", openai), ("messages", anthropic)):
        with pytest.raises(sdk.NotFoundError) as caught:
            ask(protocol, "nobody")
        body = caught.value.body
        assert body.get("error", body)["code"] == "model_not_found"
        for name, api in SPEAKS.items():
            # What an expert says of the request itself is passed on.
            error = {"type": "invalid_request_error", "message": "too hot: 7719"}
            body = {"error": error} if api == "openai" else {"type": "error", "error": error}
            service.set_rules({name: {"status": 400, "body": body}})
            with pytest.raises(sdk.BadRequestError, match="7719"):
                ask(protocol, name)
            service.set_rules({name: {"status": 429}})
            with pytest.raises(sdk.RateLimitError):
                ask(protocol, name)
            service.set_rules({name: {"status": 503}})
            with pytest.raises(sdk.InternalServerError):
                ask(protocol, name)
            # Of a stream that breaks off the client gets the pieces, and then the error.
            service.set_rules({name: {"fault": "cut"}})
            seen = []
            with pytest.raises(sdk.APIError):
                seen.extend(ask(protocol, name, stream=True))
            assert seen
            kinds = {getattr(event, "type", None) for event in seen}
            assert not {"response.completed", "message_stop"} & kinds
            service.set_rules({})
            assert ask(protocol, name)


def test_a_gateway_that_requires_keys(service, openai, anthropic, tmp_path):
    fit_router(tmp_path)
    adapter.write_config(tmp_path, experts_of(service.models))
    adapter.require_keys(tmp_path)
    service.received()
    with serving(tmp_path, service.models) as closed:
        url = closed.gateway.address
        turns = [{"role": "user", "content": QUESTIONS["small"]}]
        with (
            openai.OpenAI(base_url=f"{url}/v1", api_key="wrong") as client,
            pytest.raises(openai.AuthenticationError) as caught,
        ):
            client.chat.completions.create(model="small", messages=turns)
        assert caught.value.code == "invalid_api_key"
        with (
            anthropic.Anthropic(base_url=url, api_key="wrong") as client,
            pytest.raises(anthropic.AuthenticationError),
        ):
            client.messages.create(model="small", max_tokens=9, messages=turns)
    assert service.received() == []

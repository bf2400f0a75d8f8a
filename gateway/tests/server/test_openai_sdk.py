"""OpenAI's client, against experts of both APIs."""

import pytest
from pydantic import BaseModel

from fake_upstream import CALL
from sdk_cases import served

# Of the client's own machinery.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
USER = [{"role": "user", "content": "What is 2 + 2?"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
FLAT_TOOL = {"type": "function", "strict": False, **TOOL["function"]}


class Sum(BaseModel):
    total: int


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def gateway(request):
    with served(request.param) as found:
        found.api = request.param
        yield found


@pytest.fixture(scope="module")
def openai():
    """The package, which takes seconds to import and is not when tests are collected."""
    return pytest.importorskip("openai")


@pytest.fixture(scope="module")
def client(openai, gateway):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_plain_and_models(client):
    answer = client.chat.completions.create(model="mild", messages=USER)
    assert answer.model == "small"
    assert answer.choices[0].message.content == "one two three"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 10
    raw = client.chat.completions.with_raw_response.create(model="mild", messages=USER)
    assert raw.headers["x-mild-expert"] == "small"
    assert client.completions.create(model="mild", prompt="x").choices[0].text == "one two three"
    assert [model.id for model in client.models.list()] == ["mild", "mild-direct", "small"]


def test_streaming(client):
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model="mild", messages=USER, stream=True, stream_options=options
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text.strip() == "one two three"
    assert {chunk.model for chunk in chunks} == {"small"}
    assert chunks[-1].usage.completion_tokens == 3
    pieces = list(client.completions.create(model="mild", prompt="x", stream=True))
    assert "".join(piece.choices[0].text for piece in pieces).strip() == "one two three"


def test_tools(client):
    answer = client.chat.completions.create(model="mild", messages=USER, tools=[TOOL])
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "weather"
    assert call.function.arguments == CALL["function"]["arguments"]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    turns = [*USER, answer.choices[0].message, result]
    assert client.chat.completions.create(model="mild", messages=turns).choices[0].message.content


def test_streamed_tools(client):
    with client.chat.completions.stream(model="mild", messages=USER, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.arguments == CALL["function"]["arguments"]


def test_parse(client, gateway, monkeypatch):
    monkeypatch.setattr(gateway.up, "text", '{"total": 4}')
    answer = client.chat.completions.parse(model="mild", messages=USER, response_format=Sum)
    assert answer.choices[0].message.parsed == Sum(total=4)
    found = client.responses.parse(model="mild", input=USER, text_format=Sum)
    assert found.output_parsed == Sum(total=4)


def test_responses(client):
    answer = client.responses.create(model="mild", input="What is 2 + 2?", instructions="Be brief.")
    assert answer.model == "small"
    assert (answer.status, answer.output_text) == ("completed", "one two three")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (10, 3)


def test_responses_with_tools(client):
    answer = client.responses.create(model="mild", input=USER, tools=[FLAT_TOOL])
    (call,) = answer.output
    assert (call.type, call.name) == ("function_call", "weather")
    assert call.arguments == CALL["function"]["arguments"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    turns = [*USER, call.model_dump(exclude_none=True), result]
    assert client.responses.create(model="mild", input=turns).output_text == "one two three"


def test_streamed_responses(client):
    events = list(client.responses.create(model="mild", input="What is 2 + 2?", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text.strip() == "one two three"
    assert events[-1].response.usage.output_tokens == 3
    with client.responses.stream(model="mild", input="x", tools=[FLAT_TOOL]) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_response().output
    assert call.arguments == CALL["function"]["arguments"]


def test_embeddings(openai, client, gateway):
    if gateway.api == "anthropic":
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="mild", input=["a", "b"])
        assert refused.value.code == "embeddings_unsupported"
        return
    found = client.embeddings.create(model="mild", input=["a", "b"])
    assert found.model == "small"
    assert found.data[0].embedding == [0.25, -0.5]


def test_errors_are_the_clients_own(openai, client, gateway):
    with pytest.raises(openai.NotFoundError, match="Valid names: mild"):
        client.chat.completions.create(model="gpt", messages=USER)
    gateway.up.script += ["500", "500"]
    with pytest.raises(openai.InternalServerError, match="small"):
        client.chat.completions.create(model="mild", messages=USER)
    with pytest.raises(openai.InternalServerError, match="small"):
        client.responses.create(model="mild", input="x")
    with pytest.raises(openai.BadRequestError) as found:
        client.responses.create(model="mild", input="x", previous_response_id="resp_1")
    assert (found.value.code, found.value.param) == ("unsupported_field", "previous_response_id")


@pytest.mark.parametrize("fault", ["cut", "cut_clean", "error_middle", "cut_event"])
def test_a_broken_stream_raises(fault, openai, client, gateway):
    gateway.up.script += [fault, fault]
    stream = client.chat.completions.create(model="mild", messages=USER, stream=True)
    with pytest.raises(openai.APIError, match="in the middle"):
        list(stream)
    stream = client.responses.create(model="mild", input="x", stream=True)
    seen = []
    with pytest.raises(openai.APIError, match="in the middle"):
        seen.extend(event.type for event in stream)
    assert "response.completed" not in seen
    assert seen[0] == "response.created"

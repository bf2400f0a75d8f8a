"""Anthropic's client, against experts of both APIs."""

import pytest

from sdk_cases import served

# Of the client's own machinery.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
TOOL = {"name": "weather", "description": "Weather", "input_schema": {"type": "object"}}
GIVEN = {"city": "Rome", "model": "x"}


def asking(text="What is 2 + 2?", **more):
    messages = [{"role": "user", "content": text}]
    return {"model": "mild", "max_tokens": 100, "messages": messages, **more}


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def gateway(request):
    with served(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def anthropic():
    """The package, which takes seconds to import and is not when tests are collected."""
    return pytest.importorskip("anthropic")


@pytest.fixture(scope="module")
def client(anthropic, gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client:
        yield client


def test_plain(client):
    answer = client.messages.create(**asking(system="Be brief."))
    assert answer.model == "small"
    assert answer.content[0].text == "one two three"
    assert answer.stop_reason == "end_turn"
    usage = answer.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == 10
    assert usage.output_tokens == 3
    raw = client.messages.with_raw_response.create(**asking())
    assert raw.headers["x-mild-expert"] == "small"


def test_images(client):
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    parts = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    assert client.messages.create(**asking(parts)).content[0].text == "one two three"


def test_streaming(client):
    with client.messages.stream(**asking()) as stream:
        assert "".join(stream.text_stream).strip() == "one two three"
        answer = stream.get_final_message()
    assert (answer.model, answer.stop_reason) == ("small", "end_turn")
    usage = answer.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == 10
    assert usage.output_tokens == 3
    kinds = [event.type for event in client.messages.create(**asking(stream=True))]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]


def test_tools(client):
    answer = client.messages.create(**asking(tools=[TOOL], tool_choice={"type": "any"}))
    (call,) = answer.content
    assert (call.type, call.name, call.input) == ("tool_use", "weather", GIVEN)
    assert answer.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    request = asking()
    request["messages"] += [
        {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
        {"role": "user", "content": [result]},
    ]
    assert client.messages.create(**request).content[0].text == "one two three"


def test_streamed_tools(client):
    with client.messages.stream(**asking(tools=[TOOL])) as stream:
        answer = stream.get_final_message()
    (call,) = answer.content
    assert (call.name, call.input) == ("weather", GIVEN)
    assert answer.stop_reason == "tool_use"


def test_errors_are_the_clients_own(anthropic, client, gateway):
    with pytest.raises(anthropic.NotFoundError) as found:
        client.messages.create(**asking(model="gpt"))
    assert found.value.body["error"]["type"] == "not_found_error"
    assert found.value.body["error"]["code"] == "model_not_found"
    gateway.up.script.append("500")
    with pytest.raises(anthropic.InternalServerError, match="small"):
        client.messages.create(**asking())


@pytest.mark.parametrize("fault", ["cut", "cut_clean", "error_middle", "cut_event"])
def test_a_broken_stream_raises(fault, anthropic, client, gateway):
    gateway.up.script.append(fault)
    seen = []
    with pytest.raises(anthropic.APIStatusError, match="in the middle"):
        seen.extend(event.type for event in client.messages.create(**asking(stream=True)))
    assert "message_stop" not in seen
    assert seen[0] == "message_start"

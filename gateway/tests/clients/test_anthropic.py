"""anthropic for Python: plain, streaming, tools."""

import asyncio

import pytest

from clients.client_cases import FACT, SUM, WEATHER

anthropic = pytest.importorskip("anthropic")

TOOL = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def asked(text, **more):
    messages = [{"role": "user", "content": text}]
    return {"model": "mild", "max_tokens": 100, "messages": messages, **more}


@pytest.fixture(scope="module")
def client(gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as made:
        yield made


def test_plain(client):
    answer = client.messages.create(**asked(SUM, system="Be brief."))
    assert (answer.role, answer.model, answer.stop_reason) == ("assistant", "rules", "end_turn")
    assert [(part.type, part.text) for part in answer.content] == [("text", "391")]
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0


def test_streaming(client):
    with client.messages.stream(**asked(FACT)) as stream:
        assert "".join(stream.text_stream) == "Paris"
        final = stream.get_final_message()
    assert (final.model, final.stop_reason) == ("gemma3", "end_turn")
    kinds = [event.type for event in client.messages.create(**asked(FACT, stream=True))]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_async(gateway, client):
    async def ask():
        async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="none") as made:
            return await made.messages.create(**asked(SUM))

    assert asyncio.run(ask()).content[0].text == "391"


@pytest.mark.parametrize("streamed", [False, True])
def test_tools(client, streamed):
    if streamed:
        with client.messages.stream(**asked(WEATHER, tools=[TOOL])) as stream:
            answer = stream.get_final_message()
    else:
        answer = client.messages.create(**asked(WEATHER, tools=[TOOL]))
    (call,) = [part for part in answer.content if part.type == "tool_use"]
    assert (answer.stop_reason, call.name, call.input) == (
        "tool_use",
        "get_weather",
        {"city": WEATHER},
    )
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "It rains."}
    messages = [
        {"role": "user", "content": WEATHER},
        {"role": "assistant", "content": [part.model_dump() for part in answer.content]},
        {"role": "user", "content": [result]},
    ]
    told = client.messages.create(model="mild", max_tokens=100, messages=messages, tools=[TOOL])
    assert told.content[0].text == "It rains."


def test_errors_are_the_clients_own(client):
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**{**asked(SUM), "model": "claude"})


def test_tokens_are_counted(client):
    count = client.messages.count_tokens
    short, long = (
        count(model="mild", messages=[{"role": "user", "content": "x" * n}]) for n in (3, 3000)
    )
    assert 0 < short.input_tokens < long.input_tokens < 1500
    with pytest.raises(anthropic.NotFoundError) as caught:
        count(model="nobody", messages=[{"role": "user", "content": "x"}])
    assert caught.value.body["error"]["type"] == "not_found_error"

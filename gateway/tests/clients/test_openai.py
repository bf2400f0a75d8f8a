"""openai for Python: sync, async, streaming, tools, parsed answers, embeddings, responses."""

import asyncio
import json

import pytest
from pydantic import BaseModel

from clients.client_cases import FACT, SUM, WEATHER

openai = pytest.importorskip("openai")

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Total(BaseModel):
    total: int


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(gateway):
    with openai.OpenAI(base_url=gateway.api, api_key="none", max_retries=0) as made:
        yield made


def test_a_plain_answer_names_the_expert(client):
    answer = client.chat.completions.create(model="mild", messages=user(SUM))
    assert (answer.model, answer.choices[0].message.content) == ("rules", "391")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_several_choices(client):
    answer = client.chat.completions.create(model="mild", messages=user(SUM), n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]


def test_async(gateway):
    async def ask():
        async with openai.AsyncOpenAI(base_url=gateway.api, api_key="none") as client:
            texts = [SUM, FACT] * 4
            return await asyncio.gather(
                *(
                    client.chat.completions.create(model="mild", messages=user(text))
                    for text in texts
                )
            )

    answers = asyncio.run(ask())
    assert [answer.model for answer in answers] == ["rules", "gemma3"] * 4


def test_streamed_chunks(client):
    chunks = list(
        client.chat.completions.create(
            model="mild",
            messages=user(FACT),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Paris"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.total_tokens > 0


def test_the_stream_helper_collects_the_answer(client):
    with client.chat.completions.stream(model="mild", messages=user(FACT)) as stream:
        kinds = {event.type for event in stream}
        found = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert found.choices[0].message.content == "Paris"


def test_async_streams(gateway):
    async def ask():
        async with (
            openai.AsyncOpenAI(base_url=gateway.api, api_key="none") as client,
            client.chat.completions.stream(model="mild", messages=user(FACT)) as stream,
        ):
            return await stream.get_final_completion()

    assert asyncio.run(ask()).choices[0].message.content == "Paris"


@pytest.mark.parametrize("streamed", [False, True])
def test_tools_are_called_and_their_result_is_answered(client, streamed):
    messages = user(WEATHER)
    if streamed:
        with client.chat.completions.stream(
            model="mild", messages=messages, tools=[TOOL]
        ) as stream:
            choice = stream.get_final_completion().choices[0]
    else:
        asked = client.chat.completions.create(model="mild", messages=messages, tools=[TOOL])
        choice = asked.choices[0]
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "get_weather")
    assert json.loads(call.function.arguments) == {"city": WEATHER}
    called = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    }
    messages += [
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call.id, "content": "It rains."},
    ]
    answer = client.chat.completions.create(model="mild", messages=messages, tools=[TOOL])
    assert answer.choices[0].message.content == "It rains."


def test_parsed_answers(client):
    answer = client.chat.completions.parse(model="mild", messages=user(SUM), response_format=Total)
    assert answer.choices[0].message.parsed == Total(total=391)


def test_completions_and_models(client):
    assert client.completions.create(model="mild", prompt=SUM).choices[0].text == "391"
    names = [model.id for model in client.models.list()]
    assert names == ["mild", "mild-cascade", "mild-direct", "smollm2", "gemma3", "rules"]


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4", messages=user(SUM))
    assert caught.value.code == "model_not_found"


@pytest.fixture
def responses(client):
    return client.responses


def test_responses(responses):
    answer = responses.create(model="mild", input=SUM)
    assert (answer.model, answer.output_text, answer.status) == ("rules", "391", "completed")
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_responses_are_streamed_as_events(responses):
    events = list(responses.create(model="mild", input=FACT, stream=True))
    assert events[0].type == "response.created"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "Paris"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Paris"
    with responses.stream(model="mild", input=FACT) as stream:
        assert stream.get_final_response().output_text == "Paris"


def test_responses_call_tools(responses):
    tool = {"type": "function", **TOOL["function"], "strict": False}
    asked = responses.create(model="mild", input=WEATHER, tools=[tool])
    (call,) = [item for item in asked.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": WEATHER}
    given = [
        {"role": "user", "content": WEATHER},
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."},
    ]
    assert responses.create(model="mild", input=given, tools=[tool]).output_text == "It rains."


def test_responses_are_parsed(responses):
    answer = responses.parse(model="mild", input=SUM, text_format=Total)
    assert answer.output_parsed == Total(total=391)


def test_embeddings(client):
    found = client.embeddings.create(model="smollm2", input=["a", "b"])
    assert [len(row.embedding) for row in found.data] == [64, 64]

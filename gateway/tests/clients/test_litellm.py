"""litellm as a client: plain, streaming, async, tools."""

import asyncio
import json

import pytest

from clients.client_cases import FACT, SUM, WEATHER

litellm = pytest.importorskip("litellm")

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def asked(gateway, text, **more):
    return {
        "model": "openai/mild",
        "api_base": gateway.api,
        "api_key": "none",
        "messages": [{"role": "user", "content": text}],
        **more,
    }


def test_plain_and_async(gateway):
    answer = litellm.completion(**asked(gateway, SUM))
    assert (answer.model, answer.choices[0].message.content) == ("rules", "391")
    answer = asyncio.run(litellm.acompletion(**asked(gateway, FACT)))
    assert answer.choices[0].message.content == "Paris"


def test_streaming(gateway):
    chunks = litellm.completion(**asked(gateway, FACT, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Paris"


def test_tools(gateway):
    answer = litellm.completion(**asked(gateway, WEATHER, tools=[TOOL]))
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": WEATHER}
    assert answer.choices[0].finish_reason == "tool_calls"

"""llama-index's OpenAILike: plain, streaming, tools, structured output."""

import asyncio

import pytest

from clients.client_cases import FACT, SUM, WEATHER

openai_like = pytest.importorskip("llama_index.llms.openai_like")
core = pytest.importorskip("llama_index.core.llms")
tools = pytest.importorskip("llama_index.core.tools")


@pytest.fixture(scope="module")
def model(gateway):
    return openai_like.OpenAILike(
        model="mild",
        api_base=gateway.api,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )


def user(text):
    return [core.ChatMessage(role="user", content=text)]


def test_plain_and_async(model):
    assert model.chat(user(SUM)).message.content == "391"
    assert str(model.complete(SUM)) == "391"
    assert asyncio.run(model.achat(user(FACT))).message.content == "Paris"


def test_streaming(model):
    *_, last = model.stream_chat(user(FACT))
    assert last.message.content == "Paris"


def test_tools(model):
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return "It rains."

    tool = tools.FunctionTool.from_defaults(get_weather)
    answer = model.chat_with_tools([tool], user_msg=WEATHER)
    (call,) = model.get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": WEATHER})

"""pydantic-ai: agents with text, tools, typed output and streams."""

import asyncio

import pytest
from pydantic import BaseModel

from clients.client_cases import FACT, SUM, WEATHER

pydantic_ai = pytest.importorskip("pydantic_ai")
openai_models = pytest.importorskip("pydantic_ai.models.openai")
openai_provider = pytest.importorskip("pydantic_ai.providers.openai")


class Total(BaseModel):
    total: int


@pytest.fixture
def make_model(gateway):
    def make(kind="OpenAIChatModel"):
        provider = openai_provider.OpenAIProvider(base_url=gateway.api, api_key="none")
        return getattr(openai_models, kind)("mild", provider=provider)

    return make


def test_plain(make_model):
    result = asyncio.run(pydantic_ai.Agent(make_model()).run(SUM))
    assert result.output == "391"


def test_streaming(make_model):
    async def ask():
        async with pydantic_ai.Agent(make_model()).run_stream(FACT) as result:
            return [text async for text in result.stream_text(debounce_by=None)]

    assert asyncio.run(ask())[-1] == "Paris"


def test_tools(make_model):
    agent = pydantic_ai.Agent(make_model())
    called = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        called.append(city)
        return "It rains."

    assert asyncio.run(agent.run(WEATHER)).output == "It rains."
    assert called == [WEATHER]


def test_typed_output(make_model):
    by_tool = pydantic_ai.Agent(make_model(), output_type=Total)
    assert asyncio.run(by_tool.run(SUM)).output == Total(total=17)
    native = pydantic_ai.Agent(make_model(), output_type=pydantic_ai.NativeOutput(Total))
    assert asyncio.run(native.run(SUM)).output == Total(total=391)


def test_the_responses_api(make_model):
    agent = pydantic_ai.Agent(make_model("OpenAIResponsesModel"))
    assert asyncio.run(agent.run(SUM)).output == "391"

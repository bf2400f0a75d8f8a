"""langchain-openai: plain, streaming, tools, structured output."""

import asyncio

import pytest
from pydantic import BaseModel

from clients.client_cases import FACT, SUM, WEATHER

langchain_openai = pytest.importorskip("langchain_openai")
tools = pytest.importorskip("langchain_core.tools")
messages = pytest.importorskip("langchain_core.messages")


class Total(BaseModel):
    """A sum."""

    total: int


@tools.tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


@pytest.fixture(scope="module")
def model(gateway):
    return langchain_openai.ChatOpenAI(
        model="mild", base_url=gateway.api, api_key="none", max_retries=0
    )


def test_plain(model):
    answer = model.invoke(SUM)
    assert (answer.content, answer.response_metadata["model_name"]) == ("391", "rules")
    assert answer.usage_metadata["total_tokens"] > 0


def test_streaming(model):
    pieces = list(model.stream(FACT))
    assert "".join(piece.content for piece in pieces) == "Paris"


def test_async_and_batch(model):
    assert asyncio.run(model.ainvoke(FACT)).content == "Paris"
    assert [answer.content for answer in model.batch([SUM, FACT])] == ["391", "Paris"]


def test_tools(model):
    bound = model.bind_tools([get_weather])
    asked = bound.invoke(WEATHER)
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": WEATHER})
    result = get_weather.invoke(call)
    told = bound.invoke([messages.HumanMessage(WEATHER), asked, result])
    assert told.content == f"It rains in {WEATHER}."


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model, method):
    found = model.with_structured_output(Total, method=method).invoke(SUM)
    assert found.total in (391, 17)  # the answer, or the first number of the question


def test_the_responses_api(gateway):
    model = langchain_openai.ChatOpenAI(
        model="mild", base_url=gateway.api, api_key="none", use_responses_api=True
    )
    assert model.invoke(SUM).text == "391"

"""The official client, against a gateway in a thread of its own."""

import asyncio
import contextlib
import threading

import pytest

from gateway.fake_upstream import CALL, FakeUpstream
from gateway.gateway_cases import expert, gateway

openai = pytest.importorskip("openai")

# Of the client's own machinery.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
USER = [{"role": "user", "content": "What is 2 + 2?"}]


@contextlib.contextmanager
def served(**upstream):
    """A client of a gateway that runs in another thread."""
    started, ended = threading.Event(), threading.Event()
    found = {}

    async def serve():
        async with FakeUpstream(**upstream) as up, gateway([expert("small", up, retries=0)]) as g:
            found["port"], found["g"] = g.port, g
            started.set()
            while not ended.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10)
        url = f"http://127.0.0.1:{found['port']}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield client
    finally:
        ended.set()
        thread.join()


def test_plain_and_models():
    with served() as client:
        answer = client.chat.completions.create(model="mild", messages=USER)
        assert answer.model == "small"
        assert answer.choices[0].message.content == "one two three"
        assert answer.usage.prompt_tokens == 10
        raw = client.chat.completions.with_raw_response.create(model="mild", messages=USER)
        assert raw.headers["x-mild-expert"] == "small"
        assert client.completions.create(model="mild", prompt="x").choices[0].text
        assert [model.id for model in client.models.list()] == ["mild", "small"]


def test_streaming():
    with served() as client:
        stream = client.chat.completions.create(model="mild", messages=USER, stream=True)
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text.strip() == "one two three"
        assert {chunk.model for chunk in chunks} == {"small"}


def test_tools():
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    with served() as client:
        answer = client.chat.completions.create(model="mild", messages=USER, tools=[tool])
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.name == "weather"
        assert call.function.arguments == CALL["function"]["arguments"]


def test_errors_are_the_clients_own():
    with served(script=["500"]) as client:
        with pytest.raises(openai.NotFoundError, match="Valid names: mild"):
            client.chat.completions.create(model="gpt", messages=USER)
        with pytest.raises(openai.InternalServerError, match="small"):
            client.chat.completions.create(model="mild", messages=USER)


@pytest.mark.parametrize("fault", ["cut", "cut_clean", "error_middle", "cut_event"])
def test_a_broken_stream_raises(fault):
    with served(script=[fault]) as client:
        stream = client.chat.completions.create(model="mild", messages=USER, stream=True)
        with pytest.raises(openai.APIError, match="in the middle"):
            list(stream)

"""Clients ask LiteLLM's proxy, which runs the plug-in as the documentation shows.

The model server tells which model was asked what.
"""

from __future__ import annotations

import asyncio
import shutil

import httpx
import openai
import pytest

from journeys.adapter import CHAT, ROUTER, chat, said
from journeys.world import PRICES
from journeys_litellm import adapter
from journeys_litellm.asking import IMAGE, conversations, models_asked, user
from journeys_litellm.proxies import MASTER_KEY, proxy_in
from waiting import PATIENCE


@pytest.fixture(scope="module")
def proxies(models, tuned, tmp_path_factory):
    """A proxy with a router, and one without; they start at the same time."""
    folder = tmp_path_factory.mktemp("proxy")
    shutil.copytree(tuned.folder / ROUTER, folder / ROUTER)
    empty = tmp_path_factory.mktemp("empty")
    with proxy_in(folder, models.url) as proxy, proxy_in(empty, models.url) as other:
        yield proxy, other


@pytest.fixture(scope="module")
def proxy(proxies):
    """The proxy with a router, when it listens."""
    found, _ = proxies
    found.wait()
    assert found.address, found.log
    return found


@pytest.fixture
def client(proxy):
    """A client of HTTP that has the key of the proxy."""
    headers = {"Authorization": f"Bearer {MASTER_KEY}"}
    with httpx.Client(base_url=proxy.address, headers=headers, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def sdk(proxy):
    """What the SDK of openai is told of the proxy."""
    url = f"{proxy.address}/v1"
    return {"base_url": url, "api_key": MASTER_KEY, "timeout": PATIENCE, "max_retries": 0}


def joined(chunks):
    """The text of a stream."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_every_question_goes_to_the_model_that_mild_route_names(client, models, tuned):
    with models_asked(models) as asked:
        for text in tuned.choices:
            response = client.post(CHAT, json=chat(text, adapter.MODEL))
            # The models repeat what they are asked.
            assert (response.status_code, said(response.json())) == (200, text)
    assert asked == list(tuned.choices.items())
    # Each with the key that LiteLLM has for it.
    for request in models.received()[-len(asked) :]:
        assert request["headers"]["authorization"] == f"Bearer key-of-{request['model']}"


def test_the_sdk_of_openai_is_routed_plain_and_streamed(sdk, models, tuned):
    with openai.OpenAI(**sdk) as client:
        assert {model.id for model in client.models.list()} == set(PRICES)
        with models_asked(models) as asked:
            for text in tuned.choices:
                answer = client.chat.completions.create(model=adapter.MODEL, messages=[user(text)])
                assert answer.choices[0].message.content == text
        assert asked == list(tuned.choices.items())
        with models_asked(models) as asked:
            for text in tuned.choices:
                chunks = client.chat.completions.create(
                    model=adapter.MODEL, messages=[user(text)], stream=True
                )
                assert joined(chunks) == text
        assert asked == list(tuned.choices.items())


async def test_many_at_a_time_are_routed_each_by_its_own_text(sdk, models, tuned):
    async with openai.AsyncOpenAI(**sdk) as client:

        async def stream(text):
            chunks = await client.chat.completions.create(
                model=adapter.MODEL, messages=[user(text)], stream=True
            )
            return joined([chunk async for chunk in chunks])

        with models_asked(models) as asked:
            assert await asyncio.gather(*map(stream, tuned.choices)) == list(tuned.choices)
    assert sorted(asked) == sorted(tuned.choices.items())


def test_the_last_text_of_the_user_decides(client, models, tuned):
    for name, text in tuned.one_for_each.items():
        (other, *_) = [found for key, found in tuned.one_for_each.items() if key != name]
        for kind, messages in conversations(text, other).items():
            with models_asked(models) as asked:
                body = {"model": adapter.MODEL, "messages": messages}
                assert client.post(CHAT, json=body).status_code == 200, kind
            assert [model for _, model in asked] == [name], kind
    # Without a text there is still an answer.
    with models_asked(models) as asked:
        body = {"model": adapter.MODEL, "messages": [user([IMAGE])]}
        assert client.post(CHAT, json=body).status_code == 200
    assert [model in PRICES for _, model in asked] == [True]


def test_other_apis_are_routed_by_their_texts(client, sdk, models, tuned):
    with openai.OpenAI(**sdk) as of_openai:
        for name, text in tuned.one_for_each.items():
            with models_asked(models) as asked:
                of_openai.completions.create(model=adapter.MODEL, prompt=text)
                of_openai.responses.create(model=adapter.MODEL, input=text)
                of_openai.responses.create(
                    model=adapter.MODEL,
                    input=[user([{"type": "input_text", "text": text}])],
                )
                message = {"max_tokens": 50, "messages": [user([{"type": "text", "text": text}])]}
                response = client.post("/v1/messages", json={"model": adapter.MODEL, **message})
                assert response.status_code == 200
            assert asked == [(text, name)] * 4


def test_a_model_that_is_named_is_asked(client, models, tuned):
    for text, chosen in tuned.choices.items():
        for name in PRICES:
            if name != chosen:
                with models_asked(models) as asked:
                    assert client.post(CHAT, json=chat(text, name)).status_code == 200
                assert asked == [(text, name)]
    with models_asked(models) as asked:
        for name in ("nobody", adapter.REFUSED_MODEL):
            assert client.post(CHAT, json=chat("Hello", name)).status_code == 400
    assert asked == []


def test_it_goes_on_without_the_folder_of_its_router(proxy, client, models, tuned):
    shutil.rmtree(proxy.folder / ROUTER)
    with models_asked(models) as asked:
        for text in tuned.choices:
            assert client.post(CHAT, json=chat(text, adapter.MODEL)).status_code == 200
    assert asked == list(tuned.choices.items())


def test_without_a_router_it_does_not_start(proxies):
    _, without = proxies
    without.wait()
    assert without.process.wait(PATIENCE) > 0
    assert without.address is None

"""One request: what is sent, and what never is shown."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fake_endpoint import FakeEndpoint
from mild.endpoints.asking import Asker, redactor
from mild.endpoints.expert import Expert
from mild.endpoints.replies import NoAnswerError
from mild.endpoints.secrets import Secret

pytest.importorskip("aiohttp")


def ask(expert, secret=None, prompt="Hi"):
    async def story():
        async with Asker(with_secret(expert, secret)) as asker:
            return await asker.ask(prompt)

    return asyncio.run(story())


def expert(base_url, **settings):
    return Expert(name="small", base_url=base_url, model="tiny", **settings)


def with_secret(expert, secret):
    return expert if secret is None else replace(expert, secret=Secret(secret, "a test"))


def test_the_body_is_the_request_and_nothing_else():
    with FakeEndpoint(answer=lambda prompt: "Hello") as endpoint:
        small = expert(endpoint.base_url, system="Be kind.", temperature=0.5, extra={"seed": 3})
        assert ask(small).text == "Hello"
    (request,) = endpoint.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["body"] == small.request("Hi")["body"]
    assert "Authorization" not in request["headers"]


def test_the_key_goes_into_the_header_that_is_named():
    with FakeEndpoint() as endpoint:
        ask(expert(endpoint.base_url), "secret")
        ask(expert(endpoint.base_url, api_key_header="api-key"), "secret")
    first, second = (request["headers"] for request in endpoint.requests)
    assert first["Authorization"] == "Bearer secret"
    assert second["api-key"] == "secret"
    assert "Authorization" not in second


def test_a_limit_may_have_another_name():
    with FakeEndpoint() as endpoint:
        ask(expert(endpoint.base_url, max_tokens=9, max_tokens_field="max_completion_tokens"))
    body = endpoint.requests[0]["body"]
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


def test_a_redirect_is_not_followed():
    with FakeEndpoint() as other:
        away = [("status", 302, {"Location": other.base_url}, "moved")]
        with FakeEndpoint(script=away) as endpoint:
            with pytest.raises(NoAnswerError, match="HTTP 302: moved") as caught:
                ask(expert(endpoint.base_url), "secret")
            assert caught.value.closed
        assert other.requests == []


def test_proxies_are_not_used_on_the_way_to_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with FakeEndpoint() as endpoint:
        assert ask(expert(endpoint.base_url)).text == "42"


@pytest.mark.parametrize("step", ["close", "cut", "hang"])
def test_what_broke_after_it_was_sent_may_have_been_paid_for(step):
    with FakeEndpoint(script=[step]) as endpoint, pytest.raises(NoAnswerError) as caught:
        ask(expert(endpoint.base_url, timeout_s=0.3))
    assert caught.value.paid
    assert caught.value.again


def test_no_connection_costs_nothing():
    with FakeEndpoint() as endpoint:
        pass
    with pytest.raises(NoAnswerError, match="no connection") as caught:
        ask(expert(endpoint.base_url))
    assert caught.value.again
    assert not caught.value.paid


def test_a_reply_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("mild.endpoints.asking.MOST_BYTES", 1000)
    refused = pytest.raises(NoAnswerError, match="longer than 1,000 bytes")
    with FakeEndpoint(answer=lambda prompt: "x" * 5000) as endpoint, refused as caught:
        ask(expert(endpoint.base_url))
    assert caught.value.paid
    assert not caught.value.again


def test_secrets_are_taken_out_in_every_form():
    redact = redactor(["abcd", "abcdefgh", 'quo"te', "ab"])
    assert redact("abcdefgh abcd ab") == "[secret] [secret] ab"
    assert redact('quo"te quo\\"te') == "[secret] [secret]"

"""One request of collect: what is sent, and what a failure means."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fake_endpoint import FakeEndpoint
from mild_gateway.collect.collector import ask_pending
from mild_gateway.collect.ledger import Ledger
from mild_gateway.collect.questions import Question
from mild_gateway.collect.runs import plan_runs
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.secrets import Secret

pytest.importorskip("aiohttp")


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """The run of an expert that is asked one question, once."""
    monkeypatch.setattr("mild_gateway.collect.collector.MAX_ATTEMPTS", 1)

    def run(base_url, secret=None, **settings):
        expert = Expert("small", base_url, "tiny", **settings)
        if secret is not None:
            expert = replace(expert, secret=Secret(secret, "a test"))
        question = Question("Hi", ("x",), "contains")
        with Ledger(tmp_path / "l.sqlite") as ledger:
            (found,) = plan_runs([question], [expert], ledger)
            asyncio.run(ask_pending([found], [question], ledger))
        return found

    return run


def test_the_body_is_the_request_and_nothing_else(ask):
    settings = {"system": "Be kind.", "extra": {"temperature": 0.5, "seed": 3}}
    with FakeEndpoint(answer=lambda prompt: "Hello") as endpoint:
        run = ask(endpoint.base_url, **settings)
    assert run.answers[run.keys[0]].response == "Hello"
    (request,) = endpoint.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["body"] == run.expert.request("Hi")["body"]
    assert "Authorization" not in request["headers"]


@pytest.mark.parametrize("header", ["Authorization", "api-key"])
def test_the_key_goes_into_the_header_that_is_named(ask, header):
    with FakeEndpoint() as endpoint:
        ask(endpoint.base_url, "secret", api_key_header=header)
    (request,) = endpoint.requests
    assert request["headers"][header] == ("Bearer " * (header == "Authorization")) + "secret"
    assert len([1 for value in request["headers"].values() if "secret" in value]) == 1


def test_a_limit_may_have_another_name(ask):
    with FakeEndpoint() as endpoint:
        ask(endpoint.base_url, max_tokens=9, max_tokens_field="max_completion_tokens")
    body = endpoint.requests[0]["body"]
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


def test_a_redirect_is_not_followed(ask):
    with FakeEndpoint() as other:
        away = [("status", 302, {"Location": other.base_url}, "moved")]
        with FakeEndpoint(script=away) as endpoint:
            assert ask(endpoint.base_url, "secret").stopped == "HTTP 302: moved"
        assert other.requests == []


def test_proxies_are_used_but_not_on_the_way_to_this_machine(ask, monkeypatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with FakeEndpoint() as proxy, FakeEndpoint() as endpoint:
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        assert ask(endpoint.base_url).answers
        assert proxy.requests == []
        assert ask("http://expert.invalid/v1").answers
        (request,) = proxy.requests
    assert request["path"] == "http://expert.invalid/v1/chat/completions"


@pytest.mark.parametrize("step", ["close", "cut", "hang"])
def test_what_broke_after_it_was_sent_may_have_been_paid_for(ask, step):
    with FakeEndpoint(script=[step]) as endpoint:
        run = ask(endpoint.base_url, total_seconds=0.3, price_per_query=0.5)
    assert (run.lost, run.stopped) == (0.5, None)


def test_no_connection_costs_nothing(ask):
    with FakeEndpoint() as endpoint:
        pass
    run = ask(endpoint.base_url, price_per_query=0.5)
    assert (run.lost, run.stopped) == (0.0, None)
    assert next(iter(run.reasons)).startswith("no connection: ")


def test_a_reply_without_end_is_not_read_to_its_end_nor_asked_for_again(ask, monkeypatch):
    monkeypatch.setattr("mild_gateway.collect.collector.MAX_REPLY_BYTES", 1000)
    with FakeEndpoint(answer=lambda prompt: "x" * 5000) as endpoint:
        monkeypatch.setattr("mild_gateway.collect.collector.MAX_ATTEMPTS", 3)
        run = ask(endpoint.base_url, price_per_query=0.5)
    assert run.reasons == {"an answer of more than 1,000 bytes": 1}
    assert run.lost == 0.5

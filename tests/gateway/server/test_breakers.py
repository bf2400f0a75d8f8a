"""What opens the breaker of an expert, and what its server errors become."""

import asyncio
import json

import pytest

from gateway.fake_upstream import FakeUpstream
from gateway.gateway_cases import ask, chat, expert, gateway, reply, rows, solo
from mild.endpoints.expert import BreakerSettings
from mild.endpoints.secrets import Secret
from mild.gateway.access import Access, AccessStore
from mild.gateway.access.managing import add_key, open_store
from mild.gateway.config import AccessSettings, Settings

BREAKER = BreakerSettings(failures=3, window_seconds=30, open_seconds=20)
SECRET = "sk-0123456789abcdef"


def state_after(requests, fault="500", keys=None):
    """State of the breaker after the requests, (path, document) each; an expert that only fails."""

    async def run():
        async with FakeUpstream(script=[fault] * 20, retry_after=None) as up:
            experts = [expert("one", up, breaker=BREAKER, retries=0, first_byte_seconds=0.1)]
            async with gateway(experts, **(keys[0] if keys else {})) as g:
                for step, (path, document) in enumerate(requests):
                    more = {"authorization": keys[1][step % len(keys[1])]} if keys else {}
                    await ask(g.port, document, path, **more)
                client = g.app.clients["one"]
                return client.state(), client.is_free("/completions")

    return asyncio.run(run())


CHAT = "/v1/chat/completions"


def test_one_client_cannot_shut_an_expert_with_a_request_that_it_fails_on():
    assert state_after([(CHAT, chat("an image"))] * 10) == ("closed", True)


def test_server_errors_on_three_different_bodies_open_the_path_alone():
    assert state_after([(CHAT, chat(f"text {k}")) for k in range(3)]) == ("open", True)
    legacy = [("/v1/completions", {"model": "mild", "prompt": f"text {k}"}) for k in range(3)]
    assert state_after(legacy) == ("open", False)


@pytest.mark.parametrize("fault", ["reset", "hang"])
def test_connection_failures_and_time_outs_always_count(fault):
    assert state_after([(CHAT, chat())] * 3, fault)[0] == "open"


@pytest.mark.parametrize("fault", ["404", "429", "400"])
def test_what_says_nothing_about_the_experts_health_never_counts(fault):
    assert state_after([(CHAT, chat(f"text {k}")) for k in range(6)], fault)[0] == "closed"


@pytest.mark.parametrize(("count", "state"), [(1, "closed"), (2, "open")])
def test_the_same_failure_under_two_keys_opens(tmp_path, count, state):
    path = str(tmp_path / "mild.sqlite")
    with open_store(None, path) as store:
        texts = [add_key(store, f"key-{k}") for k in range(count)]
    settings = Settings(store=path, access=AccessSettings(require_key=True))
    access = Access(settings, AccessStore(path))
    keys = ({"access": access}, [f"Bearer {text}" for text in texts])
    assert state_after([(CHAT, chat())] * 4, keys=keys)[0] == state


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps({"error": {"message": f"Unsupported image ({SECRET})"}}), "Unsupported image"),
        (json.dumps({"detail": "tools are not supported"}), "tools are not supported"),
        (f"<b>this model does not support {SECRET}", "<b>this model does not support"),
    ],
)
async def test_a_server_error_that_says_unsupported_is_the_clients(content, reason, streamed):
    async with FakeUpstream(script=[reply(500, content)]) as up, FakeUpstream() as two:
        one = expert("one", up, secret=Secret(SECRET, "a test"), price_in=1.0)
        async with gateway([one, expert("two", two)]) as g:
            found, (row,), asked = (
                await ask(g.port, chat(stream=streamed)),
                await rows(g),
                two.asked,
            )
    assert (found.status, found.headers["content-type"]) == (400, "application/json")
    error = json.loads(found.body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "expert_unsupported")
    assert reason in error["message"]
    assert SECRET not in found.body.decode()
    assert (row.outcome, row.status, row.price, asked) == ("failed", 400, 0.0, 0)


LIMITS = {"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-tokens": "6ms"}


@pytest.mark.parametrize("status", [200, 400])
async def test_rate_limit_headers_are_passed_on(status):
    content = b'{"choices": [{}]}' if status == 200 else b'{"error": {"message": "no"}}'
    more = {**LIMITS, "retry-after": "7", "server": "x", "x-ratelimit-key": SECRET}
    async with FakeUpstream(script=[reply(status, content, **more)]) as up:
        secret = Secret(SECRET, "a test")
        async with gateway([expert("one", up, secret=secret)]) as g:
            found = await ask(g.port, chat())
    assert found.status == status
    assert found.headers.items() >= {**LIMITS, "retry-after": "7"}.items()
    assert found.headers["x-ratelimit-key"] == "[secret]"
    assert "server" not in found.headers


async def test_a_refusal_for_the_experts_rate_says_its_limits():
    more = {**LIMITS, "retry-after": "30"}
    script = [reply(429, b"{}", **more)]
    async with solo(FakeUpstream(script=script)) as (_, g):
        found = await ask(g.port, chat())
    assert found.status == 429
    assert found.headers.items() >= more.items()

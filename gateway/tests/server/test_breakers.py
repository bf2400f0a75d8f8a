"""What opens the breaker of an expert, and what its server errors become."""

import asyncio
import contextlib
import json
import socket

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import (
    Client,
    ask,
    chat,
    expert,
    gateway,
    priced_router,
    reply,
    request_bytes,
    rows,
    solo,
)
from mild_gateway.access import Access
from mild_gateway.access.managing import add_key, open_store
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.experts.expert import BreakerSettings
from mild_gateway.experts.secrets import Secret

BREAKER = BreakerSettings(failures=3, window_seconds=30, open_seconds=20)
SECRET = "sk-0123456789abcdef"


CHAT = "/v1/chat/completions"


@contextlib.asynccontextmanager
async def keyed(tmp_path, upstream, keys=2, **more):
    """A gateway with one expert and so many keys, and a function that asks it with one of them."""
    path = str(tmp_path / "mild.sqlite")
    with open_store(None, path) as store:
        texts = [add_key(store, f"key-{k}") for k in range(keys)]
    settings = Settings(store=path, access=AccessSettings(require_key=True))
    one = {"retries": 0, "first_byte_seconds": 0.1, **more}
    async with gateway([expert("one", upstream, **one)], access=Access(settings)) as g:

        async def ask_with(key, document):
            found = await ask(g.port, document, authorization=f"Bearer {texts[key]}")
            return found.status, error_code(found)

        yield g, ask_with


def error_code(found):
    return None if found.status == 200 else json.loads(found.body)["error"]["code"]


REFUSED = (503, "experts_unavailable")


@pytest.mark.parametrize(
    ("fault", "more"), [("500", {}), ("hang", {}), ("reset", {}), ("cut", {"stream": True})]
)
async def test_what_a_key_provokes_closes_the_expert_for_that_key_only(
    tmp_path, fault, more, caplog
):
    """Six requests with different texts, each of which makes the expert fail."""
    async with FakeUpstream(script=[fault] * 6) as up, keyed(tmp_path, up) as (g, ask_with):
        for k in range(6):
            await ask_with(0, chat(f"text {k}", **more))
        asked = up.asked
        assert await ask_with(0, chat()) == REFUSED
        assert up.asked == asked
        up.script.clear()
        assert (await ask_with(1, chat()))[0] == 200
        health = json.loads((await ask(g.port, None, "/health", "GET")).body)
    assert health["experts"] == {"one": "closed"}
    assert health["open_keys"] == {"one": 1}
    # One line for the operator, with the names and without the texts.
    lines = [one.getMessage() for one in caplog.records if one.name == "mild_gateway"]
    (line,) = [one for one in lines if "for the key" in one]
    assert "expert one" in line
    assert "key-0" in line
    assert "text" not in line


@pytest.mark.parametrize(
    ("failing", "answered", "refused"), [(2, 0, True), (2, 1, True), (2, 2, False), (1, 2, False)]
)
async def test_keys_that_are_most_close_the_expert_for_everybody(
    tmp_path, failing, answered, refused
):
    keys = failing + answered
    async with FakeUpstream() as up, keyed(tmp_path, up, keys + 1) as (g, ask_with):
        for key in range(failing, keys):
            assert (await ask_with(key, chat()))[0] == 200
        up.script = ["500"] * 6
        for k in range(6):
            await ask_with(k % failing, chat())
        up.script = []
        found, state = await ask_with(keys, chat()), g.app.clients["one"].state()
    assert found == (REFUSED if refused else (200, None))
    assert state == ("open" if refused else "closed")


async def test_a_refused_connection_counts_for_everybody(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        async with keyed(tmp_path, address) as (g, ask_with):
            for k in range(5):
                assert await ask_with(0, chat(f"text {k}")) == (502, "expert_connect")
            assert await ask_with(1, chat()) == REFUSED
            assert g.app.clients["one"].state() == "open"


def state_after(requests, fault="500"):
    """State of the breaker after the requests, (path, document) each, without a key; all fail."""

    async def run():
        async with FakeUpstream(script=[fault] * 20, retry_after=None) as up:
            experts = [expert("one", up, breaker=BREAKER, retries=0, first_byte_seconds=0.1)]
            async with gateway(experts) as g:
                for path, document in requests:
                    await ask(g.port, document, path)
                client = g.app.clients["one"]
                return client.state(), client.is_free("/completions")

    return asyncio.run(run())


def test_without_keys_the_only_caller_is_everybody_and_a_path_opens_for_itself():
    assert state_after([(CHAT, chat())] * 3) == ("open", True)
    legacy = [("/v1/completions", {"model": "mild", "prompt": f"text {k}"}) for k in range(3)]
    assert state_after(legacy) == ("open", False)


@pytest.mark.parametrize("fault", ["404", "429", "400"])
def test_what_says_nothing_about_the_experts_health_never_counts(fault):
    assert state_after([(CHAT, chat(f"text {k}")) for k in range(6)], fault)[0] == "closed"


async def test_a_long_stream_as_a_probe_closes_the_breaker_with_its_first_event():
    now = [100.0]
    one = {"breaker": BreakerSettings(failures=1, open_seconds=20), "retries": 0}
    parts = {"one": one, "clock": lambda: now[0]}
    async with solo(FakeUpstream(script=["reset"]), **parts) as (up, g), Client(g.port) as client:
        assert (await ask(g.port, chat())).status == 502
        now[0] += 21
        up.delay = 0.2
        client.send(request_bytes(chat(stream=True)))
        while g.app.clients["one"].state() != "closed":
            await asyncio.sleep(0.005)
        up.delay = 0.0
        assert (await ask(g.port, chat())).status == 200
        assert not any(row.streamed for row in g.ledger.records)  # the stream still runs
        assert (await client.answer()).whole


async def test_a_pause_is_the_experts_short_shown_and_ended_by_a_reload():
    """A day of ``Retry-After``: the limited request gets 429, others 503, and both say why."""
    script = [reply(429, b"{}", retry_after="86400")]
    async with solo(FakeUpstream(script=script)) as (up, g):
        limited, other = await ask(g.port, chat()), await ask(g.port, chat("another"))
        health = json.loads((await ask(g.port, None, "/health", "GET")).body)
        g.app._publish()
        shown = g.app.metrics.value("mild_cool_down_seconds", expert="one")
        published = g.ledger.published["cool_downs"]
        assert up.asked == 1
        await g.app.reload(lambda: priced_router(("one",), (0.1,), (0.1,)))
        assert (await ask(g.port, chat())).status == 200
        g.app._publish()
        assert g.app.metrics.value("mild_cool_down_seconds", expert="one") == 0
    assert (limited.status, error_code(limited)) == (429, "expert_rate")
    assert (other.status, error_code(other)) == (503, "experts_cooling_down")
    assert 25 <= int(other.headers["retry-after"]) <= 30
    for seconds in (health["cool_downs"]["one"], shown, published["one"]):
        assert 25 < seconds <= 30


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

"""Experts that fail are asked last, each key for itself, and what their server errors become."""

import asyncio
import contextlib
import json
import re
import socket

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import (
    ask,
    chat,
    endpoint_of,
    expert,
    gateway,
    reply,
    rows,
    solo,
)
from mild_gateway.access import Access
from mild_gateway.access.managing import add_key, open_store
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.secrets import Secret

SECRET = "sk-0123456789abcdef"


@contextlib.asynccontextmanager
async def keyed(tmp_path, one, two, keys=2, **parts):
    """A gateway with two experts and so many keys: it, and who answers a key, the status without one."""
    path = str(tmp_path / "mild.sqlite")
    with open_store(None, path) as store:
        secrets = [add_key(store, f"key-{k}") for k in range(keys)]
    settings = Settings(store=path, access=AccessSettings(require_key=True))
    experts = [expert("one", one), expert("two", two)]
    async with gateway(experts, access=Access(settings), **parts) as g:

        async def answers(key, document):
            found = await ask(g.port, document, authorization=f"Bearer {secrets[key]}")
            return found.headers.get("x-mild-expert", found.status)

        yield g, answers


@pytest.mark.parametrize(
    ("fault", "more"),
    [("500", {}), ("hang", {}), ("reset", {}), ("garbage", {}), ("cut", {"stream": True})],
)
async def test_what_a_key_provokes_reorders_the_experts_of_that_key_only(
    tmp_path, fault, more, caplog, monkeypatch
):
    monkeypatch.setattr("mild_gateway.server.calls.RETRIES", 0)
    async with FakeUpstream(script=[fault] * 3) as one, FakeUpstream() as two:
        async with keyed(tmp_path, one, two) as (g, answers):
            if fault == "hang":
                monkeypatch.setattr(g.app.clients["one"].http, "post", too_slow)
            for k in range(3):
                await answers(0, chat(f"text {k}", **more))
            monkeypatch.undo()
            one.script.clear()
            asked = one.asked
            assert await answers(0, chat()) == "two"
            assert one.asked == asked
            assert await answers(1, chat()) == "one"
            assert await answers(0, chat()) == "two"
            health = json.loads((await ask(g.port, None, "/health", "GET")).body)
            assert health["experts"] == {"one": "ok", "two": "ok"}
            # Asked by its name it answers, and is in its place again.
            assert await answers(0, chat(model="one")) == "one"
            assert await answers(0, chat()) == "one"
    # One line for the operator, with the names and without the texts.
    lines = [record.getMessage() for record in caplog.records if record.name == "mild_gateway"]
    (line,) = [line for line in lines if "is asked last" in line]
    assert "expert one" in line
    assert "key-0" in line
    assert "text" not in line


async def too_slow(path, body, headers=None, **kind):
    raise ExpertError("timeout", "a test")


async def test_rate_limits_of_one_key_do_not_reorder_the_experts_of_another(tmp_path):
    limited = reply(429, b"{}", retry_after="30")
    async with FakeUpstream(script=[limited] * 3) as one, FakeUpstream() as two:
        async with keyed(tmp_path, one, two) as (_, answers):
            for _ in range(3):
                assert await answers(0, chat()) == "two"
            assert one.asked == 1
            # Of the other key's requests, every one goes to the expert that the router chose.
            one.script.clear()
            found = [await answers(1, chat(f"text {k}")) for k in range(64)]
    assert found == ["one"] * 64


async def test_a_rate_limit_reorders_for_as_long_as_the_expert_says_and_30_seconds_at_most(
    tmp_path,
):
    now = [100.0]
    script = [reply(429, b"{}", retry_after="5"), reply(429, b"{}", retry_after="86400")]
    async with FakeUpstream(script=script) as one, FakeUpstream() as two:
        async with keyed(tmp_path, one, two, clock=lambda: now[0]) as (_, answers):
            found = []
            for now[0] in (100.0, 104.9, 105.1, 134.9, 135.2):
                found.append(await answers(0, chat()))
            assert found == ["two", "two", "two", "two", "one"]
            assert one.asked == 3


async def test_a_rate_limit_without_a_time_is_not_remembered(tmp_path):
    async with FakeUpstream(script=[reply(429, b"{}")] * 3) as one, FakeUpstream() as two:
        async with keyed(tmp_path, one, two) as (_, answers):
            found = [await answers(0, chat()) for _ in range(4)]
    assert found == ["two", "two", "two", "one"]


async def test_a_refused_connection_counts_for_everybody(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        async with FakeUpstream() as two, keyed(tmp_path, address, two) as (g, answers):
            for k in range(3):
                assert await answers(0, chat(f"text {k}")) == "two"
            assert g.app.asked_last() == {"one": True, "two": False}
            before = [row.attempts for row in await rows(g, 3)]
            assert await answers(1, chat()) == "two"
            # By its name it is asked, and the client is told what is wrong.
            assert await answers(1, chat(model="one")) == 502
            assert [row.attempts for row in await rows(g, 5)] == [*before, 1, 1] == [2, 2, 2, 1, 1]
            g.app._publish()
            assert g.app.metrics.value("mild_expert_asked_last", expert="one") == 1


async def test_an_only_expert_is_asked_whatever_happened():
    async with solo(FakeUpstream(script=["500"] * 6), routing={"max_attempts": 1}) as (up, g):
        found = [(await ask(g.port, chat())).status for _ in range(8)]
        ready = await ask(g.port, None, "/health/ready", "GET")
    assert found == [502] * 6 + [200] * 2
    assert ready.status == 200
    assert up.asked == 8


@pytest.mark.parametrize("fault", ["404", "401", "400"])
async def test_what_says_nothing_about_the_experts_health_never_counts(fault):
    async with FakeUpstream(script=[fault] * 6) as one, FakeUpstream() as two:
        async with gateway([expert("one", one), expert("two", two)]) as g:
            for k in range(6):
                await ask(g.port, chat(f"text {k}"))
            found = await ask(g.port, chat())
    assert found.headers["x-mild-expert"] == "one"


class LimitedExpert:
    """Answers ``per_second`` requests of each second, by a clock of its own, and others with 429."""

    def __init__(self, per_second, **headers):
        self.per_second = per_second
        self.headers = headers
        self.now = 0.0
        self.in_second = {}
        self.served = 0

    async def serve(self, reader, writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
            await reader.readexactly(size)
            second = int(self.now)
            count = self.in_second[second] = self.in_second.get(second, 0) + 1
            if count > self.per_second:
                writer.write(reply(429, b"{}", **self.headers))
            else:
                self.served += 1
                writer.write(reply(200, b'{"choices": [{"message": {"content": "4"}}]}'))
            await writer.drain()

    async def load(self, port, path):
        """Send 60 requests in each of five seconds of this clock; how many were answered with 200."""
        answered = 0
        for second in range(5):
            for tenth in range(10):
                self.now = second + tenth / 10
                asked = [ask(port, chat(f"text {second} {k}"), path) for k in range(6)]
                answers = await asyncio.gather(*asked)
                answered += sum(answer.status == 200 for answer in answers)
        return answered


@pytest.mark.parametrize("headers", [{}, {"retry_after": "1"}])
async def test_an_expert_that_limits_its_rate_serves_as_much_as_without_a_gateway(headers):
    direct = LimitedExpert(40, **headers)
    async with endpoint_of(direct.serve) as url:
        port = int(url.split(":")[2].split("/")[0])
        served_directly = await direct.load(port, "/v1/chat/completions")
    limited = LimitedExpert(40, **headers)
    async with endpoint_of(limited.serve) as url:
        parts = {"clock": lambda: limited.now}
        async with gateway([expert("one", url)], **parts) as g:
            served = await limited.load(g.port, "/v1/chat/completions")
    assert served_directly == 200
    assert served >= 0.9 * served_directly


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
    more = {**LIMITS, "retry-after": "7", "server": "x"}
    async with FakeUpstream(script=[reply(status, content, **more)]) as up:
        async with gateway([expert("one", up)]) as g:
            found = await ask(g.port, chat())
    assert found.status == status
    assert found.headers.items() >= {**LIMITS, "retry-after": "7"}.items()
    assert "server" not in found.headers


async def test_a_refusal_for_the_experts_rate_says_its_limits():
    more = {**LIMITS, "retry-after": "30"}
    script = [reply(429, b"{}", **more)]
    async with solo(FakeUpstream(script=script)) as (_, g):
        found = await ask(g.port, chat())
    assert found.status == 429
    assert found.headers.items() >= more.items()

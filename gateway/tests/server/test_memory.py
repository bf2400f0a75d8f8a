"""What a request leaves behind in memory."""

import asyncio
import gc
import weakref

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, expert, gateway, solo
from mild_gateway.server.completion_request import CompletionRequest
from waiting import until


@pytest.mark.parametrize(
    "document",
    [chat(), chat(stream=True), chat(model="one"), chat(model="nobody"), b"{"],
    ids=["plain", "stream", "named", "unknown", "broken"],
)
def test_a_request_leaves_nothing_to_the_collector(document, monkeypatch):
    """Collecting takes time from other requests; what is freed at once needs none."""
    # What is done once a second is no part of a request, however long the machine takes for those.
    monkeypatch.setattr("mild_gateway.access.writer.REFRESH_SECONDS", 3600.0)

    async def run():
        async with (
            FakeUpstream(keep_bodies=False) as up,
            gateway([expert("one", up), expert("two", up)]) as g,
            Client(g.port) as client,
        ):
            for _ in range(3):
                await client.ask(document)
            g.ledger.records.clear()
            gc.collect()
            gc.disable()
            try:
                for _ in range(20):
                    await client.ask(document)
                g.ledger.records.clear()
                return gc.collect()
            finally:
                gc.enable()

    # Less than one thing for each request: the loop of the test has a few of its own.
    assert asyncio.run(run()) < 20


RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
TURNS = chat()["messages"]


@pytest.mark.parametrize(
    ("path", "document", "step"),
    [
        (RESPONSES, {"model": "mild", "input": "x", "tools": ["no tool"]}, "ok"),
        (RESPONSES, {"model": "mild", "input": "x", "vendor": 1}, "ok"),
        (MESSAGES, {"model": "mild", "max_tokens": 5, "messages": TURNS, "top_k": 5}, "ok"),
        (RESPONSES, {"model": "mild", "input": "x", "stream": True}, "error_middle"),
        ("/v1/chat/completions", chat(stream=True), "error_middle"),
        ("/v1/chat/completions", chat(stream=True), "cut"),
        ("/v1/chat/completions", chat(), "500"),
    ],
)
def test_a_request_that_failed_does_not_wait_for_the_collector(path, document, step, monkeypatch):
    """Its body may have megabytes, and the collector counts objects, not bytes."""
    alive = weakref.WeakSet()
    start = CompletionRequest.__init__

    def note(request, *arguments):
        alive.add(request)
        start(request, *arguments)

    monkeypatch.setattr(CompletionRequest, "__init__", note)

    async def run():
        async with solo(routing={"max_attempts": 1}) as (up, g):
            gc.disable()
            try:
                for _ in range(3):
                    up.script = [step]
                    await ask(g.port, document, path)
                g.ledger.records.clear()
                await until(lambda: not alive)
            finally:
                gc.enable()

    asyncio.run(run())

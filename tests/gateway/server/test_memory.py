"""What a request leaves behind in memory."""

import asyncio
import gc

import pytest

from gateway.fake_upstream import FakeUpstream
from gateway.gateway_cases import Client, chat, expert, gateway


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "document",
    [chat(), chat(stream=True), chat(model="one"), chat(model="nobody"), b"{"],
    ids=["plain", "stream", "named", "unknown", "broken"],
)
def test_a_request_leaves_nothing_to_the_collector(document, monkeypatch):
    """Collecting takes time from other requests; what is freed at once needs none."""
    # What is done once a second is no part of a request, however long the machine takes for those.
    monkeypatch.setattr("mild.gateway.access.writer.REFRESH_SECONDS", 3600.0)

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

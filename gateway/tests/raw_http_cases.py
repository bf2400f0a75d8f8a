"""Raw bytes to a gateway on loopback, and what comes back."""

from __future__ import annotations

import asyncio
import json

from fake_upstream import FakeUpstream
from gateway_cases import Client, chat, expert, gateway
from waiting import PATIENCE

BODY = json.dumps(chat()).encode()
LENGTH = b"content-length: %d\r\n" % len(BODY)
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
# A limit that a slow client meets soon.
SLOW = {"body_seconds": 0.3}


def exchange(data, limits=None):
    """Send bytes, and read until the gateway closes: what it said, expert calls, rows."""

    async def run():
        async with FakeUpstream() as up, gateway([expert("one", up)], limits=limits or {}) as g:
            async with Client(g.port) as client:
                client.send(data)
                said = await asyncio.wait_for(client.reader.read(), PATIENCE)
            return said, up.asked, list(g.ledger.records)

    return asyncio.run(run())

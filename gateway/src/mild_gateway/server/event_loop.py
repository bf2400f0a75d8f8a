"""The event loop that uvicorn runs: uvloop's where it is installed, with a limit on TLS handshakes."""

from __future__ import annotations

import asyncio
from typing import Any

try:
    from uvloop import Loop as FastLoop
except ImportError:
    # Not made for Windows.
    FastLoop = asyncio.SelectorEventLoop  # type: ignore[misc, assignment]

# A client that does not finish its TLS handshake within so long is disconnected; Python waits 60 s.
HANDSHAKE_SECONDS = 10.0


class ServerLoop(FastLoop):
    """An event loop whose servers wait ``HANDSHAKE_SECONDS`` for a TLS handshake."""

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HANDSHAKE_SECONDS)
        return await super().create_server(*arguments, **options)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """What uvicorn calls for the loop of a process."""
    return ServerLoop()

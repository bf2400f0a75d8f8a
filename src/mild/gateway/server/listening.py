"""The server of one process: its connections, their clocks, and a clean end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from mild.gateway.config import LimitSettings
from mild.gateway.server.wire import Wire

__all__ = ["Listener", "bind"]

# Seconds for requests that were broken off at the end to give back what they hold.
LAST_SECONDS = 2.0


def bind(host: str, port: int) -> socket.socket:
    """A listening socket that worker processes can inherit."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host.strip("[]"), port))
        server.listen(2048)
    except OSError:
        server.close()
        raise
    server.setblocking(False)
    server.set_inheritable(True)
    return server


class Listener:
    """Accepts connections on a socket and serves an ASGI application on them.

    Parameters
    ----------
    app : ASGI application
    limits : on what clients may send and how slowly
    refused : told the status of what was refused before the application saw it

    Attributes
    ----------
    draining : whether no new connections are taken
    wires : open connections
    """

    def __init__(
        self, app: Any, limits: LimitSettings, refused: Callable[[int], None] = lambda status: None
    ) -> None:
        self.app = app
        self.limits = limits
        self.draining = False
        self.wires: set[Wire] = set()
        self._refused = refused
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    def refused(self, status: int) -> None:
        """Count a refusal on the wire."""
        self._refused(status)

    async def start(self, sock: socket.socket) -> None:
        """Take connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Wire(self), sock=sock, backlog=2048)
        self._sweeper = loop.create_task(self._sweep())

    async def stop(self) -> int:
        """Take no new connections, let what is being served end, and break off what takes too long.

        Returns
        -------
        int, how many requests were broken off
        """
        loop = asyncio.get_running_loop()
        self.draining = True
        if self._server is not None:
            self._server.close()
        for wire in list(self.wires):
            wire.drain()
        end = loop.time() + self.limits.drain_seconds
        while self.wires and loop.time() < end:
            await asyncio.sleep(0.01)
        late = [wire.task for wire in self.wires if wire.task is not None]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=LAST_SECONDS)
        for wire in list(self.wires):
            wire.cut()
        if self._sweeper is not None:
            self._sweeper.cancel()
        return len(late)

    async def _sweep(self) -> None:
        """Cut connections whose time is over. One look at all of them is cheaper than a timer for each."""
        loop = asyncio.get_running_loop()
        pace = max(0.02, min(1.0, self.limits.header_seconds / 4, self.limits.body_seconds / 4))
        while True:
            await asyncio.sleep(pace)
            self._cut_late(loop.time())

    def _cut_late(self, now: float) -> None:
        for wire in [wire for wire in self.wires if wire.deadline is not None]:
            if wire.deadline is not None and now > wire.deadline:
                wire.cut()

"""One HTTP/1.1 connection to an expert: one request at a time, parsed by httptools.

A client of our own because the added time counts: on the same loop a relay through it serves more than
twice as many requests as one through aiohttp (``benchmarks/gateway.py`` measures both).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import httptools

from mild.gateway.upstream.faults import Fault

__all__ = ["Connection"]

# Bytes that may wait for their reader before the expert is slowed down.
WAITING = 262_144
# Of the head of an answer.
MOST_HEADERS = 200
MOST_HEADER_BYTES = 65_536


class Connection(asyncio.Protocol):
    """Sends a request, gives its answer piece by piece, and says when it can be used again.

    Attributes
    ----------
    status, headers : of the answer, once ``send`` has returned; names in lower case
    complete : whether the answer was received to its end
    sent : requests sent so far
    touched : whether any byte of the answer came
    """

    def __init__(self, lost: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._fault: Fault | None = None
        self._idle_seconds = 60.0
        self._head = False
        self._head_bytes = 0
        self._until_close = False
        self._busy = False
        self._keep = False
        self._ended: Callable[[Connection], None] | None = None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self.touched = False
        self.sent = 0

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        transport = self._transport
        return (
            self.complete
            and self._fault is None
            and self._keep
            # An answer that nobody took to its end: nothing is read from the expert any more.
            and not self._paused
            and transport is not None
            and not transport.is_closing()
        )

    async def send(self, request: bytes, first_byte_seconds: float, idle_seconds: float) -> None:
        """Send a request and wait for the head of its answer."""
        transport = self._transport
        assert transport is not None
        self.status, self.headers = 0, {}
        self._head_bytes = 0
        self.complete = self.touched = self._head = self._until_close = False
        self._pieces.clear()
        self._size = 0
        self._idle_seconds = idle_seconds
        self._busy = True
        self.sent += 1
        self._arm(first_byte_seconds)
        transport.write(request)
        while not self._head:
            await self._wait()

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end."""
        while not self._pieces:
            if self.complete:
                return b""
            await self._wait()
        piece = self._pieces.popleft() if len(self._pieces) == 1 else self._joined()
        self._size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
            self._arm(self._idle_seconds)
        return piece

    def rest(self) -> None:
        """Nothing more is expected: stop the clock."""
        self._busy = False
        self._deadline = None
        self._pieces.clear()

    def finish(self, ended: Callable[[Connection], None], seconds: float) -> None:
        """Nobody reads any more: call ``ended`` when the last bytes are there, or break off."""
        self._ended = ended
        self._arm(seconds)

    def close(self) -> None:
        """Break off, whatever is going on."""
        self._busy = False
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _joined(self) -> bytes:
        piece = b"".join(self._pieces)
        self._pieces.clear()
        return piece

    async def _wait(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._fault is not None and not (self._pieces or self.complete):
            raise self._fault

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, fault: Fault) -> None:
        if self._fault is None:
            self._fault = fault
        self._deadline = None
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def _arm(self, seconds: float) -> None:
        # One timer that looks at the deadline when it fires: cheaper than one for every piece.
        self._deadline = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline - 0.001:
            self._timer = self._loop.call_at(self._deadline, self._ring)
            return
        what = "nothing more came" if self.touched else "no first byte came"
        self._fail(Fault("timeout", f"{what} in time"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are transports without saying so.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._busy or self.complete:
            # Bytes that nobody asked for: whoever used this connection next would get them.
            self._fail(Fault("garbled", "bytes behind the end of an answer"))
            return
        self.touched = True
        if not self._head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Fault("garbled", f"not HTTP: {error}"))
            return
        if not self._head and self._head_bytes > MOST_HEADER_BYTES:
            self._fail(Fault("garbled", "a head without end"))

    def eof_received(self) -> None:
        if self._busy and self._head and self._until_close and not self.complete:
            self.on_message_complete()

    def connection_lost(self, error: Exception | None) -> None:
        if self._busy and not self.complete:
            if self._head and self._until_close and error is None:
                self.complete = True
            elif self._fault is None:
                self._fault = Fault("cut", str(error) if error else "the connection was closed")
        elif self._fault is None:
            self._fault = Fault("cut", "the connection was closed")
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()
        self._lost(self)
        # It and the connection hold each other; one that is over shall go at once.
        self._parser = None

    # httptools

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self.complete:
            raise ValueError("bytes behind the end of an answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; the last of a name counts."""
        if len(self.headers) >= MOST_HEADERS:
            raise ValueError("too many headers")
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Note the status; what comes before a final one is skipped."""
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            return
        self.status = status
        self._head = True
        self._until_close = not (
            b"content-length" in self.headers
            or b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
            or status in (204, 304)
        )
        # Asked for now: behind the end of the answer the parser has forgotten it.
        self._keep = bool(self._parser.should_keep_alive()) and not self._until_close
        self._arm(self._idle_seconds)
        self._wake()

    def on_body(self, body: bytes) -> None:
        """Keep a piece; slow the expert down if nobody takes it."""
        if self._ended is not None:
            return
        self._pieces.append(body)
        self._size += len(body)
        self._deadline = self._loop.time() + self._idle_seconds
        if self._size > WAITING and not self._paused and self._transport is not None:
            self._paused = True
            # While we do not read, nothing can come.
            self._deadline = None
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self._head:
            self.headers = {}
            return
        self.complete = True
        self._deadline = None
        self._wake()
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended(self)

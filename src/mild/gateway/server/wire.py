"""A client's connection: HTTP/1.1 by httptools, with limits on what may come and how slowly.

Written for the gateway because time counts: the same application behind uvicorn serves less than half as
many requests (``benchmarks/gateway.py``). What is not plain HTTP/1.1 is refused: two lengths, a length
besides chunks, upgrades but for the offer of HTTP/2, heads that are too long or too slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Protocol, cast

import httptools

from mild.gateway.config import LimitSettings
from mild.gateway.refusals import Refusal
from mild.gateway.server.exchange import Exchange, response_head
from mild.gateway.server.heads import TooLongError, begin_exchange, head_size, plain_head
from mild.gateway.server.pipe import Pipe

__all__ = ["House", "Wire"]

# Requests of one connection that may wait behind the one being answered.
MOST_WAITING = 32

logger = logging.getLogger("mild.gateway")


class House(Protocol):
    """What a connection needs of its server."""

    limits: LimitSettings
    app: Any
    draining: bool
    wires: set[Wire]

    def refused(self, status: int) -> None: ...


class Wire(Pipe):
    """One connection: requests one after the other, each in a task that ends with the connection."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house
        self._parser: Any = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None
        self._current: Exchange | None = None
        self._reading: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._again = b""
        self._in_head = False
        self._head_bytes = 0
        self._client: tuple[str, int] | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are transports without saying so.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        self._house.wires.add(self)
        self.deadline = self._loop.time() + self._house.limits.header_seconds

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return
        limits = self._house.limits
        self._head_bytes += len(data)
        if self._reading is None and not self._in_head:
            self._in_head = True
            # The clock of a head starts with its first byte, or behind the answer that is still going on.
            if self._current is None:
                self.deadline = self._loop.time() + limits.header_seconds
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "Upgrades of the connection are not supported.")
            return
        except httptools.HttpParserError as error:
            # Only its words: an exception that this frame kept would keep the frame and its bytes.
            if isinstance(error.__context__, TooLongError):
                self._refuse(431, str(error.__context__))
            else:
                self._refuse(400, "The request is not valid HTTP/1.1.")
            return
        # Of a head, or of what stands between and behind the pieces of a chunked body.
        unfinished = self._in_head or self._reading is not None
        if unfinished and self._head_bytes > limits.max_header_bytes:
            self._refuse(431, f"The head must have at most {limits.max_header_bytes} bytes.")

    def eof_received(self) -> None:
        """A client that has closed its side has left."""

    def connection_lost(self, error: Exception | None) -> None:
        self._broken = True
        self.deadline = None
        self._house.wires.discard(self)
        self._waiting.clear()
        for exchange in (self._current, self._reading):
            if exchange is not None:
                exchange.gone = True
                exchange.wake()
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()
        # These and the connection hold each other; one that is over shall go at once.
        self._current = self._reading = self._parser = None

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._current is not None and self._current.complete and not self._broken:
            self.deadline = None

    # httptools

    def on_message_begin(self) -> None:
        """A new request."""
        self._url, self._headers = b"", []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._url += url
        if len(self._url) > self._house.limits.max_header_bytes:
            raise TooLongError("The address is too long.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; names in lower case from here on."""
        if self._reading is not None:
            # Behind a chunked body: nothing that counts may come this late.
            return
        headers = self._headers
        headers.append((name.lower(), value))
        if len(headers) > self._house.limits.max_headers:
            raise TooLongError(
                f"A request may have at most {self._house.limits.max_headers} headers."
            )

    def on_headers_complete(self) -> None:
        """The head is there: the request begins, or waits for its turn."""
        most = self._house.limits.max_header_bytes
        if self._head_bytes > most and head_size(self._headers) > most:
            raise TooLongError(f"The head must have at most {most} bytes.")
        if self._parser.should_upgrade():
            self._again = plain_head(self._parser, self._url, self._headers)
            if self._again:
                return
        self._in_head = False
        self._head_bytes = 0
        exchange = begin_exchange(
            self, self._parser, self._url, self._headers, self._client, self._house.draining
        )
        self._reading = exchange
        if self._current is None:
            self._begin(exchange)
        else:
            self._waiting.append(exchange)
            if len(self._waiting) >= MOST_WAITING:
                raise TooLongError("Too many requests wait on this connection.")
            # Its turn comes when it comes; meanwhile the client is not the slow one.
            self.deadline = None
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._head_bytes = 0
        if self._reading is not None:
            self._reading.add(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        exchange, self._reading = self._reading, None
        if exchange is None:
            return
        exchange.complete = True
        exchange.wake()
        if exchange is self._current:
            self.deadline = None

    # for the server

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The request being answered."""
        return self._task

    def drain(self) -> None:
        """End the connection as soon as nothing is being answered."""
        if self._current is None and self._reading is None:
            self.close()
        elif self._current is not None and not self._current.started:
            self._current.keep_alive = False

    def cut(self) -> None:
        """The client is too slow."""
        if self._broken:
            if self._transport is not None:
                self._transport.abort()
        elif self._current is None or (
            self._reading is self._current and not self._current.started
        ):
            self._refuse(408, "The request took too long to arrive.")
        elif self._transport is not None:
            self._broken = True
            self._transport.abort()

    # inside

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as found:
                if not self._again:
                    raise
                # The parser has stopped behind the head: another one reads it without the offer.
                data, self._again = self._again + data[found.args[0] :], b""
                self._parser = httptools.HttpRequestParser(self)

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        self.deadline = (
            None if exchange.complete else self._loop.time() + self._house.limits.body_seconds
        )
        self._task = self._loop.create_task(self._serve(exchange))

    async def _serve(self, exchange: Exchange) -> None:
        try:
            await self._house.app(exchange.scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not self._broken and self._transport is not None:
                self._transport.abort()
            self._task = None
            raise
        except Exception:
            # The last line of defence: one request's error must not end the server.
            logger.exception("error while serving a request")
            if not exchange.started and not self._broken:
                refusal = Refusal(500, "The gateway failed to serve this request.")
                exchange.keep_alive = False
                await exchange.send(
                    {
                        "type": "http.response.start",
                        "status": 500,
                        "headers": [(b"content-type", b"application/json")],
                    }
                )
                await exchange.send({"type": "http.response.body", "body": refusal.body()})
        self._task = None
        self._end(exchange)

    def _end(self, exchange: Exchange) -> None:
        self._current = None
        if self._broken:
            return
        if not (exchange.keep_alive and exchange.complete and exchange.whole):
            # A response that is not whole ends without its last chunk: nobody takes it for one.
            self.close(linger=not exchange.complete)
            return
        if self._waiting:
            following = self._waiting.popleft()
            self._begin(following)
            self.resume_reading()
            return
        if self._house.draining:
            self.close()
            return
        wait = self._house.limits
        # A head that began to arrive meanwhile keeps its shorter time.
        seconds = wait.header_seconds if self._in_head else wait.keep_alive_seconds
        self.deadline = self._loop.time() + seconds

    def _refuse(self, status: int, message: str) -> None:
        """Answer what cannot be read as a request, and close."""
        self._broken = True
        self._house.refused(status)
        current = self._current
        if current is None or not current.started:
            body = Refusal(status, message).body()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            self.write(response_head(status, headers) + body)
        if current is not None:
            # Whatever the application still has to say would follow the refusal.
            current.gone = True
            current.wake()
        self.close(linger=True)

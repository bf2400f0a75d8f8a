"""One request and its response on a connection, as ASGI sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol

__all__ = ["Exchange", "Link", "response_head"]

# HTTP/1.1 names for the numbers.
_REASONS = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_LINES = {number: b"HTTP/1.1 %d %b\r\n" % (number, words) for number, words in _REASONS.items()}
# Bytes of a body that wait for the application before the client is slowed down.
WAITING = 65_536


class Link(Protocol):
    """What an exchange needs of its connection."""

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def writable(self) -> asyncio.Future[None] | None: ...


class Exchange:
    """``receive`` and ``send`` of one request.

    Parameters
    ----------
    link : connection
    scope : as ASGI has it
    keep_alive : whether the connection may be used again
    expects : whether the client waits for "100 Continue" before it sends the body
    """

    __slots__ = (
        "_chunked",
        "_expects",
        "_headers",
        "_left",
        "_link",
        "_paused",
        "_pieces",
        "_size",
        "_status",
        "_taken",
        "_waiter",
        "complete",
        "done",
        "gone",
        "keep_alive",
        "scope",
        "started",
    )

    def __init__(self, link: Link, scope: dict[str, Any], keep_alive: bool, expects: bool) -> None:
        self._link = link
        self.scope = scope
        self.keep_alive = keep_alive
        self._expects = expects
        self._pieces: list[bytes] = []
        self._size = 0
        self._paused = False
        self._taken = False
        self._waiter: asyncio.Future[None] | None = None
        self._status = 0
        self._headers: Iterable[tuple[bytes, bytes]] = ()
        self._chunked = False
        self._left: int | None = None
        # Request: body whole, client gone. Response: head sent, finished.
        self.complete = False
        self.gone = False
        self.started = False
        self.done = False

    # from the connection

    def add(self, piece: bytes) -> None:
        """A piece of the body came."""
        if self.done:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > WAITING and not self._paused:
            self._paused = True
            self._link.pause_reading()
        self.wake()

    def wake(self) -> None:
        """Something changed that ``receive`` may wait for."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # to the application

    async def receive(self) -> dict[str, Any]:
        """ASGI's receive: the body, then the disconnection."""
        while True:
            if self.gone:
                return {"type": "http.disconnect"}
            if self._pieces or (self.complete and not self._taken):
                body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
                self._pieces, self._size = [], 0
                self._taken = self.complete
                if self._paused:
                    self._paused = False
                    self._link.resume_reading()
                return {"type": "http.request", "body": body, "more_body": not self.complete}
            if self._expects and not self.started:
                self._expects = False
                self._link.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def send(self, message: dict[str, Any]) -> None:
        """ASGI's send: the head goes out with the first piece of the body."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
            return
        if self.gone or self.done:
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self.started:
            data = self._framed(body, more)
        else:
            data = self._head(len(body), more) + self._framed(body, more)
            self.started = True
        if not more:
            self._finish()
        if data:
            self._link.write(data)
        waiting = self._link.writable()
        if waiting is not None:
            await waiting

    def _finish(self) -> None:
        self.done = True
        self._pieces, self._size = [], 0
        if self._paused:
            # A body that nobody read must not keep the next request from being read.
            self._paused = False
            self._link.resume_reading()

    def _head(self, size: int, more: bool) -> bytes:
        headers = list(self._headers)
        for name, value in headers:
            if name == b"content-length":
                self._left = int(value)
                break
        else:
            if not more:
                headers.append((b"content-length", b"%d" % size))
                self._left = size
            elif self.scope["http_version"] == "1.1":
                headers.append((b"transfer-encoding", b"chunked"))
                self._chunked = True
            else:
                self.keep_alive = False
        # The rest of a body that nobody read must not be taken for the next request.
        if not self.complete:
            self.keep_alive = False
        if not self.keep_alive:
            headers.append((b"connection", b"close"))
        elif self.scope["http_version"] == "1.0":
            headers.append((b"connection", b"keep-alive"))
        return response_head(self._status, headers)

    def _framed(self, body: bytes, more: bool) -> bytes:
        if self.scope["method"] == "HEAD":
            return b""
        if not self._chunked:
            if self._left is not None:
                self._left -= len(body)
            return body
        data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return data if more else data + b"0\r\n\r\n"

    @property
    def whole(self) -> bool:
        """Whether the response was sent as its head says."""
        return self.done and (self._left in (0, None) or self.scope["method"] == "HEAD")


def response_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Status line and headers, with the empty line.

    Examples
    --------
    >>> response_head(200, [(b"content-length", b"2")])
    b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\n'
    """
    line = _LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status
    return line + b"".join([b"%b: %b\r\n" % header for header in headers]) + b"\r\n"

"""HTTP/1.1 connections: uvicorn's protocol with limits on what arrives before the application runs.

Refused are heads that are too long, heads and bodies that are too slow, ambiguous lengths, targets in
another form than a path, upgrades, long trailers, too many connections that are in use (of those that
wait for a request, the oldest is closed for a new one), and too many requests in line on one of them. The
offer of HTTP/2 that some clients make with their first request is ignored. Connections are cut if their
clients do not read and they hold too much together.

This is the only file that depends on how uvicorn works inside. ``pyproject.toml`` caps its version, and
``test_uvicorn.py`` fails where these parts of it have changed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import time
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from mild_gateway.refusals import Refusal
from mild_gateway.server.middleware import Message, Receive, Scope, Send, name_request

if TYPE_CHECKING:
    from mild_gateway.server.context import AppContext

# Requests of one connection that may wait behind the one being answered.
MAX_PIPELINED = 32
# Seconds that a client may take to read what was written, beside those for bytes at this rate.
STALL_SECONDS = 60.0
SLOWEST_READING = 200_000
# Seconds after which a body must have come at min_body_rate; it is looked at every second from then on.
SLOW_BODY_SECONDS = 10.0
# What a connection holds, besides bytes to be written, if its client does not read a stream.
_STREAM_BYTES = 131_072
# Seconds in which a client that was refused may still send; what it sends is ignored.
LINGER_SECONDS = 2.0


class GatewayServer(Server):
    """uvicorn's server, which says that it drains as soon as it does.

    A second signal ends the running requests at once; what they cost is still written.
    """

    def __init__(self, config: Config, context: AppContext) -> None:
        super().__init__(config)
        self._context = context

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._context.draining = True
        await super().shutdown(sockets)
        if self.force_exit:
            for task in self.server_state.tasks:
                task.cancel()
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Ctrl-C reaches the whole group; the parent of a worker passes it on.
        if sig == signal.SIGINT and multiprocessing.parent_process() is not None:
            return
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)


class GatewayProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, context: AppContext, **parts: Any) -> None:
        super().__init__(**parts)
        self._limits = context.settings.limits
        self._refused = context.refused
        self._answers = context.answers
        self._idle = context.idle
        # Bytes that wait until those written before them are read.
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        # Bytes since the head or the last piece of a body; whether a head, or a body, is incomplete.
        self._head_bytes = self._trailer_bytes = 0
        self._in_head = False
        self._in_body = False
        self._body_begins = False
        self._body_start = 0.0
        self._body_bytes = 0
        self._closing = False
        # Sent behind the answers to the requests before it.
        self._refusal: Refusal | None = None
        self._head_without_upgrade = b""
        # The request being answered; ``cycle`` is the one that is read.
        self._active: RequestResponseCycle | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            if not self._idle:
                message = "The gateway has too many open connections."
                self._refuse(Refusal(503, message, code="overloaded", retry_after=1.0))
                return
            longest = next(iter(self._idle))
            del self._idle[longest]
            longest.transport.close()
        self._idle[self] = None
        self._start_timer(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._idle.pop(self, None)
        self._stop_timer()
        self._stop_stall_timer()
        self.pipeline.clear()
        self._refusal = None
        self._disconnect_active()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._closing or self._refusal is not None:
            return
        self._unset_keepalive_if_required()
        self._head_bytes += len(data)
        head_begins = not (self._in_head or self._in_body)
        self._in_head = self._in_head or head_begins
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            found = error.__context__
            if not isinstance(found, Refusal):
                message = "The request is not valid HTTP/1.1."
                found = Refusal(400, message, code="invalid_http")
                # The parser's own words name the header.
                if any(name in str(error) for name in ("Content-Length", "Transfer-Encoding")):
                    found = Refusal(400, message, code="invalid_framing")
            # Without its frames: they would keep this connection until the garbage collector runs.
            self._refuse(found.with_traceback(None))
            return
        most = self._limits.max_header_bytes
        if (self._in_head or self._in_body) and self._head_bytes > most:
            self._refuse(_head_too_large(f"The head must have at most {most} bytes."))
        else:
            self._time_request(head_begins)

    def _time_request(self, head_begins: bool) -> None:
        """Set the clock of what has not arrived whole; most requests come in one piece and need none."""
        if self._in_body:
            if self._body_begins:
                self._body_begins = False
                self._body_start = self.loop.time()
                self._start_timer(min(SLOW_BODY_SECONDS, self._limits.body_seconds))
        elif not self._in_head or self._is_busy:
            # The clock of a head behind an answer starts when that was sent.
            self._stop_timer()
        elif head_begins:
            self._start_timer(self._limits.header_seconds)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_stall_timer()
        seconds = STALL_SECONDS + self.transport.get_write_buffer_size() / SLOWEST_READING
        self._stall_timer = self.loop.call_later(seconds, self.transport.abort)
        self._answers.unread[self] = time.monotonic()
        self._answers.make_room()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    # httptools

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are ignored: nothing that counts may come behind the body.
        if self._in_body:
            self._trailer_bytes += len(name) + len(value) + 4
            if self._trailer_bytes > self._limits.max_header_bytes:
                raise _head_too_large("The trailers are too long.")
            return
        super().on_header(name, value)
        if len(self.headers) > self._limits.max_headers:
            raise _head_too_large(f"A request may have at most {self._limits.max_headers} headers.")

    def on_headers_complete(self) -> None:
        most = self._limits.max_header_bytes
        size = sum(len(name) + len(value) + 4 for name, value in self.headers)
        if len(self.url) + size > most:
            raise _head_too_large(f"The head must have at most {most} bytes.")
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise Refusal(400, "The version must be HTTP/1.1 or HTTP/1.0.", code="invalid_http")
        if self.parser.should_upgrade():
            self._head_without_upgrade = self._without_upgrade()
            return
        self._check_framing()
        # A proxy may take "/metrics#" for another path than we do.
        if not self.url.startswith(b"/") or b"#" in self.url:
            raise Refusal(400, "The target of a request must be a path.", code="invalid_target")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise Refusal(431, "Too many requests wait on this connection.", code="pipeline_full")
        self._idle.pop(self, None)
        self._in_head, self._in_body, self._body_begins = False, True, True
        self._head_bytes = self._trailer_bytes = self._body_bytes = 0
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            # It knows no chunks: the end of the connection is the end of the answer.
            length: Any = _AnyLength()
            self.cycle.chunked_encoding, self.cycle.expected_content_length = False, length

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self._body_bytes += len(body)
        # Who sends the body does not wait for "100 Continue".
        self.cycle.waiting_for_100_continue = False
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._head_without_upgrade:
            return
        self._in_body = False
        super().on_message_complete()

    # uvicorn

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, partial(self._run, app))

    def on_response_complete(self) -> None:
        others_wait = bool(self.pipeline)
        super().on_response_complete()
        if self.transport.is_closing() or others_wait:
            return
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self._in_body:
            # The rest of a body that nobody read must not be taken for the next request.
            self._linger()
        else:
            self._idle[self] = None
            if self._in_head:
                self._unset_keepalive_if_required()
                self._start_timer(self._limits.header_seconds)

    # inside

    async def _run(self, app: Any, scope: Scope, receive: Receive, send: Send) -> None:
        async def count(message: Message) -> None:
            if self.flow.write_paused:
                self._waiting_bytes = len(message.get("body", b""))
                self._answers.make_room()
            await send(message)
            self._waiting_bytes = 0

        await app(scope, receive, count)

    @property
    def unread_bytes(self) -> int:
        """Bytes that are held because the client does not read."""
        return self.transport.get_write_buffer_size() + self._waiting_bytes + _STREAM_BYTES

    def cut(self) -> None:
        """Close the connection without what waits on it."""
        self.transport.abort()

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as found:
                # The parser has stopped behind the head: another one reads it without the offer.
                data = self._head_without_upgrade + data[found.args[0] :]
                self._head_without_upgrade = b""
                self.parser = httptools.HttpRequestParser(self)

    def _without_upgrade(self) -> bytes:
        """The head of a request that offers HTTP/2, without the offer; Refusal 400 for other upgrades."""
        refusal = Refusal(
            400, "Upgrades of the connection are not supported.", code="upgrade_not_supported"
        )
        offers = [value.strip().lower() for name, value in self.headers if name == b"upgrade"]
        method = self.parser.get_method()
        if offers != [b"h2c"] or method == b"CONNECT":
            raise refusal
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = (token.strip() for token in value.split(b","))
                dropped = (b"upgrade", b"http2-settings")
                value = b", ".join(token for token in tokens if token.lower() not in dropped)
            if b"\r" in value or b"\n" in value:
                raise refusal
            if name not in (b"upgrade", b"http2-settings") and (value or name != b"connection"):
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _check_framing(self) -> None:
        """Refuse heads from which another reader might read another length of the body."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        chunked = [one.strip().lower() for one in codings] == [b"chunked"]
        if codings and (not chunked or self.parser.get_http_version() == "1.0"):
            message = "Transfer-Encoding must be chunked, in HTTP/1.1, and without Content-Length."
            raise Refusal(400, message, code="invalid_framing")
        if any(name == b"content-length" and len(value) > 18 for name, value in self.headers):
            message = "Content-Length must be one number of at most 18 digits."
            raise Refusal(400, message, code="invalid_framing")

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_stall_timer(self) -> None:
        self._answers.unread.pop(self, None)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _time_out(self) -> None:
        self._timer = None
        active, limits = self._active, self._limits
        seconds = self.loop.time() - self._body_start
        in_time = self._in_body and seconds < limits.body_seconds
        if self.pipeline and not self._closing:
            # The client waits for its turn as well.
            self._body_start, self._body_bytes = self.loop.time(), 0
            self._start_timer(min(SLOW_BODY_SECONDS, limits.body_seconds))
        elif self._closing or (active is not None and self._is_busy and active.response_started):
            self.transport.abort()
        elif in_time and self._body_bytes >= limits.min_body_rate * seconds:
            self._start_timer(min(1.0, limits.body_seconds - seconds))
        elif in_time:
            message = f"The body must come at {limits.min_body_rate:g} bytes per second or faster."
            self._refuse(Refusal(408, message, code="body_too_slow"))
        else:
            message = "The request took too long to arrive."
            self._refuse(Refusal(408, message, code="request_timeout"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be read as a request, behind the answers to those before it, and close."""
        active = self._active
        if self._is_busy and not (self._in_body and self.cycle is active):
            if self._in_body:
                self.pipeline.popleft()
            self._refusal = refusal
            self._stop_timer()
            return
        self._refused(refusal)
        if active is None or not self._is_busy or not active.response_started:
            body = refusal.body()
            lines = [STATUS_LINE[refusal.status], b"content-type: application/json\r\n"]
            lines += [
                f"{name.lower()}: {value}\r\n".encode() for name, value in refusal.headers.items()
            ]
            lines.append(b"x-request-id: %b\r\n" % name_request().encode("ascii"))
            lines.append(b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body))
            self.transport.write(b"".join(lines) + body)
        self._disconnect_active()
        self._linger()

    @property
    def _is_busy(self) -> bool:
        return self._active is not None and not self._active.response_complete

    def _disconnect_active(self) -> None:
        """Tell the application that its client has left, or that nothing more can be sent to it."""
        active = self._active
        if active is not None:
            active.disconnected = active.disconnected or not active.response_complete
            active.message_event.set()

    def _linger(self) -> None:
        """Close behind what was written; with unread bytes the answer might be reset before it is read."""
        self._closing = True
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        if self.transport.is_closing():
            return
        self._start_timer(LINGER_SECONDS)
        # TLS cannot be closed in one direction.
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()


class _AnyLength:
    """The length of a response that ends with its connection."""

    def __lt__(self, sent: int) -> bool:
        return False

    def __sub__(self, sent: int) -> _AnyLength:
        return self

    def __ne__(self, other: object) -> bool:
        return False


def _head_too_large(message: str) -> Refusal:
    return Refusal(431, message, code="head_too_large")

"""Connections to one expert, kept for the next request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from mild import __version__
from mild.endpoints.expert import Expert
from mild.errors import InvalidInputError
from mild.gateway.upstream.connection import Connection
from mild.gateway.upstream.faults import Fault

__all__ = ["Answer", "Pool"]

# Idle connections kept, and for how many seconds.
KEPT = 256
KEPT_SECONDS = 30.0
# For the last bytes of a stream whose end was announced.
LAST_SECONDS = 1.0
# A kept connection that was closed meanwhile shows it within this time; later, the expert was at work.
STALE_SECONDS = 1.0
# Bytes of an answer that is read whole.
MOST_BYTES = 64_000_000


class Answer:
    """The answer to one request; ``close`` hands its connection back."""

    __slots__ = ("_connection", "_pool", "headers", "status")

    def __init__(self, connection: Connection, pool: Pool) -> None:
        self._connection: Connection | None = connection
        self._pool = pool
        self.status = connection.status
        self.headers = connection.headers

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end. Raises Fault where it breaks off."""
        assert self._connection is not None
        return await self._connection.read()

    async def whole(self) -> bytes:
        """The body to its end."""
        pieces = [await self.read()]
        size = len(pieces[0])
        while pieces[-1]:
            pieces.append(await self.read())
            size += len(pieces[-1])
            if size > MOST_BYTES:
                raise Fault("garbled", f"an answer of more than {MOST_BYTES} bytes")
        return pieces[0] if len(pieces) == 2 else b"".join(pieces)

    def close(self, *, over: bool = False) -> None:
        """Keep the connection if the answer was whole, else break it off. May be called twice.

        With ``over`` all that matters was read, and the rest may come in its own time.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if over and not connection.complete:
            connection.finish(self._pool.give_back, LAST_SECONDS)
        else:
            self._pool.give_back(connection)


class Pool:
    """Asks one expert.

    Parameters
    ----------
    expert : where it is, its key, and how long to wait
    """

    def __init__(self, expert: Expert) -> None:
        parts = urlsplit(expert.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(
                f"base_url of expert {expert.name!r} must be an address such as "
                f"https://host/v1; got {expert.base_url!r}."
            )
        self._expert = expert
        self._host = parts.hostname
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        self._headers = self._fixed_headers(parts.netloc.rpartition("@")[2])
        self._heads: dict[str, bytes] = {}
        self._idle: list[tuple[float, Connection]] = []
        self._all: set[Connection] = set()

    async def ask(self, endpoint: str, body: bytes, more: Sequence[bytes] = ()) -> Answer:
        """Send a body to an endpoint such as ``/chat/completions`` and wait for the head.

        ``more`` are header lines of the client that travel on, each with its line end.
        """
        head = self._heads.get(endpoint)
        if head is None:
            line = f"POST {self._path}{endpoint} HTTP/1.1\r\n".encode("ascii")
            head = self._heads[endpoint] = line + self._headers
        request = b"%b%bcontent-length: %d\r\n\r\n%b" % (head, b"".join(more), len(body), body)
        kept = self._take()
        if kept is not None:
            start = asyncio.get_running_loop().time()
            try:
                return await self._send(kept, request)
            except Fault as fault:
                # Closed by the expert meanwhile, which says nothing about it: sent once more, on a new one.
                late = asyncio.get_running_loop().time() - start > STALE_SECONDS
                if fault.kind != "cut" or kept.touched or late:
                    raise
        return await self._send(await self._connect(), request)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, if it can be."""
        connection.rest()
        if connection.reusable and len(self._idle) < KEPT:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            connection.close()

    def tidy(self) -> None:
        """Close connections that nobody has used for long."""
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        while self._idle and (self._idle[0][0] < oldest or not self._idle[0][1].reusable):
            self._idle.pop(0)[1].close()

    async def close(self) -> None:
        """Break off every connection."""
        for connection in list(self._all):
            connection.close()
        self._idle.clear()
        # Transports close in the loop's next round.
        await asyncio.sleep(0)

    async def _send(self, connection: Connection, request: bytes) -> Answer:
        expert = self._expert
        try:
            await connection.send(request, expert.first_byte_seconds, expert.idle_seconds)
        except BaseException:
            connection.close()
            raise
        return Answer(connection, self)

    def _take(self) -> Connection | None:
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        while self._idle:
            since, connection = self._idle.pop()
            if since >= oldest and connection.reusable:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._expert.connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._all.discard),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
        except TimeoutError as error:
            raise Fault("connect", "no connection in time") from error
        except (OSError, ssl.SSLError, UnicodeError) as error:
            raise Fault("connect", str(error)) from error
        self._all.add(connection)
        return connection

    def _fixed_headers(self, host: str) -> bytes:
        lines = {
            "host": host,
            "user-agent": f"mild/{__version__}",
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
        }
        lines.update({name.lower(): value for name, value in self._expert.sent_headers().items()})
        for name, value in lines.items():
            if not name.isascii() or any(mark in name + value for mark in "\r\n\0"):
                raise InvalidInputError(
                    f"a header of expert {self._expert.name!r} must be one line of text; "
                    f"{name!r} is not."
                )
        return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("utf-8")

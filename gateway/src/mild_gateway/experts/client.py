"""HTTP client for the endpoint of an expert: connections, proxies, time limits, classified failures."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import ssl
import urllib.request
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from yarl import URL

from mild_gateway._version import __version__
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert, is_loopback

KEEP_ALIVE_SECONDS = 30.0
# Time for the last bytes of a stream whose end was announced.
DRAIN_SECONDS = 1.0
# A kept connection that the expert had closed fails within this time; later, the expert was at work.
STALE_SECONDS = 1.0
MAX_BODY_BYTES = 64_000_000
# A request is sent at least this fast.
MIN_BYTES_PER_SECOND = 100_000
# How the request of this task gets its connection.
_acquisition: ContextVar[SimpleNamespace] = ContextVar("acquisition")


class _Connector(aiohttp.TCPConnector):
    """Never reuses a connection on which bytes arrived that nobody asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kept: WeakSet[Any] = WeakSet()

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        acquisition = _acquisition.get()
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol: Any = connection.protocol
            if protocol not in self._kept:
                self._kept.add(protocol)
                return connection
            # After a stale connection, a new one.
            if not (acquisition.reused or protocol.should_close):
                acquisition.reused = True
                return connection
            connection.close()


@dataclass(eq=False)
class EndpointResponse:
    """A response whose head was received. ``close`` returns its connection to the pool."""

    _response: aiohttp.ClientResponse
    _expert: Expert
    _tasks: set[asyncio.Task[None]]
    _end: float  # by the clock of the event loop

    def __post_init__(self) -> None:
        self.status, self.headers = self._response.status, self._response.headers
        # Counts the bytes of answers that are held: ``await hold(answer, size)`` and ``drop(answer)``.
        self.budget: Any = None

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end. Raises ExpertError where it breaks off."""
        try:
            async with asyncio.timeout_at(self._end):
                return await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _classify(error, self._expert, "nothing more came") from None

    async def hold(self, size: int) -> None:
        """Count, until ``close``, bytes of the body that are held; wait where a worker holds too many."""
        if self.budget is not None:
            await self.budget.hold(self, size)

    async def read_all(self, most: int = MAX_BODY_BYTES) -> bytes:
        """The whole body. Raises ExpertError for one of more than ``most`` bytes."""
        body = bytearray()
        while not self._response.content.at_eof():
            body += await self.read()
            if len(body) > most:
                raise ExpertError("garbled", f"an answer of more than {most:,} bytes")
            # Twice: it is copied when it is whole, and parsed.
            await self.hold(2 * len(body))
        return bytes(body)

    def close(self, *, finished: bool = False) -> None:
        """Keep the connection if the body was read to its end, else close it. May be called twice.

        With ``finished``, all that matters was read, and the rest may arrive in the background.
        """
        if self.budget is not None:
            self.budget.drop(self)
        if self._response.closed:
            # The connection went back with the last byte.
            return
        if finished and not self._response.content.is_eof():
            task = asyncio.get_running_loop().create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._response.release()

    async def _drain(self) -> None:
        try:
            with contextlib.suppress(ExpertError, TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    while await self.read():
                        pass
        finally:
            self._response.release()


class EndpointClient:
    """Posts to one endpoint. Its headers, and with them its key, go to that host alone.

    Redirects are not followed. Proxies of the environment are used, except for this machine.

    Time limits: ``connect_seconds`` for name resolution, connection and TLS, ``first_byte_seconds`` from
    the request to the head of the response, ``idle_seconds`` between two pieces of the body,
    ``total_seconds`` for everything together.
    """

    def __init__(self, expert: Expert) -> None:
        self._expert = expert
        self._headers = {
            "User-Agent": f"mild/{__version__}",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **expert.sent_headers(),
        }
        self._proxy = proxy_for(expert.base_url)
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> EndpointResponse:
        """Send a body to a path such as ``/chat/completions`` and wait for the head of the response."""
        session = self._session or self._open()
        url = URL(self._expert.base_url + path, encoded=True)
        clock = asyncio.get_running_loop().time
        acquisition, start = SimpleNamespace(reused=False), clock()
        end = start + self._expert.total_seconds
        _acquisition.set(acquisition)
        try:
            response = await self._post(session, url, body, headers)
        except ExpertError as error:
            # A kept connection that the expert had closed says nothing about it.
            if not (acquisition.reused and error.kind == "cut" and clock() - start < STALE_SECONDS):
                raise
            response = await self._post(session, url, body, headers)
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = self._expert.idle_seconds
            response.connection.protocol.start_timeout()
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            response.close()
            raise ExpertError("garbled", "an encoded body, which was not asked for")
        return EndpointResponse(response, self._expert, self._tasks, end)

    async def _post(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        body: bytes,
        headers: Mapping[str, str] | None,
    ) -> aiohttp.ClientResponse:
        expert = self._expert
        # Neither a head in small pieces nor interim responses without end take longer.
        seconds = expert.connect_seconds + expert.first_byte_seconds
        seconds += len(body) / MIN_BYTES_PER_SECOND
        seconds = min(seconds, expert.total_seconds)
        head = asyncio.timeout(seconds)
        try:
            async with head:
                return await session.post(
                    url,
                    # aiohttp warns about long bodies of plain bytes.
                    data=aiohttp.BytesPayload(body) if len(body) < 2**20 else io.BytesIO(body),
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if head.expired():
                raise ExpertError("timeout", f"no reply within {round(seconds, 1):g} s") from None
            raise _classify(error, expert, "no first byte came") from None

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._session is not None:
            await self._session.close()
            # Transports close in the next round of the loop.
            await asyncio.sleep(0)

    def _open(self) -> aiohttp.ClientSession:
        expert = self._expert
        tls: ssl.SSLContext | bool = True
        if expert.base_url.startswith("https"):
            tls = _tls_context(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=_Connector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=tls),
            # The time for everything is ours to keep: aiohttp takes much longer to do that.
            timeout=aiohttp.ClientTimeout(
                total=None, connect=expert.connect_seconds, sock_read=expert.first_byte_seconds
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self._session


@lru_cache(maxsize=8)
def _tls_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """TLS with the certificates that the environment names; reading them takes long, so it is shared."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _classify(error: Exception, expert: Expert, missing: str) -> ExpertError:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ExpertError("connect", f"no connection within {expert.connect_seconds:g} s")
    if isinstance(error, aiohttp.SocketTimeoutError):
        return ExpertError("timeout", f"{missing} in time")
    if isinstance(error, TimeoutError):
        return ExpertError("timeout", f"no reply within {expert.total_seconds:g} s")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ExpertError("connect", f"no connection: {error}", permanent=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        return ExpertError("connect", f"no connection: {error.os_error}")
    if isinstance(error, aiohttp.ClientHttpProxyError | ssl.SSLError):
        return ExpertError("connect", f"no connection: {error}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ExpertError("cut", "the connection was closed")
    if isinstance(error, aiohttp.ClientPayloadError):
        return ExpertError("cut", "the reply was cut off")
    if isinstance(error, OSError):
        return ExpertError("cut", f"the connection broke: {error or type(error).__name__}")
    return ExpertError("garbled", f"not HTTP: {error}")


def proxy_for(url: str) -> str | None:
    """The HTTP proxy that the environment names for an address, if any."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    return proxy if proxy.startswith("http") else None

"""HTTP client for the endpoint of an expert: connections, proxies, time limits, classified failures.

Only documented parts of aiohttp are used. Its tracing hooks tell when a request has its connection, and
whether that connection was used before; all time limits are kept here.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import os
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from mild_gateway._version import __version__
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import CONNECT_SECONDS, Expert, is_loopback

# Longest pause between two pieces of an answer.
IDLE_SECONDS = 60.0
KEEP_ALIVE_SECONDS = 30.0
# Time for the last bytes of a stream whose end was announced.
DRAIN_SECONDS = 1.0
# A kept connection that the expert had closed fails within this time; later, the expert was at work.
STALE_SECONDS = 1.0
MAX_BODY_BYTES = 64_000_000
# A request is sent at least this fast.
MIN_BYTES_PER_SECOND = 100_000


@dataclass(frozen=True)
class TimeLimits:
    """Seconds that the parts of one request to an expert may take."""

    connect: float  # name resolution, connection and TLS
    first_byte: float  # from the connection to the head of the response, of a stream alone
    idle: float  # between two pieces of the body
    total: float  # everything together


def time_limits(expert: Expert) -> TimeLimits:
    """The limits in an expert's settings."""
    return TimeLimits(
        connect=CONNECT_SECONDS,
        first_byte=expert.first_byte_seconds,
        idle=IDLE_SECONDS,
        total=expert.total_seconds,
    )


@dataclass(eq=False)
class EndpointResponse:
    """A response whose head was received. ``close`` returns its connection to the pool."""

    _response: aiohttp.ClientResponse
    _limits: TimeLimits
    _tasks: set[asyncio.Task[None]]
    _end: float  # by the clock of the event loop

    def __post_init__(self) -> None:
        self.status = self._response.status
        self.headers = self._response.headers

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end. Raises ExpertError where it breaks off."""
        idle_end = asyncio.get_running_loop().time() + self._limits.idle
        try:
            async with asyncio.timeout_at(min(idle_end, self._end)):
                return await self._response.content.readany()
        except TimeoutError:
            if idle_end < self._end:
                raise ExpertError("timeout", "nothing more came in time") from None
            raise _total_time_is_over(self._limits) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _classify(error) from None

    async def read_all(self, max_bytes: int = MAX_BODY_BYTES) -> bytes:
        """The whole body. Raises ExpertError for one of more than ``max_bytes``."""
        body = bytearray()
        while not self._response.content.at_eof():
            body += await self.read()
            if len(body) > max_bytes:
                detail = f"an answer of more than {max_bytes:,} bytes"
                raise ExpertError("garbled", detail, transient=False)
        return bytes(body)

    def close(self, *, finished: bool = False) -> None:
        """Keep the connection if the body was read to its end, else close it. May be called twice.

        With ``finished``, all that matters was read, and the rest may arrive in the background.
        """
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


class _Attempt:
    """One request on its way: its time limit, and what aiohttp's tracing tells about its connection."""

    def __init__(self, limits: TimeLimits, body: bytes, end: float, *, streamed: bool) -> None:
        self.is_connected = False
        self.uses_kept_connection = False
        self._limits = limits
        self._head_seconds = math.inf
        if streamed:
            self._head_seconds = limits.first_byte + len(body) / MIN_BYTES_PER_SECOND
        self._end = end
        connect_end = asyncio.get_running_loop().time() + limits.connect
        self.timeout = asyncio.timeout_at(min(connect_end, end))

    def connected(self, *, kept: bool) -> None:
        """From now on the head of the response is waited for."""
        self.is_connected = True
        self.uses_kept_connection = kept
        head_end = asyncio.get_running_loop().time() + self._head_seconds
        self.timeout.reschedule(min(head_end, self._end))

    def timeout_error(self) -> ExpertError:
        """Which limit has passed."""
        if asyncio.get_running_loop().time() >= self._end:
            return _total_time_is_over(self._limits)
        if not self.is_connected:
            return ExpertError("connect", f"no connection within {self._limits.connect:g} s")
        return ExpertError("timeout", "no first byte came in time")


async def _note_new_connection(session: Any, context: Any, parameters: Any) -> None:
    context.trace_request_ctx.connected(kept=False)


async def _note_kept_connection(session: Any, context: Any, parameters: Any) -> None:
    context.trace_request_ctx.connected(kept=True)


def _connection_tracing() -> aiohttp.TraceConfig:
    """Tells the ``_Attempt`` that is given as ``trace_request_ctx`` about its connection."""
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(_note_new_connection)
    tracing.on_connection_reuseconn.append(_note_kept_connection)
    return tracing


class EndpointClient:
    """Posts to one endpoint. Its headers, and with them its key, go to that host alone.

    Redirects are not followed. Proxies of the environment are used, except for this machine. The time
    limits are those of the expert's settings, unless others are given.
    """

    def __init__(self, expert: Expert, limits: TimeLimits | None = None) -> None:
        self._expert = expert
        self._limits = limits or time_limits(expert)
        self._headers = {
            "User-Agent": f"mild/{__version__}",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **expert.sent_headers(),
        }
        self._proxy = proxy_for(expert.base_url)
        self._sessions: list[aiohttp.ClientSession] = []
        self._session: aiohttp.ClientSession | None = None
        # For requests that found their kept connection closed: it keeps none.
        self._fresh_session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        streamed: bool = False,
    ) -> EndpointResponse:
        """Send a body to a path such as ``/chat/completions`` and wait for the head of the response.

        A plain answer begins when it is whole: only that of a stream is expected after ``first_byte``.
        """
        if self._session is None:
            self._session = self._open(keeps_connections=True)
        clock = asyncio.get_running_loop().time
        start = clock()
        end = start + self._limits.total
        attempt = _Attempt(self._limits, body, end, streamed=streamed)
        try:
            response = await self._send(self._session, attempt, path, body, headers)
        except ExpertError as error:
            # A kept connection that the expert had closed says nothing about it.
            is_stale = attempt.uses_kept_connection and clock() - start < STALE_SECONDS
            if not is_stale or error.kind != "cut":
                raise
            if self._fresh_session is None:
                self._fresh_session = self._open(keeps_connections=False)
            attempt = _Attempt(self._limits, body, end, streamed=streamed)
            response = await self._send(self._fresh_session, attempt, path, body, headers)
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            response.close()
            raise ExpertError("garbled", "an encoded body, which was not asked for")
        return EndpointResponse(response, self._limits, self._tasks, end)

    async def _send(
        self,
        session: aiohttp.ClientSession,
        attempt: _Attempt,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None,
    ) -> aiohttp.ClientResponse:
        # aiohttp warns about long bodies of plain bytes.
        payload = aiohttp.BytesPayload(body) if len(body) < 2**20 else io.BytesIO(body)
        try:
            # Neither a head in small pieces nor interim responses without end take longer.
            async with attempt.timeout:
                return await session.post(
                    URL(self._expert.base_url + path, encoded=True),
                    data=payload,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                    trace_request_ctx=attempt,
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if attempt.timeout.expired():
                raise attempt.timeout_error() from None
            raise _classify(error) from None

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for session in self._sessions:
            await session.close()
        if self._sessions:
            # Transports close in the next round of the loop.
            await asyncio.sleep(0)

    def _open(self, *, keeps_connections: bool) -> aiohttp.ClientSession:
        tls: ssl.SSLContext | bool = True
        if self._expert.base_url.startswith("https"):
            tls = _tls_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        if keeps_connections:
            connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=KEEP_ALIVE_SECONDS)
        else:
            connector = aiohttp.TCPConnector(limit=0, ssl=tls, force_close=True)
        session = aiohttp.ClientSession(
            headers=self._headers,
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trace_configs=[_connection_tracing()],
        )
        self._sessions.append(session)
        return session


@lru_cache(maxsize=8)
def _tls_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """TLS with the certificates that the environment names; reading them takes long, so it is shared."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _total_time_is_over(limits: TimeLimits) -> ExpertError:
    return ExpertError("timeout", f"no reply within {limits.total:g} s")


def _classify(error: Exception) -> ExpertError:
    """Why aiohttp could not get a response, or the next piece of one."""
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
    address = urlsplit(url)
    host = address.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all") or ""
    if not proxy.startswith("http"):
        return None
    return proxy

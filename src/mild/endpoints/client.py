"""HTTP client for the endpoint of an expert: connections, proxies, time limits, classified failures."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ipaddress
import math
import ssl
import urllib.request
from collections.abc import Mapping
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from mild import __version__
from mild.endpoints.replies import retry_after as parse_retry_after
from mild.errors import InvalidInputError, MildError

__all__ = ["FAILURES", "EndpointClient", "EndpointResponse", "ExpertError", "retry_after"]

# Kind -> (the same expert may be tried again at once, it counts against the expert, in words).
FAILURES: dict[str, tuple[bool, bool, str]] = {
    "connect": (False, True, "could not be connected to"),
    "timeout": (False, True, "did not answer in time"),
    "cut": (True, True, "broke off its answer"),
    "server": (True, True, "answered with a server error"),
    "garbled": (True, True, "answered with something that is not the protocol"),
    "credentials": (False, True, "refused the gateway's credentials or knows no such model"),
    "rate": (False, False, "is limiting the rate of requests"),
}
# The expert may have done its work, and charge for it, though nothing of use came back.
_CHARGED = ("timeout", "cut", "garbled")
KEEP_ALIVE_SECONDS = 30.0
# Time for the last bytes of a stream whose end was announced.
DRAIN_SECONDS = 1.0
# A kept connection that the expert had closed fails within this time; later, the expert was at work.
STALE_SECONDS = 1.0
MAX_BODY_BYTES = 64_000_000
MAX_RETRY_AFTER = 3600.0
# aiohttp warns about longer bodies of plain bytes.
_LARGE_BODY = 2**20
# How the request of this task gets its connection.
_acquisition: ContextVar[SimpleNamespace] = ContextVar("acquisition")


class ExpertError(MildError):
    """A request to an expert that failed.

    Parameters
    ----------
    kind : one of ``FAILURES``
    detail : for the operator; never sent to a client
    status : HTTP status of the expert, if it gave one
    retry_after : seconds that the expert asked to wait

    Examples
    --------
    >>> error = ExpertError("rate", "429", status=429, retry_after=2.0)
    >>> error.retryable, error.counts, error.description
    (False, False, 'is limiting the rate of requests')
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        self.may_cost = kind in _CHARGED
        self.retryable, self.counts, self.description = FAILURES[kind]


class _Connector(aiohttp.TCPConnector):
    """Never reuses a connection on which bytes arrived that nobody asked for."""

    async def _get(self, key: Any, traces: Any) -> Any:
        acquisition = _acquisition.get()
        if acquisition.reused:
            # The first one was stale: now a new one.
            return None
        while (connection := await super()._get(key, traces)) is not None:
            if connection.protocol is not None and not connection.protocol.should_close:
                acquisition.reused = True
                return connection
            connection.close()
        return None


class EndpointResponse:
    """A response whose head was received. ``close`` returns its connection to the pool."""

    __slots__ = ("_response", "_tasks", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, tasks: set[asyncio.Task[None]]) -> None:
        self._response = response
        self._tasks = tasks
        self.status = response.status
        self.headers = response.headers

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end. Raises ExpertError where it breaks off."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _classify(error, "nothing more came") from None

    async def read_all(self) -> bytes:
        """The whole body."""
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise ExpertError("garbled", f"an answer of more than {MAX_BODY_BYTES} bytes")
        return bytes(body)

    def close(self, *, finished: bool = False) -> None:
        """Keep the connection if the body was read to its end, else close it. May be called twice.

        With ``finished``, all that matters was read, and the rest may arrive in the background.
        """
        if finished and not self._response.content.is_eof() and not self._response.closed:
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

    Parameters
    ----------
    base_url : such as ``https://api.example.com/v1``
    headers : sent with every request
    connect_seconds : limit for name resolution, connection and TLS
    first_byte_seconds : limit from the request to the head of the response
    idle_seconds : limit between two pieces of the body
    total_seconds : limit for everything together
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        connect_seconds: float = 5.0,
        first_byte_seconds: float = 60.0,
        idle_seconds: float = 60.0,
        total_seconds: float = 600.0,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(
                f"base_url must be an address such as https://host/v1; got {base_url!r}."
            )
        for name, value in headers.items():
            if not name.isascii() or any(mark in name + value for mark in "\r\n\0"):
                raise InvalidInputError(f"a header must be one line of text; {name!r} is not.")
        self._base_url = base_url.rstrip("/")
        self._headers = {
            "User-Agent": f"mild/{__version__}",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **headers,
        }
        self._timeout = aiohttp.ClientTimeout(
            total=total_seconds, connect=connect_seconds, sock_read=first_byte_seconds
        )
        self._idle_seconds = idle_seconds
        self._proxy = proxy_for(base_url)
        self._tls: ssl.SSLContext | bool = True
        if parts.scheme == "https":
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[str, URL] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> EndpointResponse:
        """Send a body to a path such as ``/chat/completions`` and wait for the head of the response."""
        session = self._session or self._open()
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(self._base_url + path, encoded=True)
        clock = asyncio.get_running_loop().time
        acquisition, start = SimpleNamespace(reused=False), clock()
        _acquisition.set(acquisition)
        try:
            response = await self._post(session, url, body, headers)
        except ExpertError as error:
            # A kept connection that the expert had closed says nothing about it.
            if not (acquisition.reused and error.kind == "cut" and clock() - start < STALE_SECONDS):
                raise
            response = await self._post(session, url, body, headers)
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = self._idle_seconds
            response.connection.protocol.start_timeout()
        return EndpointResponse(response, self._tasks)

    async def _post(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        body: bytes,
        headers: Mapping[str, str] | None,
    ) -> aiohttp.ClientResponse:
        try:
            return await session.post(
                url,
                data=body if len(body) < _LARGE_BODY else io.BytesIO(body),
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _classify(error, "no first byte came") from None

    async def close(self) -> None:
        """Close every connection."""
        for task in list(self._tasks):
            task.cancel()
        if self._session is not None:
            await self._session.close()
            # Transports close in the next round of the loop.
            await asyncio.sleep(0)

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=_Connector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=self._tls),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self._session


def _classify(error: Exception, missing: str) -> ExpertError:
    """The kind of a failure of the HTTP client."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ExpertError("connect", "no connection in time")
    if isinstance(error, TimeoutError):
        return ExpertError("timeout", f"{missing} in time")
    if isinstance(
        error, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError | ssl.SSLError
    ):
        return ExpertError("connect", str(error))
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ExpertError("cut", "the connection was closed")
    if isinstance(error, aiohttp.ClientPayloadError | OSError):
        return ExpertError("cut", str(error) or "the connection was closed")
    return ExpertError("garbled", f"not HTTP: {error}")


def proxy_for(url: str) -> str | None:
    """The HTTP proxy that the environment names for an address, if any.

    Examples
    --------
    >>> proxy_for("http://127.0.0.1:8000/v1") is None
    True
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    return proxy if proxy.startswith("http") else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds by ``retry-after-ms`` or ``Retry-After`` (a number or a date); None if neither says them.

    Examples
    --------
    >>> retry_after({"retry-after-ms": "250"}), retry_after({}), retry_after({"Retry-After": "soon"})
    (0.25, None, None)
    """
    seconds: float | None = None
    with contextlib.suppress(KeyError, ValueError):
        seconds = float(headers["retry-after-ms"]) / 1000
    if seconds is None:
        seconds = parse_retry_after(headers.get("Retry-After"))
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return None
    return min(seconds, MAX_RETRY_AFTER)

"""Checks before a request is handled: Host, browsers, proxies, size of the body, requests in flight."""

from __future__ import annotations

import ipaddress
import logging
import random
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.responses import Response

from mild_gateway.access.keys import ANONYMOUS, invalid_key
from mild_gateway.config import Settings
from mild_gateway.experts.expert import is_loopback
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import FairLimit

if TYPE_CHECKING:
    from mild_gateway.server.context import AppContext

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

COMPLETIONS = {
    "/v1/chat/completions": "/chat/completions",
    "/v1/completions": "/completions",
    "/v1/responses": "/responses",
    "/v1/messages": "/messages",
    "/v1/embeddings": "/embeddings",
}
# Paths whose requests count: towards the requests per minute of their key, and those in flight.
_COUNTED = {*COMPLETIONS, "/v1/route", "/v1/feedback", "/v1/messages/count_tokens"}
# These say nothing that matters, and are asked for under any name.
_OPEN_PATHS = ("/health", "/health/liveliness", "/health/readiness")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{0,5})?")
# Headers that proxies and tunnels add.
_PROXY_HEADER = re.compile(
    r"forwarded|x-(?:forwarded|original-|envoy-)|cf-|via$|[a-z-]*(?:real|client)-ip$"
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def refusal_response(refusal: Refusal, path: str = "") -> Response:
    """A refusal as a response, in the shape of the API of a path."""
    return Response(refusal.body(path), refusal.status, refusal.headers, "application/json")


def error_response(context: AppContext, error: Exception, path: str) -> Response:
    """The answer to a request that met an error of our own, which is counted and logged."""
    context.metrics.add("mild_errors_total")
    said = "error while serving a request"
    context.events.note(("internal", type(error).__name__), said, logging.ERROR, error)
    message = "The gateway failed to serve this request."
    return refusal_response(Refusal(500, message, code="internal_error"), path)


def authorization_of(headers: Headers) -> str | None:
    """The value of ``Authorization``, or the key in ``x-api-key`` in its form."""
    key = headers.get("x-api-key")
    return headers.get("authorization") or (None if key is None else f"Bearer {key}")


def name_request(number: bytes | None = None) -> str:
    """The id of a request from its twelve bytes; without them, a new one."""
    return f"mild-{(number or random.randbytes(12)).hex()}"


class RequestGuard:
    """ASGI application with the checks that every request passes, in front of Starlette's.

    Key and rate are checked here, before a place is taken and the body is read. The endpoints find in
    ``scope["mild.local"]`` whether the request was made on this machine, and, where requests are counted,
    whose it is in ``scope["mild.caller"]``.
    """

    def __init__(self, app: Any, context: AppContext) -> None:
        self._app = app
        self._context = context
        settings = context.settings
        self._hosts = HostCheck(settings)
        self._proxies = ProxyCheck(settings)
        self._max_body = settings.limits.max_body_bytes
        limits, one_caller = settings.limits, lambda: context.access.has_one_caller
        self._places = FairLimit(limits.max_in_flight, one_caller, settings.workers)
        self._bytes = FairLimit(limits.max_bytes_in_flight, one_caller)
        # Without a key because the gateway is reached from this machine alone; a proxy makes that untrue.
        self._trusts_machine = settings.access.require_key is None and not settings.requires_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        counts = scope["method"] == "POST" and scope["path"] in _COUNTED
        context, caller = self._context, ""
        headers = Headers(raw=scope["headers"])
        forwarded = any(_PROXY_HEADER.match(name) for name in headers)
        send = _naming(send, headers.get("x-request-id", ""))
        try:
            self._hosts.check(scope)
            scope["mild.local"] = self._proxies.is_local(scope, forwarded)
            if forwarded and self._trusts_machine and not scope["mild.local"]:
                self._check_key(scope, headers)
            # A path has one spelling: what a proxy refuses must not come in under another.
            encoded = b"%" in scope.get("raw_path", b"")
            if encoded and not scope["path"].startswith("/v1/models/"):
                raise Refusal(404, "There is no such endpoint.", code="not_found")
            if int(headers.get("content-length") or 0) > self._max_body:
                raise _body_too_large(self._max_body)
            if counts:
                found = context.access.identify(authorization_of(headers))
                await context.access.admit(found)
                scope["mild.caller"], caller = found, found.scope
            elsewhere = context.total_in_flight - context.in_flight
            if counts and not self._places.take(caller, 1, elsewhere):
                message = "The gateway has no room for another request of this key at the moment."
                raise Refusal(429, message, code="overloaded", retry_after=1.0)
        except Refusal as refusal:
            context.refused(refusal)
            await refusal_response(refusal, scope["path"])(scope, receive, send)
            return
        body = LimitedBody(receive, self._max_body, self._bytes, caller)
        context.count_in_flight(int(counts))
        try:
            await self._app(scope, body, send)
        finally:
            body.release()
            context.count_in_flight(-int(counts))
            if counts:
                self._places.give_back(caller, 1)

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        if scope["path"] in _OPEN_PATHS:
            return
        caller = self._context.access.identify(authorization_of(headers))
        if caller.scope == ANONYMOUS:
            raise invalid_key(
                "An API key is required: the request came through a proxy, and only requests from the "
                "gateway's own machine need none. Send the header Authorization: Bearer KEY."
            )


class LimitedBody:
    """The ``receive`` of a request, with limits on the bytes that arrive by it."""

    def __init__(self, receive: Receive, limit: int, held: FairLimit, caller: str = "") -> None:
        self._receive = receive
        self._limit = limit
        self._bytes = held
        self._caller = caller
        self._size = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        size = len(message.get("body", b""))
        if self._size + size > self._limit:
            raise _body_too_large(self._limit)
        if size and not self._bytes.take(self._caller, size):
            said = "The gateway has no memory for another request of this key at the moment."
            raise Refusal(503, said, code="overloaded", retry_after=1.0)
        self._size += size
        return message

    def release(self) -> None:
        """The request has ended."""
        if self._size:
            self._bytes.give_back(self._caller, self._size)


def _body_too_large(limit: int) -> Refusal:
    return Refusal(413, f"The body must have at most {limit} bytes.", code="request_too_large")


def _naming(send: Send, given: str) -> Send:
    """A ``send`` that adds ``x-request-id``: what the client gave, if valid, or the gateway's own id."""

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(raw=message.get("headers", []))
            own = headers.get("x-mild-request-id") or name_request()
            name = given if _REQUEST_ID.fullmatch(given) else own
            message["headers"] = [*headers.raw, (b"x-request-id", name.encode("latin-1"))]
        await send(message)

    return send_named


class ProxyCheck:
    """Tells whether a request was made on this machine, or came to it through a proxy."""

    def __init__(self, settings: Settings) -> None:
        self._trusted = settings.server.trusted_proxies
        self._trusts_loopback = settings.access.trust_loopback

    def is_local(self, scope: Scope, forwarded: bool) -> bool:
        """Whether the client is on this machine; one whom only an unknown proxy knows is not."""
        if not self._trusts_loopback:
            return False
        peer = _parse_address((scope.get("client") or ("",))[0])
        if not forwarded:
            return peer is not None and peer.is_loopback
        if peer is None or not self._trusts(peer):
            return False
        lines = Headers(raw=scope["headers"]).getlist("x-forwarded-for")
        client = None
        # Each proxy adds its peer at the end: what the client itself claims stands before that.
        for text in reversed(",".join(lines).split(",")):
            client = _parse_address(text.strip())
            if client is None or not self._trusts(client):
                break
        return client is not None and client.is_loopback

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


@lru_cache(maxsize=1024)
def _parse_address(text: str) -> Address | None:
    """An IP address with or without a port; IPv4 in IPv6 as IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class HostCheck:
    """Refuses requests without one valid Host, and what other sites make a browser send.

    A page of another site can make its reader's browser ask any address on that machine, and can give its
    own name the address of the machine. Where no key is needed, both are refused. Browsers say the first in
    ``Sec-Fetch-Site``, or, to an address in the clear that is not loopback, in ``Origin`` alone; the
    second shows in ``Host``, which must then be a name of this machine.
    """

    def __init__(self, settings: Settings) -> None:
        self._needs_no_key = not settings.requires_key
        self._host = settings.host.strip("[]").lower()
        # Elsewhere nobody knows by which names a machine is reached.
        self._local = is_loopback(settings.host)
        self._origins = settings.server.cors_origins

    def check(self, scope: Scope) -> None:
        """Refuse with 400 what names no host, with 403 what only a page of another site would send."""
        headers = Headers(raw=scope["headers"])
        hosts, site, origin = (
            headers.getlist("host"),
            headers.get("sec-fetch-site"),
            headers.get("origin"),
        )
        least = 0 if scope.get("http_version") == "1.0" else 1
        if not least <= len(hosts) <= 1 or not all(map(_HOST.fullmatch, hosts)):
            message = "A request must have one valid Host header."
            raise Refusal(400, message, code="invalid_host", headers={"Connection": "close"})
        if not self._needs_no_key or scope["path"] in _OPEN_PATHS:
            return
        if hosts and self._local:
            self._check_local(hosts[0])
        foreign = site in ("cross-site", "same-site")
        if origin is not None and site is None:
            foreign = origin.partition("://")[2].lower() != "".join(hosts).lower()
        # The page itself may be reached by a link.
        if foreign and origin not in self._origins and scope["path"] != "/":
            raise Refusal(
                403,
                "Pages of other sites may not use this gateway, because it requires no key.",
                code="cross_site_request",
            )

    def _check_local(self, host: str) -> None:
        text = host.lower()
        name = text[1:].partition("]")[0] if text[0] == "[" else text.partition(":")[0].rstrip(".")
        if not (name == self._host or is_loopback(name) or name.endswith(".localhost")):
            raise Refusal(
                403,
                "The Host header must be localhost or a loopback address, because this gateway requires "
                "no key; with require_key = true, any name is accepted.",
                code="unknown_host",
            )

"""Checks before a request is handled: Host, browsers, proxies, keys, requests in flight, the body."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.responses import Response

from mild_gateway.access.keys import ANONYMOUS, invalid_key
from mild_gateway.config import Settings
from mild_gateway.experts.expert import is_loopback
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import LimitedBody, Message, Receive, body_too_large
from mild_gateway.server.in_flight import RequestsInFlight

if TYPE_CHECKING:
    from mild_gateway.server.context import AppContext

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Scope = MutableMapping[str, Any]
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
_OPEN_PATHS = ("/health", "/health/live", "/health/ready")
# The page holds no figures, and asks for a key itself.
_PAGE_PATH = "/"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{0,5})?")
# Headers that proxies and tunnels add.
_PROXY_HEADER = re.compile(
    r"forwarded|x-(?:forwarded|original-|envoy-)|cf-|via$|[a-z-]*(?:real|client)-ip$"
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def refusal_response(refusal: Refusal, path: str = "") -> Response:
    """A refusal as a response, in the shape of the API of a path."""
    return Response(refusal.body(path), refusal.status, refusal.headers, "application/json")


def error_response(context: AppContext, error: Exception, scope: Scope) -> Response:
    """The answer to a request that met an error of our own, which is counted and logged."""
    context.metrics.add("mild_errors_total")
    event = ("internal", type(error).__name__)
    context.events.note(event, "error while serving a request", logging.ERROR, error)
    message = "The gateway failed to serve this request."
    # The server closes the connection when the error reaches it.
    headers = {"Connection": "close"}
    if "mild.request_id" in scope:
        headers["x-mild-request-id"] = scope["mild.request_id"]
    refusal = Refusal(500, message, code="internal_error", headers=headers)
    return refusal_response(refusal, scope["path"])


def authorization_of(headers: Headers) -> str | None:
    """The value of ``Authorization``, or the key in ``x-api-key`` in its form."""
    authorization = headers.get("authorization")
    if authorization:
        return authorization
    key = headers.get("x-api-key")
    if key is None:
        return None
    return f"Bearer {key}"


def name_request(number: bytes | None = None) -> str:
    """The id of a request from its twelve bytes; without them, a new one."""
    return f"mild-{(number or secrets.token_bytes(12)).hex()}"


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
        self._limits = settings.limits
        self._in_flight = RequestsInFlight(
            settings.limits.max_in_flight, lambda: context.access.has_one_caller
        )
        # Without a key because the gateway is reached from this machine alone; a proxy makes that untrue.
        self._trusts_machine = settings.access.require_key is None and not settings.requires_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(raw=scope["headers"])
        send = self._named_answers(send, headers.get("x-request-id", ""))
        is_counted = scope["method"] == "POST" and scope["path"] in _COUNTED
        try:
            self._check(scope, headers)
            if is_counted:
                await self._admit(scope, headers)
        except Refusal as refusal:
            self._context.refused(refusal)
            await refusal_response(refusal, scope["path"])(scope, receive, send)
            return
        body = LimitedBody(receive, self._limits)
        if not is_counted:
            await self._app(scope, body, send)
            return
        with self._counting(scope):
            await self._app(scope, body, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse what must not come in, whoever asks."""
        self._hosts.check(scope)
        is_forwarded = any(_PROXY_HEADER.match(name) for name in headers)
        scope["mild.local"] = self._proxies.is_local(scope, is_forwarded)
        if is_forwarded and self._trusts_machine and not scope["mild.local"]:
            self._check_key(scope, headers)
        # A path has one spelling: what a proxy refuses must not come in under another.
        is_encoded = b"%" in scope.get("raw_path", b"")
        if is_encoded and not scope["path"].startswith("/v1/models/"):
            raise Refusal(404, "There is no such endpoint.", code="not_found")
        if int(headers.get("content-length") or 0) > self._limits.max_body_bytes:
            raise body_too_large(self._limits.max_body_bytes)

    async def _admit(self, scope: Scope, headers: Headers) -> None:
        """Check key and rate, and take a place among the requests in flight."""
        access = self._context.access
        caller = access.identify(authorization_of(headers))
        await access.admit(caller)
        scope["mild.caller"] = caller
        if not self._in_flight.enter(caller.scope):
            message = "The gateway has no room for another request of this key at the moment."
            raise Refusal(429, message, code="overloaded", retry_after=1.0)

    @contextmanager
    def _counting(self, scope: Scope) -> Iterator[None]:
        """Count a request that was admitted, and give its place back when it has ended."""
        context = self._context
        task = asyncio.current_task()
        assert task is not None
        context.running.add(task)
        context.metrics.add("mild_in_flight")
        try:
            yield
        finally:
            context.running.discard(task)
            context.metrics.add("mild_in_flight", by=-1)
            self._in_flight.leave(scope["mild.caller"].scope)

    def _named_answers(self, send: Send, client_id: str) -> Send:
        """A ``send`` that adds ``x-request-id``: the client's, if valid, or the gateway's own id.

        While the gateway stops, it adds ``Connection: close``, too: the next request should go elsewhere.
        """

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = Headers(raw=message.get("headers", []))
                request_id = client_id
                if not _REQUEST_ID.fullmatch(client_id):
                    request_id = headers.get("x-mild-request-id") or name_request()
                added = [(b"x-request-id", request_id.encode("latin-1"))]
                if self._context.draining:
                    added.append((b"connection", b"close"))
                message["headers"] = [*headers.raw, *added]
            await send(message)

        return send_named

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        if scope["path"] in _OPEN_PATHS or scope["path"] == _PAGE_PATH:
            return
        caller = self._context.access.identify(authorization_of(headers))
        if caller.scope == ANONYMOUS:
            raise invalid_key(
                "An API key is required: the request came through a proxy, and only requests from the "
                "gateway's own machine need none. Send the header Authorization: Bearer KEY."
            )


class ProxyCheck:
    """Tells whether a request was made on this machine, or came to it through a proxy."""

    def __init__(self, settings: Settings) -> None:
        self._trusted = settings.server.trusted_proxies
        # Where keys are required, a proxy on this machine must not open what is for this machine.
        self._trusts_loopback = settings.access.require_key is not True

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
        host = self._host_of(scope, headers)
        if not self._needs_no_key or scope["path"] in _OPEN_PATHS:
            return
        if host and self._local:
            self._check_local(host)
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        is_foreign = site in ("cross-site", "same-site")
        if origin is not None and site is None:
            is_foreign = origin.partition("://")[2].lower() != host.lower()
        # The page itself may be reached by a link.
        if is_foreign and origin not in self._origins and scope["path"] != _PAGE_PATH:
            raise Refusal(
                403,
                "Pages of other sites may not use this gateway, because it requires no key.",
                code="cross_site_request",
            )

    def _host_of(self, scope: Scope, headers: Headers) -> str:
        """The Host header; empty where HTTP/1.0 leaves it out."""
        hosts = headers.getlist("host")
        if not hosts and scope.get("http_version") == "1.0":
            return ""
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
            message = "A request must have one valid Host header."
            raise Refusal(400, message, code="invalid_host", headers={"Connection": "close"})
        return hosts[0]

    def _check_local(self, host: str) -> None:
        text = host.lower()
        name = (
            text[1:].partition("]")[0]
            if text.startswith("[")
            else text.partition(":")[0].rstrip(".")
        )
        if not (name == self._host or is_loopback(name) or name.endswith(".localhost")):
            raise Refusal(
                403,
                "The Host header must be localhost or a loopback address, because this gateway requires "
                "no key; with require_key = true, any name is accepted.",
                code="unknown_host",
            )

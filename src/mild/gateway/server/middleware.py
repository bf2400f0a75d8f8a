"""Checks before a request is handled: Host, other sites' browsers, size of the body, requests in flight."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from mild.gateway.config import Settings, is_loopback
from mild.gateway.refusals import Refusal

if TYPE_CHECKING:
    from mild.gateway.server.app import AppContext

__all__ = ["COMPLETIONS", "HostCheck", "RequestGuard", "refusal_response"]

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
# These say nothing that matters, and are asked for under any name.
_OPEN_PATHS = ("/health", "/health/liveliness", "/health/readiness")
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{0,5})?")


def refusal_response(refusal: Refusal, path: str = "") -> Response:
    """A refusal as a response, in the shape of the API of a path."""
    return Response(refusal.body(path), refusal.status, refusal.headers, "application/json")


class RequestGuard:
    """ASGI middleware with the checks that every request passes.

    Completions go straight to their handler, past Starlette's routing, to save time.
    """

    def __init__(self, app: Any, context: AppContext, completions: Any) -> None:
        self._app = app
        self._context = context
        self._completions = completions
        self._hosts = HostCheck(context.settings)
        self._max_body = context.settings.limits.max_body_bytes
        self._max_in_flight = context.settings.limits.max_in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        completes = scope["method"] == "POST" and scope["path"] in COMPLETIONS
        context = self._context
        try:
            self._hosts.check(scope)
            # A path has one spelling: what a proxy refuses must not come in under another.
            encoded = b"%" in scope.get("raw_path", b"")
            if encoded and not scope["path"].startswith("/v1/models/"):
                raise Refusal(404, "There is no such endpoint.", code="not_found")
            if completes and context.total_in_flight >= self._max_in_flight:
                message = "The gateway has no room for another request at the moment."
                raise Refusal(429, message, code="overloaded", retry_after=1.0)
            for name, value in scope["headers"]:
                if name == b"content-length" and (
                    len(value) > 18 or int(value or 0) > self._max_body
                ):
                    raise self._too_large()
        except Refusal as refusal:
            context.metrics.refused(refusal.status)
            await refusal_response(refusal, scope["path"])(scope, receive, send)
            return
        if not completes:
            await self._app(scope, self._limited(receive), send)
            return
        context.count_in_flight(1)
        try:
            await self._completions(scope, self._limited(receive), send)
        except Refusal as refusal:
            context.metrics.refused(refusal.status)
            await refusal_response(refusal, scope["path"])(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            context.count_in_flight(-1)

    def _limited(self, receive: Receive) -> Receive:
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_body:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> Refusal:
        message = f"The body must have at most {self._max_body} bytes."
        return Refusal(413, message, code="request_too_large")


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
        self._local = is_loopback(settings.host) and not settings.host.startswith("/")

    def check(self, scope: Scope) -> None:
        """Refuse with 400 what names no host, with 403 what only a page of another site would send."""
        hosts = []
        site = origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"origin":
                origin = value
        least = 0 if scope.get("http_version") == "1.0" else 1
        if not least <= len(hosts) <= 1 or not all(map(_HOST.fullmatch, hosts)):
            message = "A request must have one valid Host header."
            raise Refusal(400, message, code="invalid_host", headers={"Connection": "close"})
        if not self._needs_no_key or scope["path"] in _OPEN_PATHS:
            return
        if hosts and self._local:
            self._check_local(hosts[0])
        foreign = site in (b"cross-site", b"same-site")
        if origin is not None and site is None:
            foreign = origin.partition(b"://")[2].lower() != b"".join(hosts).lower()
        # The page itself may be reached by a link.
        if foreign and scope["path"] != "/":
            raise Refusal(
                403,
                "Pages of other sites may not use this gateway, because it needs no key.",
                code="cross_site_request",
            )

    def _check_local(self, host: bytes) -> None:
        text = host.decode("ascii").lower()
        name = text[1:].partition("]")[0] if text[0] == "[" else text.partition(":")[0].rstrip(".")
        if name != self._host and not is_local_name(name):
            raise Refusal(
                403,
                "The Host header must be localhost or a loopback address, because this gateway needs "
                "no key; with require_key = true any name will do.",
                code="unknown_host",
            )


def is_local_name(name: str) -> bool:
    """Whether a name can only mean this machine.

    Examples
    --------
    >>> is_local_name("localhost"), is_local_name("127.0.0.1"), is_local_name("evil.example")
    (True, True, False)
    """
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

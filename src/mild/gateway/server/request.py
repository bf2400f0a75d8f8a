"""A request as the endpoints see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mild.gateway.refusals import Refusal

__all__ = ["Reply", "Request", "json_reply"]

JSON = b"application/json"


class ClientGoneError(Exception):
    """The client left before its request was whole."""


class Request:
    """Head and body of one request, and the way to answer it."""

    __slots__ = ("_receive", "headers", "method", "path", "scope", "send")

    def __init__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self.send = send

    def header(self, name: bytes) -> str | None:
        """Value of a header, the first of its name."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return None

    async def body(self, most: int) -> bytes:
        """The body; refused with 413 if it is longer than ``most`` bytes."""
        said = self.header(b"content-length")
        if said is not None and said.isdigit() and int(said) > most:
            raise _too_long(most)
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise _too_long(most)
            if not message.get("more_body", False):
                return piece if not pieces else b"".join([*pieces, piece])
            pieces.append(piece)

    async def left(self) -> None:
        """Wait until the client has left."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Begin the response."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, body: bytes, more: bool = True) -> None:
        """Send a piece of the response; the last without ``more``."""
        await self.send({"type": "http.response.body", "body": body, "more_body": more})


class Reply:
    """A whole response."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        body: bytes,
        kind: bytes = JSON,
        status: int = 200,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(body)),
            *(headers or []),
        ]

    async def send(self, request: Request) -> None:
        """Send it."""
        await request.start(self.status, self.headers)
        await request.write(self.body, more=False)


def json_reply(content: Any, status: int = 200) -> Reply:
    """A document as JSON."""
    import json

    return Reply(json.dumps(content).encode("ascii"), status=status)


def refusal_reply(refusal: Refusal, headers: list[tuple[bytes, bytes]] | None = None) -> Reply:
    """A refusal with its headers."""
    own = [
        (name.lower().encode("ascii"), value.encode("latin-1", "replace"))
        for name, value in refusal.headers.items()
    ]
    return Reply(refusal.body(), status=refusal.status, headers=[*own, *(headers or [])])


def _too_long(most: int) -> Refusal:
    return Refusal(413, f"The body must have at most {most} bytes.", code="request_too_large")

"""The head of a request, as ASGI has it."""

from __future__ import annotations

from typing import Any

from mild.gateway.server.exchange import Exchange, Link

__all__ = ["TooLongError", "begin_exchange", "head_size"]

_ASGI = {"version": "3.0"}
# The task of a request is cancelled when its client leaves: nobody has to watch for it.
_EXTENSIONS: dict[str, dict[str, Any]] = {"mild.cancels": {}}


class TooLongError(Exception):
    """More than a request may have."""


def head_size(headers: list[tuple[bytes, bytes]]) -> int:
    """Bytes of the headers as they came, with colons and line ends."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


def begin_exchange(
    link: Link,
    parser: Any,
    url: bytes,
    headers: list[tuple[bytes, bytes]],
    client: tuple[str, int] | None,
    last: bool,
) -> Exchange:
    """The exchange of a request whose head was read; ``last`` if no other may follow it."""
    path, _, query = url.partition(b"?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": _ASGI,
        "http_version": parser.get_http_version(),
        "method": parser.get_method().decode("ascii"),
        "scheme": "http",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": client,
        "server": None,
        "extensions": _EXTENSIONS,
    }
    if scope["http_version"] == "1.0" and any(name == b"transfer-encoding" for name, _ in headers):
        # Somebody on the way may have understood no chunks, and taken them for a request.
        last = True
    expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
    return Exchange(link, scope, bool(parser.should_keep_alive()) and not last, expects)

"""The head of a request, as ASGI has it."""

from __future__ import annotations

from typing import Any

from mild.gateway.server.exchange import Exchange, Link

__all__ = ["TooLongError", "begin_exchange", "head_size", "plain_head"]

_ASGI = {"version": "3.0"}
# The task of a request is cancelled when its client leaves: nobody has to watch for it.
_EXTENSIONS: dict[str, dict[str, Any]] = {"mild.cancels": {}}


class TooLongError(Exception):
    """More than a request may have."""


def head_size(headers: list[tuple[bytes, bytes]]) -> int:
    """Bytes of the headers as they came, with colons and line ends."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


def plain_head(parser: Any, url: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of a request that offers HTTP/2, without the offer; empty for other upgrades.

    A server may pass over an offer. Clients such as Java's make it with every first request.
    """
    offers = [value.strip().lower() for name, value in headers if name == b"upgrade"]
    method = parser.get_method()
    if offers != [b"h2c"] or method == b"CONNECT":
        return b""
    lines = [b"%b %b HTTP/%b" % (method, url, parser.get_http_version().encode("ascii"))]
    for name, value in headers:
        if name == b"connection":
            words = (word.strip() for word in value.split(b","))
            value = b", ".join(w for w in words if w.lower() not in (b"upgrade", b"http2-settings"))
        elif name in (b"upgrade", b"http2-settings"):
            continue
        if b"\r" in value or b"\n" in value:
            return b""
        if value or name != b"connection":
            lines.append(name + b": " + value)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def begin_exchange(
    link: Link,
    parser: Any,
    url: bytes,
    headers: list[tuple[bytes, bytes]],
    client: tuple[str, int] | None,
    last: bool,
) -> Exchange:
    """The exchange of a request whose head was read; ``last`` if no other may follow it.

    Raises
    ------
    ValueError
        it names no host, or more than one: who is meant would depend on who reads it
    """
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
    hosts, chunked, expects = 0, False, False
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            chunked = True
        elif name == b"expect":
            expects = value.lower() == b"100-continue"
    if scope["http_version"] == "1.0":
        # Somebody on the way may have understood no chunks, and taken them for a request.
        last = last or chunked
        hosts = hosts or 1
    if hosts != 1:
        raise ValueError("a request must have one Host header")
    return Exchange(link, scope, bool(parser.should_keep_alive()) and not last, expects)

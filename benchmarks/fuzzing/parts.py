"""An expert that watches what it is sent, and a client that reads byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Client", "Upstream", "request"]

LINES = ("POST /v1/chat/completions HTTP/1.1", "POST /v1/completions HTTP/1.1")
# What an expert may see: the gateway's own headers, and those of a client that travel.
HEADERS = {
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "content-type",
    "content-length",
    "traceparent",
    "tracestate",
    "openai-beta",
    "idempotency-key",
}
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


class Upstream:
    """Answers every request, and keeps what it should never have been sent.

    Attributes
    ----------
    wrong : sentences
    """

    def __init__(self, models: tuple[str, ...]) -> None:
        self._models = models
        self.asked = 0
        self.wrong: list[str] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head.strip().split("\r\n")
                headers = dict(one.lower().split(": ", 1) for one in lines if ": " in one)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.asked += 1
                streamed = self._look(line, set(headers), body)
                writer.write(STREAM if streamed else PLAIN)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def _look(self, line: str, names: set[str], body: bytes) -> bool:
        if line not in LINES:
            self.wrong.append(f"the line {line!r}")
        if not names <= HEADERS:
            self.wrong.append(f"the headers {sorted(names - HEADERS)}")
        try:
            document: Any = json.loads(body)
        except ValueError:
            # Python reads no number of more than 4,300 digits; what is sent on may have one.
            document = json.loads(body, parse_int=float)
        if not isinstance(document, dict) or document.get("model") not in self._models:
            self.wrong.append(f"the body {body[:80]!r}")
            return False
        return document.get("stream") is True


@dataclass
class Answer:
    """A response; ``whole`` if it ended as its head says."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False

    @property
    def closes(self) -> bool:
        return not self.whole or self.headers.get("connection") == "close"


class Client:
    """One connection, one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def ask(self, data: bytes, has_body: bool = True) -> Answer:
        """Send bytes and read one response; status 0 if the connection ended without one."""
        try:
            self.writer.write(data)
            while True:
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head.strip().split("\r\n")
                status = int(line.split()[1])
                if status >= 200:
                    break
            headers = {name.lower(): value for name, _, value in (h.partition(": ") for h in lines)}
            answer = Answer(status, headers)
        except (ConnectionError, asyncio.IncompleteReadError):
            return Answer(0)
        if not has_body:
            answer.whole = True
            return answer
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if "content-length" in headers:
                answer.body = await self.reader.readexactly(int(headers["content-length"]))
                answer.whole = True
            elif "transfer-encoding" in headers:
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    answer.body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readexactly(2)
                answer.whole = True
            else:
                answer.body = await self.reader.read()
                answer.whole = True
        return answer


def request(
    path: bytes | str, body: bytes, more: list[bytes] | None = None, method: bytes = b"POST"
) -> bytes:
    """A request as bytes; ``more`` are lines for its head."""
    shown = path.encode("ascii") if isinstance(path, str) else path
    lines = [method + b" " + shown + b" HTTP/1.1", b"host: localhost", *(more or [])]
    if body or method == b"POST":
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _answer(kind: str, choice: dict[str, Any], **more: Any) -> bytes:
    document = {"id": "a", "object": kind, "created": 1, "model": "mock", **more}
    return json.dumps({**document, "choices": [{"index": 0, **choice}]}).encode()


def _event(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


_BODY = _answer(
    "chat.completion",
    {"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"},
    usage=USAGE,
)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)
STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + _event(_answer("chat.completion.chunk", {"delta": {"content": "4"}, "finish_reason": None}))
    + _event(_answer("chat.completion.chunk", {"delta": {}, "finish_reason": "stop"}, usage=USAGE))
    + _event(b"[DONE]")
    + b"0\r\n\r\n"
)

"""Processes of the gateway's benchmark: ``python -m benchmarks.gateway_parts upstream|relay|load ...``."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

WORDS = "word " * 40
USAGE = {"prompt_tokens": 20, "completion_tokens": 40, "total_tokens": 60}
ANSWER = {
    "id": "a",
    "object": "chat.completion",
    "created": 1,
    "model": "mock",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": WORDS},
            "finish_reason": "stop",
        }
    ],
    "usage": USAGE,
}
QUESTION = (
    "A train leaves at 9:40 and arrives at 13:05. How long does the journey take, in minutes?"
)


def _chunk(delta: dict[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    kind = "chat.completion.chunk"
    event = {"id": "a", "object": kind, "created": 1, "model": "mock", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


BODY = json.dumps(ANSWER).encode()
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM = (
    HEAD
    + b"".join(_framed(_chunk({"content": word + " "}, None)) for word in WORDS.split())
    + _framed(_chunk({}, "stop"))
    + _framed(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


class Upstream(asyncio.Protocol):
    """An expert that answers at once, always the same."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            size = _length(self.buffer[:end])
            if len(self.buffer) < end + 4 + size:
                return
            body = self.buffer[end + 4 : end + 4 + size]
            self.buffer = self.buffer[end + 4 + size :]
            self.transport.write(STREAM if b'"stream": true' in body else PLAIN)


def _length(head: bytes) -> int:
    lowered = head.lower()
    place = lowered.find(b"content-length:")
    return 0 if place < 0 else int(lowered[place + 15 :].split(b"\r\n", 1)[0])


class Relay:
    """The yardstick: an ASGI application that passes bodies on through aiohttp, and does nothing else."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            import aiohttp

            await receive()
            connector = aiohttp.TCPConnector(limit=0)
            self.client = aiohttp.ClientSession(connector=connector, auto_decompress=False)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.client.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {"content-type": "application/json"}
        async with self.client.post(self.url + scope["path"], data=body, headers=headers) as answer:
            kind = (b"content-type", answer.headers["content-type"].encode())
            if answer.content_length is not None:
                content = await answer.read()
                length = (b"content-length", b"%d" % len(content))
                await send(_start(answer.status, [kind, length]))
                await send({"type": "http.response.body", "body": content})
                return
            await send(_start(answer.status, [kind]))
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, load: Load, done: asyncio.Future[None]) -> None:
        self.load = load
        self.done = done
        self.buffer = b""
        self.first = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        if self.load.left <= 0:
            self.transport.close()
            self.done.set_result(None)
            return
        self.load.left -= 1
        self.buffer, self.first = b"", 0.0
        self.start = time.perf_counter()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        if not self.buffer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"not answered: {self.buffer[:300]!r}")
        if self.load.streamed:
            if not self.first and b"data: " in self.buffer:
                self.first = time.perf_counter() - self.start
            if not self.buffer.endswith(b"\r\n0\r\n\r\n"):
                return
            self.load.seconds.append(self.first)
        else:
            if len(self.buffer) < end + 4 + _length(self.buffer[:end]):
                return
            self.load.seconds.append(time.perf_counter() - self.start)
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server closed the connection"))


class Load:
    """So many requests over so many connections."""

    def __init__(self, port: int, connections: int, count: int, streamed: bool, key: str) -> None:
        turns = [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": QUESTION},
        ]
        document = {"model": "mild", "messages": turns, "max_tokens": 100}
        if streamed:
            document["stream"] = True
        body = json.dumps(document).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"authorization: Bearer {key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.request = head.encode() + body
        self.port = port
        self.connections = connections
        self.left = count
        self.count = count
        self.streamed = streamed
        self.seconds: list[float] = []

    async def run(self) -> dict[str, float]:
        loop = asyncio.get_running_loop()
        ends = [loop.create_future() for _ in range(self.connections)]
        start = time.perf_counter()
        for end in ends:
            await loop.create_connection(lambda end=end: Client(self, end), "127.0.0.1", self.port)
        await asyncio.gather(*ends)
        taken = time.perf_counter() - start
        ordered = sorted(self.seconds)
        return {
            "rate": self.count / taken,
            "p50": ordered[len(ordered) // 2],
            "p99": ordered[int(len(ordered) * 0.99)],
        }


async def _serve_upstream(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


def main(arguments: list[str]) -> None:
    """Run one part in this process."""
    import uvloop

    part, *rest = arguments
    if part == "upstream":
        uvloop.run(_serve_upstream(int(rest[0])))
    elif part == "relay":
        import uvicorn

        uvicorn.run(
            Relay(f"http://127.0.0.1:{rest[1]}"),
            host="127.0.0.1",
            port=int(rest[0]),
            http="httptools",
            loop="uvloop",
            ws="none",
            access_log=False,
            log_level="warning",
        )
    else:
        port, connections, count, streamed, key = rest
        load = Load(int(port), int(connections), int(count), streamed == "True", key)
        print(json.dumps(uvloop.run(load.run())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""A gateway on loopback in the loop of the test, and a client that reads what it sends byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from fake_upstream import FakeUpstream
from mild.artifact import Router, RouterInfo
from mild.artifact.novelty import Novelty
from mild.policies.cascade import AgreementTable, CascadePolicy
from mild_gateway.access import Access
from mild_gateway.config import CascadeSettings, LimitSettings, RoutingSettings, Settings
from mild_gateway.experts.expert import Expert
from mild_gateway.server.context import AppContext
from mild_gateway.server.process import bind, make_server
from small_router_cases import (  # noqa: F401
    TEXTS,
    features,
    priced_router,
    scored_router,
    trading_router,
)
from waiting import PATIENCE, until


def knowing(router, known=TEXTS):
    """The router with a record of what is novel: every text but the ``known`` ones."""
    centres = router.features(list(known))
    quantiles = np.linspace(0, 0.1, 201, dtype=np.float32)
    means = np.full((2, router.n_experts), 0.5, np.float32)
    novelty = Novelty(centres, np.array([1.0, 1e9], np.float32), quantiles, means)
    return replace(router, novelty=novelty)


def cascade_router(names=("small", "medium", "large"), steps=((0, 1), (2,)), kind="number", **more):
    """A cascade that accepts what the experts of the first step agree on; ``mild-direct`` asks the last."""
    agreed, apart = [[0] * len(names)] * 60, [list(range(len(names)))] * 40
    scores = [[1.0] * len(names)] * 60 + [[0.3] * (len(names) - 1) + [0.9]] * 40
    order = [expert for step in steps for expert in step]
    codes, scores = np.array(agreed + apart)[:, order], np.array(scores)[:, order]
    table = AgreementTable.of_rows(codes, scores, np.ones(100))
    direct = scored_router(names).policy
    listed = [list(step) for step in steps]
    policy = CascadePolicy(kind, listed, more.pop("threshold", 0.9), table, direct, **more)
    return Router(policy, list(names), info=RouterInfo(fingerprint="cascade"), text=features())


class KeptLedger:
    """A ledger in memory."""

    def __init__(self):
        self.records = []
        self.published = None
        self.registered = {}
        self.dropped = self.waiting = self.waiting_bytes = self.written = 0
        self.trouble = None

    def start(self):
        pass

    def accept(self, record):
        return record

    def enqueue(self, record):
        self.records.append(record)

    def take_over(self, values):
        return False

    def register(self, fingerprint, names):
        self.registered[fingerprint] = list(names)

    def close(self, timeout=5.0):
        pass


class FakeBoard:
    """A page without content."""

    async def document(self):
        return {}

    def take(self, router):
        pass


def expert(name, upstream, **more):
    """Settings of an expert at a fake endpoint; slow machines have time to answer."""
    url = upstream if isinstance(upstream, str) else upstream.base_url
    return Expert(name, url, f"{name}-model", **{"first_byte_seconds": PATIENCE, **more})


@contextlib.asynccontextmanager
async def gateway(
    experts, router=None, *, access=None, listen=True, board=None, ledger_writer=None, **parts
):
    """A running gateway: ``port``, ``app`` (its context), ``ledger``, ``server``, ``stop()``."""
    routing = parts.pop("routing", {})
    if "cascade" in parts:
        parts["cascade"] = CascadeSettings(**parts["cascade"])
    limits = parts.pop("limits", {})
    if "access_settings" in parts:
        parts["access"] = parts.pop("access_settings")
    named = ("clock", "seed", "tracing")
    app_parts = {name: parts.pop(name) for name in named if name in parts}
    if "tracing_settings" in parts:
        parts["tracing"] = parts.pop("tracing_settings")
    settings = Settings(
        experts=tuple(experts),
        routing=RoutingSettings(**routing),
        limits=LimitSettings(**{"drain_seconds": 2.0, **limits}),
        **parts,
    )
    if router is None:
        router = priced_router(tuple(one.name for one in experts), *_costs(len(experts)))
    ledger = ledger_writer or KeptLedger()
    context = AppContext(settings, router, access or Access(settings), ledger, board, **app_parts)
    server = make_server(context)
    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([sock])
    running = SimpleNamespace(
        port=port, app=context, ledger=ledger, server=server, settings=settings, stopped=False
    )

    async def stop():
        running.stopped = True
        await server.shutdown([sock])

    running.stop = stop
    try:
        yield running
    finally:
        if not running.stopped:
            if await is_soon_idle(server):
                await end_at_once(running, sock)
            else:
                await stop()
        await asyncio.sleep(0)


async def is_soon_idle(server):
    """Whether the server has no connection and no request, or none a moment later."""
    for _ in range(10):
        if not server.server_state.connections and not server.server_state.tasks:
            return True
        await asyncio.sleep(0.001)
    return False


async def end_at_once(running, sock):
    """The end of a server without requests: uvicorn's pauses a tenth of a second for them."""
    running.app.draining = True
    for listening in running.server.servers:
        listening.close()
    sock.close()
    await running.server.lifespan.shutdown()


@contextlib.asynccontextmanager
async def solo(upstream=None, *, name="one", one=None, **parts):
    """A gateway with one expert, whose options are ``one``: the endpoint behind it, and the gateway."""
    async with (
        upstream or FakeUpstream() as up,
        gateway([expert(name, up, **(one or {}))], **parts) as g,
    ):
        yield up, g


def _costs(count):
    errors = np.linspace(0.1, 0.5, count)
    return tuple(errors), tuple(np.full(count, 0.01))


@contextlib.asynccontextmanager
async def endpoint_of(serve):
    """The address of an expert that does ``serve(reader, writer)`` with each connection."""
    handlers = set()

    async def handle(reader, writer):
        handlers.add(asyncio.current_task())
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        # What was aborted is closed in the next turn of the loop.
        await asyncio.sleep(0.01)


class Client:
    """One connection, one request after the other."""

    def __init__(self, port):
        self.port = port
        self.reader = self.writer = None

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def send(self, data):
        self.writer.write(data)

    async def ask(self, document, path="/v1/chat/completions", method="POST", **headers):
        self.send(request_bytes(document, path, method, **headers))
        return await self.answer(method)

    async def answer(self, method="POST"):
        """Read one response: status, headers, body, whether it ended as it should."""
        status = 100
        # What "Expect: 100-continue" asks for comes before the answer.
        while status == 100:
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split()[1])
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(": ") for line in lines[1:] if line)
        }
        if method == "HEAD" or status == 204:
            return SimpleNamespace(status=status, headers=headers, body=b"", whole=True)
        body, whole = await self._body(headers)
        return SimpleNamespace(status=status, headers=headers, body=body, whole=whole)

    async def _body(self, headers):
        if "content-length" in headers:
            try:
                return await self.reader.readexactly(int(headers["content-length"])), True
            except asyncio.IncompleteReadError as error:
                return error.partial, False
        if "transfer-encoding" not in headers:
            return await self.reader.read(), True
        parts = []
        while True:
            try:
                size = int(await self.reader.readuntil(b"\r\n"), 16)
                parts.append((await self.reader.readexactly(size + 2))[:-2])
            except (asyncio.IncompleteReadError, ConnectionError):
                return b"".join(parts), False
            if size == 0:
                return b"".join(parts), True


def request_bytes(document, path="/v1/chat/completions", method="POST", **headers):
    """A request as bytes; the document may be bytes already."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    if method in ("GET", "HEAD"):
        body = b""
    lines = {"host": "localhost", "content-type": "application/json", **headers}
    if "transfer-encoding" not in {name.replace("_", "-") for name in lines}:
        lines.setdefault("content-length", str(len(body)))
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


async def ask(port, document, path="/v1/chat/completions", method="POST", **headers):
    """One request on a connection of its own."""
    async with Client(port) as client:
        return await client.ask(document, path, method, **headers)


def reply(status, content, **headers):
    """An answer of an expert, as bytes, for the script of a fake endpoint."""
    content = content if isinstance(content, bytes) else content.encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = {"content-type": "application/json", "content-length": len(content), **named}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + content


def chat(text="What is 2 + 2?", model="mild", **more):
    """The body of a chat request."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def events(body):
    """The data of the events in a body."""
    return [part[6:] for part in body.decode().split("\n\n") if part.startswith("data: ")]


def said(body):
    """The text of a streamed chat answer."""
    found = []
    for data in events(body):
        if data != "[DONE]":
            found.extend(
                choice.get("delta", {}).get("content") or ""
                for choice in json.loads(data).get("choices", [])
            )
    return "".join(found).strip()


async def rows(running, count=1):
    """The ledger's records, once there are so many."""
    await until(lambda: len(running.ledger.records) >= count)
    return running.ledger.records


async def idle(running):
    """Return when the gateway has no connection and no request."""
    state = running.server.server_state
    await until(lambda: not state.connections and running.app.in_flight == 0)

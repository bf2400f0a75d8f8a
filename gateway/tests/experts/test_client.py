"""The HTTP client of experts: framing, TLS, proxies, kept connections, time limits."""

import asyncio
import contextlib
import inspect
import re
import shutil
import ssl
import subprocess
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from pydantic import ValidationError

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, expert, gateway
from mild_gateway.experts.client import EndpointClient, TimeLimits, proxy_for
from mild_gateway.experts.errors import ExpertError, retry_after
from mild_gateway.experts.expert import Expert
from waiting import PATIENCE, until


def client_at(base_url, **settings):
    return EndpointClient(Expert("one", base_url=base_url, model="m", **settings))


def raw(answer, *requests):
    """What the client makes of raw answers, one after the other; a piece of None closes."""

    async def serve(reader, writer):
        for piece in answer:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        expert = Expert("one", f"http://127.0.0.1:{port}/v1/", "m")
        client = EndpointClient(expert, TimeLimits(PATIENCE, 0.5, 0.5, PATIENCE))
        found = []
        try:
            for _ in range(max(1, len(requests))):
                got = await client.post("/x", b"{}")
                try:
                    found.append((got.status, await got.read_all()))
                finally:
                    got.close()
        finally:
            await client.close()
            server.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            b"abc",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx: y\r\n\r\n",
            b"ab",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", b"x"),
        (
            b"HTTP/1.1 103 Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
            b"x",
        ),
    ],
)
def test_bodies_of_every_framing_are_read(answer, body):
    assert raw([answer]) == [(200, body)]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc", "cut"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", "cut"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", "cut"),
        (b"", "cut"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc", "garbled"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n", "garbled"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\nabc", "garbled"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", "garbled"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", "garbled"),
        (b"SSH-2.0-OpenSSH\r\n", "garbled"),
        (
            b"HTTP/1.1 200 OK\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(300)) + b"\r\n",
            "garbled",
        ),
    ],
)
def test_what_is_not_whole_or_not_http_is_a_fault(answer, kind):
    with pytest.raises(ExpertError) as caught:
        raw([answer])
    assert caught.value.kind == kind


def test_a_second_request_uses_the_same_connection():
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"
    assert raw([answer, answer], 1, 2) == [(200, b"x"), (200, b"x")]


@pytest.mark.parametrize("url", ["ftp://x/v1", "x/v1", "http://", "https:///v1"])
def test_an_address_must_be_one(url):
    with pytest.raises(ValidationError, match="base_url"):
        client_at(url)


def test_a_header_must_be_one_line():
    with pytest.raises(ValidationError, match="headers"):
        client_at("http://x/v1", headers={"x": "a\r\nb: c"})


class TlsUpstream(FakeUpstream):
    def __init__(self, context):
        super().__init__("tls")
        self.context = context

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"https://127.0.0.1:{self.port}/v1"
        return self


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_is_checked(tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def run():
        async with TlsUpstream(context) as up, gateway([expert("one", up)]) as g:
            plain = await ask(g.port, chat())
            stream = await ask(g.port, chat(stream=True))
            return plain.status, stream.status, stream.whole

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert asyncio.run(run()) == (200, 200, True)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert asyncio.run(run())[0] == 502


@contextlib.asynccontextmanager
async def client_of(serve, total_seconds=60.0, limits=None):
    """A client whose expert serves its connections by a function of reader and writer."""
    writers = []

    async def noted(reader, writer):
        writers.append(writer)
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(noted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    limits = limits or TimeLimits(PATIENCE, PATIENCE, PATIENCE, total_seconds)
    client = EndpointClient(Expert("one", f"http://127.0.0.1:{port}", "m"), limits)
    try:
        yield client
    finally:
        await client.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)


async def test_a_connection_whose_answer_was_not_taken_is_not_used_again():
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 400000\r\n\r\n" + b"x" * 400_000

    async def serve(reader, writer):
        while await reader.read(65_536):
            writer.write(answer)

    async with client_of(serve) as client:
        for _ in range(20):
            got = await client.post("/x", b"{}")
            # The client does not read, and then leaves.
            await asyncio.sleep(0.02)
            got.close()
        got = await client.post("/x", b"{}")
        size = len(await got.read_all())
        got.close()
        assert size == 400_000


def repeats(seconds):
    """How often a request reaches an expert that closes kept connections, after so many seconds."""
    asked = []

    async def serve(reader, writer):
        for step in range(2):
            if not await reader.read(65_536):
                return
            asked.append(step)
            if step or len(asked) > 5:
                await asyncio.sleep(seconds)
                return
            await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")

    async def run():
        async with client_of(serve) as client:
            for got in await asyncio.gather(*(client.post("/x", b"{}") for _ in range(5))):
                await got.read_all()
                got.close()
            with pytest.raises(ExpertError, match="cut"):
                await client.post("/x", b"{}")
            return len(asked) - 5

    return asyncio.run(run())


def test_a_request_is_sent_at_most_twice_however_many_connections_were_kept(monkeypatch):
    monkeypatch.setattr("mild_gateway.experts.client.STALE_SECONDS", PATIENCE)
    assert repeats(0.0) == 2


def test_a_request_that_an_expert_was_at_work_on_is_not_sent_again(monkeypatch):
    monkeypatch.setattr("mild_gateway.experts.client.STALE_SECONDS", 0.05)
    assert repeats(0.2) == 1


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(monkeypatch):
    """The expert reads a second request on each connection and closes it without an answer."""
    monkeypatch.setattr("mild_gateway.experts.client.STALE_SECONDS", PATIENCE)
    asked = []

    async def serve(reader, writer):
        while await reader.read(65_536):
            asked.append(writer)
            if asked.count(writer) > 1:
                return
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")

    async with client_of(serve) as client:
        for _ in range(3):
            response = await client.post("/x", b"{}")
            assert await response.read_all() == b"x"
            response.close()
    assert len(asked) == 4


async def test_the_limit_of_the_first_byte_counts_from_the_connection():
    limits = TimeLimits(connect=PATIENCE, first_byte=0.05, idle=PATIENCE, total=PATIENCE)

    async def serve(reader, writer):
        await reader.read()

    async with client_of(serve, limits=limits) as client:
        with pytest.raises(ExpertError, match="no first byte came in time") as caught:
            await client.post("/x", b"{}", streamed=True)
    assert caught.value.kind == "timeout"


async def test_a_pause_within_an_answer_is_limited():
    limits = TimeLimits(connect=PATIENCE, first_byte=PATIENCE, idle=0.05, total=PATIENCE)

    async def serve(reader, writer):
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx")
        await reader.read()

    async with client_of(serve, limits=limits) as client:
        response = await client.post("/x", b"{}")
        with pytest.raises(ExpertError, match="nothing more came in time") as caught:
            await response.read_all()
        response.close()
    assert caught.value.kind == "timeout"


def test_only_documented_parts_of_aiohttp_are_used():
    """No subclass, no private attribute, and nothing of a connection's protocol."""
    source = Path(inspect.getsourcefile(EndpointClient)).read_text()
    assert not re.search(r"class \w+\(aiohttp\.", source)
    assert not re.search(r"aiohttp\._|aiohttp\.\w+\._", source)
    assert ".protocol" not in source


def test_an_expert_that_goes_on_behind_the_end_of_its_stream_is_broken_off(monkeypatch):
    monkeypatch.setattr("mild_gateway.experts.client.DRAIN_SECONDS", 0.2)
    gone = []

    async def serve(reader, writer):
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            gone.append(True)

    async def run():
        async with client_of(serve) as client:
            got = await client.post("/x", b"{}")
            await got.read()
            got.close(finished=True)
            await until(lambda: gone)

    asyncio.run(run())


@pytest.mark.parametrize("piece", [b": ping\n\n", b"data: x\n\n"])
def test_a_call_that_never_ends_is_ended_after_the_total_time(piece):
    async def serve(reader, writer):
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)

    async def run():
        async with client_of(serve, total_seconds=0.3) as client:
            got = await client.post("/x", b"{}")
            try:
                while await got.read():
                    pass
            finally:
                got.close()

    with pytest.raises(ExpertError) as caught:
        asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert caught.value.kind == "timeout"


async def test_redirects_are_not_followed_and_the_key_goes_nowhere_else():
    elsewhere = []

    async def other(reader, writer):
        elsewhere.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def serve(reader, writer):
        await reader.read(65_536)
        line = f"HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:{port}/v1/x\r\n"
        writer.write(line.encode() + b"content-length: 0\r\n\r\n")

    async with client_of(serve) as client:
        got = await client.post("/x", b"{}", {"authorization": "Bearer sk-secret"})
        got.close()
    server.close()
    assert got.status == 307
    assert elsewhere == []


async def test_a_proxy_of_the_environment_is_used_except_for_this_machine(monkeypatch):
    seen = []

    async def proxy(reader, writer):
        seen.append((await reader.readuntil(b"\r\n")).decode())
        await reader.read(65_536)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    client = client_at("http://expert.invalid/v1")
    try:
        got = await client.post("/chat/completions", b"{}")
        body = await got.read_all()
        got.close()
    finally:
        await client.close()
        server.close()
    assert body == b"ok"
    assert seen == ["POST http://expert.invalid/v1/chat/completions HTTP/1.1\r\n"]
    assert proxy_for("http://127.0.0.1:9/v1") is None
    assert proxy_for("http://localhost/v1") is None
    monkeypatch.setenv("no_proxy", "expert.invalid")
    assert proxy_for("http://expert.invalid/v1") is None


def test_retry_after_may_be_a_date_and_is_an_hour_at_most():
    seconds = retry_after({"Retry-After": formatdate(time.time() + 90, usegmt=True)})
    assert 85 < seconds <= 90
    assert retry_after({"Retry-After": formatdate(0, usegmt=True)}) == 0
    assert retry_after({"Retry-After": "999999999"}) == 3600


@pytest.mark.parametrize(
    "said",
    [
        *("nan", "inf", "", "Mon, 99 Foo 2020", "\xff"),
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999",
    ],
)
def test_nonsense_is_no_wait(said):
    assert retry_after({"Retry-After": said}) is None

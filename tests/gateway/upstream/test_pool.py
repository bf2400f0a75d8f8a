"""Connections to experts: TLS, addresses, headers, bodies without a length."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess

import pytest

from gateway.fake_upstream import FakeUpstream
from gateway.gateway_cases import ask, chat, expert, gateway
from mild.errors import InvalidInputError
from mild.gateway.settings import ExpertSettings
from mild.endpoints.client import ExpertError
from mild.gateway.upstream.pool import Pool


def raw(answer, *requests):
    """What a pool makes of raw answers, one after the other; a piece of None closes."""

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
        settings = ExpertSettings(
            "e", f"http://127.0.0.1:{port}/v1/", "m", first_byte_seconds=0.5, idle_seconds=0.5
        )
        pool = Pool(settings)
        found = []
        try:
            for _ in range(max(1, len(requests))):
                got = await pool.ask("/x", b"{}")
                try:
                    found.append((got.status, await got.whole()))
                finally:
                    got.close()
        finally:
            await pool.close()
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
        (b"SSH-2.0-OpenSSH\r\n", "garbled"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "garbled"),
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
    with pytest.raises(InvalidInputError, match="base_url"):
        Pool(ExpertSettings("e", url, "m"))


def test_a_header_must_be_one_line():
    with pytest.raises(InvalidInputError, match="one line"):
        Pool(ExpertSettings("e", "http://x/v1", "m", headers={"x": "a\r\nb: c"}))


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
async def pool_of(serve):
    """A pool whose expert serves its connections by a function of reader and writer."""
    writers = []

    async def noted(reader, writer):
        writers.append(writer)
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(noted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = Pool(ExpertSettings("e", f"http://127.0.0.1:{port}", "m", first_byte_seconds=1.0))
    try:
        yield pool
    finally:
        await pool.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)


def test_a_connection_whose_answer_was_not_taken_is_not_used_again():
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 400000\r\n\r\n" + b"x" * 400_000

    async def serve(reader, writer):
        while await reader.read(65_536):
            writer.write(answer)

    async def run():
        async with pool_of(serve) as pool:
            for _ in range(20):
                got = await pool.ask("/x", b"{}")
                # The client does not read, and then leaves.
                await asyncio.sleep(0.02)
                got.close()
            got = await pool.ask("/x", b"{}")
            size = len(await got.whole())
            got.close()
            return size

    assert asyncio.run(run()) == 400_000


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
        async with pool_of(serve) as pool:
            for got in await asyncio.gather(*(pool.ask("/x", b"{}") for _ in range(5))):
                await got.whole()
                got.close()
            with pytest.raises(ExpertError, match="cut"):
                await pool.ask("/x", b"{}")
            return len(asked) - 5

    return asyncio.run(run())


def test_a_request_is_sent_at_most_twice_however_many_connections_were_kept():
    assert repeats(0.0) == 2


def test_a_request_that_an_expert_was_at_work_on_is_not_sent_again(monkeypatch):
    monkeypatch.setattr("mild.gateway.upstream.pool.STALE_SECONDS", 0.05)
    assert repeats(0.2) == 1


def test_an_expert_that_goes_on_behind_the_end_of_its_stream_is_broken_off(monkeypatch):
    monkeypatch.setattr("mild.gateway.upstream.pool.LAST_SECONDS", 0.2)

    async def serve(reader, writer):
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def run():
        async with pool_of(serve) as pool:
            got = await pool.ask("/x", b"{}")
            await got.read()
            got.close(over=True)
            await asyncio.sleep(0.6)
            return len(pool._all)

    assert asyncio.run(run()) == 0


def test_connections_that_nobody_uses_are_closed(monkeypatch):
    monkeypatch.setattr("mild.gateway.upstream.pool.KEPT_SECONDS", 0.2)

    async def run():
        async with (
            FakeUpstream(delay=0.1) as up,
            gateway([expert("one", up)]) as g,
        ):
            await asyncio.gather(*(ask(g.port, chat()) for _ in range(4)))
            pool = g.app.clients["one"].pool
            kept = len(pool._all)
            await asyncio.sleep(0.3)
            pool.tidy()
            await asyncio.sleep(0.05)
            return kept, len(pool._all), (await ask(g.port, chat())).status

    assert asyncio.run(run()) == (4, 0, 200)

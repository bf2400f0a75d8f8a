"""Connections to experts: TLS, addresses, headers, bodies without a length."""

import asyncio
import shutil
import ssl
import subprocess

import pytest

from gateway.fake_upstream import FakeUpstream
from gateway.gateway_cases import ask, chat, expert, gateway
from mild.exceptions import InvalidInputError
from mild.gateway.settings import ExpertSettings
from mild.gateway.upstream.faults import Fault
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
    with pytest.raises(Fault) as caught:
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

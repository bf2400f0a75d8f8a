"""HTTPS by a certificate and a key, and what is said where they cannot be used."""

import asyncio
import shutil
import ssl
import subprocess

import pytest
import uvicorn

from fake_upstream import FakeUpstream
from gateway_cases import Client, chat, request_bytes, solo
from mild.errors import InvalidInputError
from mild_gateway.config import ServerSettings, Settings
from mild_gateway.config_checks import check_config, check_tls
from mild_gateway.server import event_loop
from mild_gateway.server.process import uvicorn_options
from process_cases import served, write_files
from waiting import PATIENCE

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def make_pair(folder, name="one", *more):
    """A self-signed certificate for localhost, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1"]
    command += ["-keyout", key, "-out", certificate, *(more or ("-nodes",))]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_pair(tmp_path_factory.mktemp("tls"))


class TlsClient(Client):
    def __init__(self, port, certificate):
        super().__init__(port)
        self._context = ssl.create_default_context(cafile=certificate)

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self._context, server_hostname="localhost"
        )
        return self


def serve(pair, send):
    async def run():
        server = ServerSettings(tls_certificate=pair[0], tls_key=pair[1])
        limits = {"max_body_bytes": 50_000}
        async with solo(server=server, limits=limits) as (_, g), asyncio.timeout(PATIENCE):
            return await send(g)

    return asyncio.run(run())


def test_requests_are_served_over_tls(pair):
    async def send(g):
        async with TlsClient(g.port, pair[0]) as client:
            plain = await client.ask(chat())
            streamed = await client.ask(chat(stream=True))
            return plain, streamed, client.writer.get_extra_info("ssl_object").version()

    plain, streamed, version = serve(pair, send)
    assert (plain.status, streamed.status, streamed.whole) == (200, 200, True)
    assert version in ("TLSv1.2", "TLSv1.3")


def test_a_handshake_that_is_left_half_open_ends(pair, monkeypatch):
    monkeypatch.setattr(event_loop, "HANDSHAKE_SECONDS", 0.2)

    async def run():
        server = ServerSettings(tls_certificate=pair[0], tls_key=pair[1])
        async with solo(server=server) as (_, g), asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
            end = await reader.read()
            writer.close()
            return end

    with asyncio.Runner(loop_factory=event_loop.new_event_loop) as runner:
        assert runner.run(run()) == b""


def test_uvicorn_runs_the_loop_that_limits_handshakes():
    options = uvicorn_options(Settings(experts=()))
    factory = uvicorn.Config("unused", **options).get_loop_factory()
    assert factory is event_loop.new_event_loop


@pytest.mark.parametrize(
    ("data", "status"), [(b"GARBAGE\r\n\r\n", 400), (request_bytes(b"x" * 60_000), 413)]
)
def test_what_is_refused_is_answered(pair, data, status):
    async def send(g):
        async with TlsClient(g.port, pair[0]) as client:
            client.send(data)
            return await client.answer()

    assert serve(pair, send).status == status


def test_plain_http_gets_nothing(pair):
    async def send(g):
        async with Client(g.port) as client:
            client.send(request_bytes(chat()))
            try:
                return b"HTTP" in await client.reader.read()
            except ConnectionError:
                return False

    assert serve(pair, send) is False


@pytest.mark.parametrize("by", ["file", "command"])
async def test_workers_serve_https_and_the_first_line_says_so(pair, tmp_path, by):
    tls = {"tls_certificate": str(pair[0]), "tls_key": str(pair[1])}
    lines = ["[server]", *(f'{name} = "{value}"' for name, value in tls.items())]
    async with FakeUpstream() as up:
        extra = "\n".join(lines) if by == "file" else ""
        write_files(tmp_path, [("small", up.base_url)], workers=2, extra=extra)
        async with served(tmp_path, **(tls if by == "command" else {})) as g:
            async with TlsClient(g.port, pair[0]) as client:
                found = await client.ask(chat())
            status, line, code = found.status, g.line, await g.stop()
    assert (status, code) == (200, 0)
    assert "https://127.0.0.1:" in line


def test_check_says_https_and_who_can_read_the_key(tmp_path):
    certificate, key = make_pair(tmp_path)
    file = write_tls(tmp_path, certificate, key)
    key.chmod(0o600)
    found = check_config(file).as_dict()
    assert (found["listens"], found["ok"]) == ("https://127.0.0.1:6060", True)
    assert not [one for one in found["findings"] if "tls" in one["text"]]
    for mode in (0o640, 0o604):
        key.chmod(mode)
        found = check_config(file).as_dict()
        (text,) = [one["text"] for one in found["findings"] if one["kind"] == "warning"]
        assert (
            f"line 4: server.tls_key names a file, but others can use it (mode {mode:04o})" in text
        )
        assert found["ok"]


def test_check_finds_tls_files_that_cannot_be_used(tmp_path):
    certificate, key = make_pair(tmp_path)
    key.unlink()
    found = check_config(write_tls(tmp_path, certificate, key)).as_dict()
    assert [one["kind"] for one in found["findings"] if "tls_key" in one["text"]] == ["error"]
    assert not found["ok"]


def write_tls(folder, certificate, key):
    """A configuration with these files."""
    file = folder / "mild.toml"
    file.write_text(
        f'[server]\ntls_certificate = "{certificate}"\n\ntls_key = "{key}"\n'
        '[experts.small]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    )
    return file


def test_files_that_cannot_be_used_are_named(pair, tmp_path):
    certificate, key = pair
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    other = make_pair(tmp_path, "two")[1]
    locked = make_pair(tmp_path, "three", "-passout", "pass:secret")
    for wrong, parameter in (
        ((tmp_path / "none.pem", key), "tls_certificate"),
        ((empty, key), "tls_certificate"),
        ((certificate, other), "tls_certificate"),
        (locked, "tls_key"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            check_tls(ServerSettings(tls_certificate=wrong[0], tls_key=wrong[1]))
        assert caught.value.parameter == parameter
        assert str(wrong[1]) in str(caught.value)
    check_tls(ServerSettings())
    check_tls(ServerSettings(tls_certificate=certificate, tls_key=key))

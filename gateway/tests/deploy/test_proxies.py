"""nginx and Caddy with the configurations of deploy/, other ports and paths aside, in front of gateways."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import ssl
import subprocess
from pathlib import Path

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, chat, request_bytes, solo
from mild_gateway.access.managing import add_key, open_store
from mild_gateway.config import AccessSettings
from postgres_cases import free_port
from process_cases import served, write_files
from waiting import PATIENCE, until

DEPLOY = Path(__file__).parents[3] / "deploy"
HOSTS = {"nginx": "gateway.example.com", "caddy": "localhost"}
NGINX = """
daemon off;
{user}
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/other;
    uwsgi_temp_path {folder}/other;
    scgi_temp_path {folder}/other;
    include {folder}/mild.conf;
}}
"""


def program(name):
    """The proxy, which Debian keeps where only root looks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


@pytest.fixture(params=HOSTS)
def kind(request):
    """The proxy; `apt-get install nginx-light caddy` installs both."""
    if program(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


class TlsClient(Client):
    async def __aenter__(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
        )
        return self


def replaced(text, *pairs):
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def nginx_command(folder, port, gateways):
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    text = replaced(
        (DEPLOY / "nginx.conf").read_text(),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("/etc/ssl/gateway.pem", str(certificate)),
        ("/etc/ssl/gateway.key", str(key)),
        ("127.0.0.1:6060", f"127.0.0.1:{gateways[0]}"),
        ("127.0.0.1:6061", f"127.0.0.1:{gateways[1]}"),
    )
    (folder / "mild.conf").write_text(text)
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    return [program("nginx"), "-p", folder, "-e", folder / "log", "-c", folder / "nginx.conf"], {}


def caddy_command(folder, port, gateways):
    text = replaced(
        (DEPLOY / "Caddyfile").read_text(),
        ("admin off\n", f"admin off\n\thttp_port {free_port()}\n"),
    )
    (folder / "Caddyfile").write_text(text)
    environment = {
        "MILD_SITE": f"https://localhost:{port}",
        "MILD_GATEWAYS": " ".join(f"127.0.0.1:{gateway}" for gateway in gateways),
        **dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(folder)),
    }
    command = [program("caddy"), "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile"]
    return command, environment


@contextlib.asynccontextmanager
async def proxied(kind, folder, gateways):
    """A proxy in front of gateways on these ports: a function that asks it, and its port."""
    port = free_port()
    make = nginx_command if kind == "nginx" else caddy_command
    command, environment = make(folder, port, gateways)
    with open(folder / "said", "wb") as said:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )

    async def ask(document, path="/v1/chat/completions", method="POST", **headers):
        async with TlsClient(port) as client:
            return await client.ask(document, path, method, host=HOSTS[kind], **headers)

    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "said").read_text()
            try:
                async with TlsClient(port):
                    break
            except OSError:
                await asyncio.sleep(0.1)
        yield ask, port
    finally:
        # A proxy that is asked to stop waits for its requests, and they for us.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def test_a_gateway_behind_a_proxy(kind, tmp_path):
    store = str(tmp_path / "mild.sqlite")
    with open_store(None, store) as opened:
        key = f"Bearer {add_key(opened, 'alice')}"
    settings = AccessSettings(require_key=True)
    up = FakeUpstream(script=["ok", "ok", "stall"])
    patient = {"first_byte_seconds": 60.0}
    async with (
        solo(up, one=patient, access_settings=settings, store=store) as (_, g),
        # The other gateway is away, and no request is lost by that.
        proxied(kind, tmp_path, (free_port(), g.port)) as (ask, port),
        asyncio.timeout(PATIENCE),
    ):
        large = chat()
        large["messages"].insert(0, {"role": "system", "content": "x" * 5_000_000})
        # A refusal before the body is read does not make the gateway count as away.
        without = [await ask(body) for body in (chat(), large, chat())]
        plain = await ask(chat(), authorization=key, x_request_id="mine")
        accepted = await ask(large, authorization=key)
        inside = [await ask(None, path, "GET") for path in ("/metrics", "/", "/status.json")]
        ready = await ask(None, "/health/ready", "GET")
        # The expert stops after two events; the first is there although the stream has not ended.
        async with TlsClient(port) as client, asyncio.timeout(PATIENCE):
            head = {"host": HOSTS[kind], "authorization": key}
            client.send(request_bytes(chat(stream=True), **head))
            await client.reader.readuntil(b"one ")
            client.writer.transport.abort()
    assert [without[0].status, without[2].status] == [401] * 2
    # A proxy that still sends the body when the gateway closes may not see the answer.
    assert without[1].status in (401, 502)
    assert [plain.status, accepted.status, ready.status] == [200] * 3
    assert plain.headers["x-mild-expert"] == "one"
    assert plain.headers["x-request-id"]
    assert len(up.bodies[1]) > 5_000_000
    assert [answer.status for answer in inside] == [404] * 3


class Closing(FakeUpstream):
    """Closes connections behind the first POST requests; health checks are answered."""

    closing = True

    async def _answer(self, document, line, reader, writer):
        if document and self.closing:
            return False
        return await super()._answer(document, line, reader, writer)

    def posts(self):
        return [head for line, head in self.heads if line.startswith("POST")]


async def test_the_clients_address_is_that_of_the_connection_and_a_request_is_sent_once(
    kind, tmp_path
):
    async with (
        Closing() as first,
        Closing() as second,
        proxied(kind, tmp_path, (first.port, second.port)) as (ask, _),
        asyncio.timeout(PATIENCE),
    ):
        failed = await ask(chat())
        assert (failed.status, len(first.posts() + second.posts())) == (502, 1)
        for up in (first, second):
            up.closing, up.heads = False, []
        answer = await ask(chat(), x_forwarded_for="192.0.2.1", authorization="Bearer mild-1")
        (head,) = first.posts() + second.posts()
    assert answer.status == 200
    assert json.loads(answer.body)["choices"]
    assert head["x-forwarded-for"] == "127.0.0.1"
    assert head["authorization"] == "Bearer mild-1"
    assert head["host"].split(":")[0] == HOSTS[kind]


def rows_written(folder, name):
    """Rows of a key in the ledger of a gateway; none before it has written its first."""
    file = folder / "ledger.sqlite"
    if not file.exists():
        return 0
    query = "SELECT count(*) FROM decisions WHERE key = ?"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        try:
            (count,) = connection.execute(query, [name]).fetchone()
        except sqlite3.OperationalError:
            return 0
    return count


class RunningGateway:
    """A gateway in a process of its own, which can be stopped and started again on its port."""

    def __init__(self, folder, base_url):
        self.folder = folder
        self.port = free_port()
        folder.mkdir()
        extra = 'store = "../mild.sqlite"\n[access]\nrequire_key = true'
        write_files(folder, [("small", base_url)], port=self.port, extra=extra)
        self._stack = contextlib.AsyncExitStack()

    async def start(self):
        self._served = await self._stack.enter_async_context(served(self.folder))

    async def stop(self):
        """Let it finish its requests; its exit status."""
        code = await self._served.stop()
        await self._stack.aclose()
        return code


class ProxyUnderLoad:
    """A proxy, and four clients that ask it without pause with a key of its name."""

    def __init__(self, kind, folder, store):
        self.kind = kind
        self.folder = folder
        folder.mkdir()
        self.key = f"Bearer {add_key(store, kind)}"
        self.answers = []
        self._is_over = False
        self._stack = contextlib.AsyncExitStack()

    async def start(self, ports):
        proxy = proxied(self.kind, self.folder, ports)
        ask, _ = await self._stack.enter_async_context(proxy)
        clients = [self._press(ask, number % 2 == 0) for number in range(4)]
        self._tasks = [asyncio.create_task(client) for client in clients]

    async def _press(self, ask, streamed):
        while not self._is_over:
            self.answers.append(await ask(chat(stream=streamed), authorization=self.key))
            # Fewer than the requests per second that the proxy allows.
            await asyncio.sleep(0.25)

    async def finish(self):
        """Wait for the last answers."""
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def close(self):
        await self._stack.aclose()


class RollingRestarts:
    """Three restarts of two gateways, one after the other, behind each proxy that is installed.

    The proxies share the gateways, so that the time of a restart is spent once. Each has clients of its
    own, and a gateway is stopped only when each proxy has found the other one again.
    """

    def __init__(self, folder):
        self.folder = folder
        self.codes = []
        self.answers = {}
        self.rows = {}

    async def run(self):
        with open_store(None, str(self.folder / "mild.sqlite")) as store:
            kinds = [kind for kind in HOSTS if program(kind) is not None]
            proxies = [ProxyUnderLoad(kind, self.folder / kind, store) for kind in kinds]
        async with (
            FakeUpstream(delay=0.1, keep_bodies=False) as up,
            contextlib.AsyncExitStack() as stack,
        ):
            folders = [self.folder / name for name in ("first", "second")]
            gateways = [RunningGateway(folder, up.base_url) for folder in folders]
            await asyncio.gather(*(gateway.start() for gateway in gateways))
            ports = [gateway.port for gateway in gateways]
            for proxy in proxies:
                stack.push_async_callback(proxy.close)
                await proxy.start(ports)
            for _ in range(3):
                for gateway in gateways:
                    await self._restart(gateway, kinds)
            for proxy in proxies:
                await proxy.finish()
            self.codes += await asyncio.gather(*(gateway.stop() for gateway in gateways))
        for proxy in proxies:
            rows = [rows_written(gateway.folder, proxy.kind) for gateway in gateways]
            self.rows[proxy.kind] = sum(rows)
            self.answers[proxy.kind] = proxy.answers

    async def _restart(self, gateway, kinds):
        self.codes.append(await gateway.stop())
        rows_before = {kind: rows_written(gateway.folder, kind) for kind in kinds}
        await gateway.start()
        for kind in kinds:
            # The proxy has found it again: only then may the other one be stopped.
            await until(lambda kind=kind: rows_written(gateway.folder, kind) > rows_before[kind])


@pytest.fixture(scope="module")
def rolling_restarts(tmp_path_factory):
    if not any(program(name) for name in HOSTS):
        pytest.skip(f"{' and '.join(HOSTS)} are not installed")
    restarts = RollingRestarts(tmp_path_factory.mktemp("restarts"))
    asyncio.run(restarts.run())
    return restarts


@pytest.mark.slow
def test_no_request_is_lost_in_three_rolling_restarts_under_load(kind, rolling_restarts):
    answers = rolling_restarts.answers[kind]
    assert rolling_restarts.codes == [0] * 8
    assert {(answer.status, answer.whole) for answer in answers} == {(200, True)}
    assert rolling_restarts.rows[kind] == len(answers)

"""From settings to a served port: sockets, worker processes, signals."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any

from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from mild.errors import InvalidInputError, MildError
from mild.gateway.config import LimitSettings, ServerSettings, Settings
from mild.gateway.config_checks import check_against
from mild.gateway.server.state import StateFile

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild.gateway.server.context import AppContext

# Seconds for requests that were cancelled at the end to give back what they hold.
CANCEL_SECONDS = 2.0
# Seconds beyond the drain before workers are killed.
KILL_SECONDS = 10.0
# A worker that ends is replaced at most so often.
RESTART_SECONDS = 1.0
# Files besides connections: the database, libraries, pipes.
SPARE_FILES = 128
# The ledger's thread gives way to the loop's after so long; Python's own 5 ms are many requests.
_SWITCH_SECONDS = 0.0005
_PORT_TAKEN = (errno.EADDRINUSE, errno.EACCES)

logger = logging.getLogger("mild.gateway")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket that worker processes can inherit."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host.strip("[]"), port))
        server.listen(2048)
    except OSError:
        server.close()
        raise
    server.setblocking(False)
    return server


def check_tls(server: ServerSettings) -> None:
    """Refuse a certificate and key that cannot be used; uvicorn would say so in a traceback."""
    if server.tls_certificate is None or server.tls_key is None:
        return

    def refuse_password() -> str:
        raise InvalidInputError(
            f"tls_key must be a key without a passphrase; {server.tls_key} has one.",
            parameter="tls_key",
        )

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.tls_certificate, server.tls_key, refuse_password)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise InvalidInputError(
            "tls_certificate and tls_key must be PEM files that belong together; "
            f"{server.tls_certificate} and {server.tls_key}: {reason}.",
            parameter="tls_certificate",
        ) from error


def raise_file_limit(limits: LimitSettings) -> None:
    """Let each process open as many files as its connections need, or say what it cannot have."""
    needed = limits.max_connections + limits.max_in_flight + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        print(
            f"warning: a process may open {allowed} files, and limits.max_connections and max_in_flight "
            f"need {needed}; lower them, or raise the limit (ulimit -Hn).",
            file=sys.stderr,
            flush=True,
        )


def serve_settings(
    settings: Settings,
    load: Callable[[], Router],
    what: str,
    after: Callable[[str], str] = lambda url: "",
) -> int:
    """Bind the port and serve until a signal says to stop; the exit status."""
    try:
        sock = bind(settings.host, settings.port)
    except OSError as error:
        other = "port with --port" if error.errno in _PORT_TAKEN else "address with --host"
        raise InvalidInputError(
            f"the gateway must be able to listen on {settings.host}:{settings.port}; "
            f"{error.strerror or error}. Give another {other}."
        ) from error
    port = sock.getsockname()[1]
    settings = replace(settings, port=port)
    # What cannot be served is said once, before any worker starts.
    router = load()
    check_against(settings, router)
    check_tls(settings.server)
    raise_file_limit(settings.limits)
    state = StateFile(port)

    def announce() -> None:
        state.write({"pid": os.getpid(), "port": port, "workers": settings.workers})
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "http" if settings.server.tls_certificate is None else "https"
        url = f"{scheme}://{shown}:{port}"
        print(f"mild serves {what} on {url} (model: mild){after(url)}", flush=True)

    for level, name in ((logging.WARNING, "warning"), (logging.ERROR, "error")):
        logging.addLevelName(level, name)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        if settings.workers > 1:
            supervisor = Supervisor(settings, load, sock, state, announce)
            supervisor.run()
            return int(supervisor.failed)
        # uvicorn raises the signal that ended it once more.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        _build(settings, load, None, 0, state, announce, router).run([sock])
        return 0
    finally:
        sock.close()
        state.close()


def _build(
    settings: Settings,
    load: Callable[[], Router],
    shared: Any,
    worker: int,
    state: StateFile,
    announce: Callable[[], None] = lambda: None,
    router: Router | None = None,
) -> GatewayServer:
    """The server of one process; the router is read here, unless it has just been."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    hangups: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, frame: hangups.append(number))
    from mild.gateway.access import Access
    from mild.gateway.dashboard import Dashboard
    from mild.gateway.ledger.writer import LedgerWriter
    from mild.gateway.server.context import AppContext

    loaded = time.monotonic()
    router = router or load()
    access = Access(settings, total_seconds=settings.longest_request)
    ledger = LedgerWriter(settings.ledger, router.expert_names)
    board = Dashboard(settings, router, access.spend, ledger) if settings.page else None
    context = AppContext(settings, router, access, ledger, board, shared=shared, worker=worker)

    def report(loaded: float, failed: str | None = None) -> None:
        router = context.serving.fingerprint
        state.write_worker(worker, {"router": router, "loaded": loaded, "failed": failed})

    async def reload() -> None:
        loaded, failed = time.monotonic(), None
        try:
            await context.reload(load)
        except MildError as error:
            logger.error("the router was not reloaded, the old one is still used: %s", error)
            failed = str(error)
        report(loaded, failed)

    async def ready() -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def start_reload() -> None:
            task = loop.create_task(reload())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGHUP, start_reload)
        if hangups:
            start_reload()
        report(loaded)
        # What was made so far stays: the collector need not look at it.
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()
        announce()

    return GatewayServer(context, ready)


class GatewayServer(Server):
    """uvicorn's server with a context that starts before it and stops after it."""

    def __init__(self, context: AppContext, ready: Callable[[], Any] | None = None) -> None:
        from mild.gateway.server.app import create_app
        from mild.gateway.server.protocol import GatewayProtocol

        limits, tls = context.settings.limits, context.settings.server
        protocol: Any = partial(GatewayProtocol, limits, context.metrics.refused)
        drain: Any = limits.drain_seconds
        keep_alive: Any = limits.keep_alive_seconds
        # What uvicorn would log is said elsewhere, or is the fault of a client.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().__init__(
            Config(
                create_app(context),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                backlog=2048,
                timeout_keep_alive=keep_alive,
                timeout_graceful_shutdown=drain,
                ssl_certfile=tls.tls_certificate,
                ssl_keyfile=tls.tls_key,
            )
        )
        self.context = context
        self._ready = ready
        self.parent: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if not self.config.loaded:
            self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.context.start()
        await super().startup(sockets)
        if self._ready is not None:
            await self._ready()

    async def on_tick(self, counter: int) -> bool:
        # A worker whose parent was killed must not go on alone.
        if self.parent is not None and os.getppid() != self.parent:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.context.draining = True
        await super().shutdown(sockets)
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        for connection in list(self.server_state.connections):
            transport: Any = connection.transport
            transport.abort()
        await self.context.stop()


class Worker(Process):
    """A forked worker process: it has the settings of its parent, whatever the file says by now."""

    def __init__(self, build: Callable[[], GatewayServer], sock: socket.socket) -> None:
        self._build = build
        self._sock = sock
        self.parent_conn, self.child_conn = Pipe()
        fork: Any = multiprocessing.get_context("fork")
        self.process = fork.Process(target=self.target)

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        # Ctrl-C reaches the whole group; the parent passes it on.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            self._build().run([self._sock])
        except MildError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            sys.exit(STARTUP_FAILURE)


class Supervisor(Multiprocess):
    """uvicorn's supervisor of worker processes; SIGHUP reloads the router of every worker."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Router],
        sock: socket.socket,
        state: StateFile,
        announce: Callable[[], None],
    ) -> None:
        from mild.gateway.shared import SharedMemory

        # prometheus_client reads the variable when it is imported.
        folder = state.folder / "metrics"
        folder.mkdir()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        super().__init__(Config("", workers=settings.workers, log_config=None), [sock])
        self._settings = settings
        self._load = load
        self._state = state
        self._shared = SharedMemory(settings)
        self._announce = announce
        self._announced = False
        self.failed = False

    def run(self) -> None:
        self.init_processes()
        gc.enable()
        while not self.should_exit.wait(0.05 if self._announced else 0.01):
            self.handle_signals()
            self.keep_subprocess_alive()
            if not self._announced and self._state.count_workers() == self.processes_num:
                self._announced = True
                self._announce()
        # Who comes now would wait in line for nobody.
        for sock in self.sockets:
            sock.close()
        self.terminate_all()
        self.join_all()

    def init_processes(self) -> None:
        self._starts = [0.0] * self.processes_num
        self.processes = [self._start(k) for k in range(self.processes_num)]

    def keep_subprocess_alive(self) -> None:
        for k, process in enumerate(self.processes):
            if self.should_exit.is_set() or process.exitcode is None:
                continue
            if process.exitcode == STARTUP_FAILURE and not self._announced:
                # What fails at the first start fails again.
                self.failed = True
                self.should_exit.set()
                return
            if time.monotonic() - self._starts[k] < RESTART_SECONDS:
                continue
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
            print(
                f"warning: worker {k} ended ({process.exitcode}); another one is started",
                file=sys.stderr,
                flush=True,
            )
            self.processes[k] = self._start(k)

    def join_all(self) -> None:
        end = time.monotonic() + self._settings.limits.drain_seconds + KILL_SECONDS
        while any(one.exitcode is None for one in self.processes):
            # A second signal does not wait.
            if time.monotonic() > end or self.signal_queue:
                for process in self.processes:
                    process.process.kill()
            time.sleep(0.01)

    def handle_hup(self) -> None:
        for process in self.processes:
            if process.exitcode is None and process.pid is not None:
                os.kill(process.pid, signal.SIGHUP)

    # Every worker has its row of shared memory: their number is fixed.
    def handle_ttin(self) -> None: ...
    def handle_ttou(self) -> None: ...

    def _start(self, k: int) -> Worker:
        def build() -> GatewayServer:
            self._state.leave()
            server = _build(self._settings, self._load, self._shared, k, self._state)
            server.parent = parent
            return server

        parent = os.getpid()
        self._starts[k] = time.monotonic()
        worker = Worker(build, self.sockets[0])
        worker.start()
        return worker

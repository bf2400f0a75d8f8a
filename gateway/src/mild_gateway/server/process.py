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
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from uvicorn import Config

from mild.errors import InvalidInputError, MildError
from mild_gateway.config import LimitSettings, Settings
from mild_gateway.config_checks import check_against, check_tls
from mild_gateway.experts.redaction import Redactor
from mild_gateway.logs import configure_logging
from mild_gateway.server.state import StateFile
from mild_gateway.shared import SharedMemory

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild_gateway.server.context import AppContext
    from mild_gateway.server.protocol import GatewayServer

# Connections that wait to be accepted.
BACKLOG = 2048
# Exit status of a worker that could not start.
START_FAILED = 3
# Seconds beyond the drain before workers are killed.
KILL_SECONDS = 10.0
# A worker that ends is replaced at most so often.
RESTART_SECONDS = 1.0
# Files besides connections: the database, libraries, pipes.
SPARE_FILES = 128
# The ledger's thread gives way to the loop's after so long; Python's own 5 ms are many requests.
_SWITCH_SECONDS = 0.0005
_PORT_TAKEN = (errno.EADDRINUSE, errno.EACCES)

logger = logging.getLogger("mild_gateway")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket that worker processes can inherit."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once (TCP_NODELAY) only where the socket names its protocol.
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host.strip("[]"), port))
        server.listen(BACKLOG)
    except OSError:
        server.close()
        raise
    server.setblocking(False)
    return server


def raise_file_limit(limits: LimitSettings) -> None:
    """Let each process open as many files as its connections need, or say what it cannot have."""
    needed = limits.max_connections + limits.max_in_flight + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        logger.warning(
            "a process may open %d files, and limits.max_connections and max_in_flight need %d; "
            "lower them, or raise the limit (ulimit -Hn).",
            allowed,
            needed,
        )


def serve_settings(
    settings: Settings,
    load: Callable[[], Router],
    what: str,
    after: Callable[[str], str] = lambda url: "",
) -> int:
    """Bind the port and serve until a signal says to stop; the exit status."""
    server = settings.server
    configure_logging(server.log_format, server.log_level, Redactor(settings.experts))
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
    check_tls(server)
    raise_file_limit(settings.limits)
    state = StateFile(port)

    serving = False

    def announce() -> None:
        nonlocal serving
        serving = True
        state.write({"pid": os.getpid(), "port": port, "workers": settings.workers})
        url = settings.url
        print(f"mild serves {what} on {url} (model: mild){after(url)}", flush=True)

    def stop(*_: Any) -> None:
        # uvicorn, which takes the signals while it serves, raises the one that ended it once more.
        if not serving:
            raise SystemExit(0)

    try:
        if settings.workers > 1:
            return Supervisor(settings, load, sock, state, announce).run()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        _serve(settings, load, sock, state, announce=announce, router=router)
        return 0
    finally:
        sock.close()
        state.close()


def _serve(
    settings: Settings,
    load: Callable[[], Router],
    sock: socket.socket,
    state: StateFile,
    worker: int = 0,
    shared: SharedMemory | None = None,
    announce: Callable[[], None] = lambda: None,
    router: Router | None = None,
) -> None:
    """Serve in this process; the router is read here, unless it has just been."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    hangups: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, frame: hangups.append(number))
    from mild_gateway.access import Access
    from mild_gateway.dashboard import Dashboard
    from mild_gateway.ledger.writer import LedgerWriter
    from mild_gateway.server.context import AppContext

    loaded, parent = time.monotonic(), multiprocessing.parent_process()
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

    async def look_at_parent() -> None:
        # A worker whose parent was killed must not go on alone.
        if parent is not None and os.getppid() != parent.pid:
            server.should_exit = True

    def ready() -> None:
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

    server = make_server(context, ready, look_at_parent)
    try:
        server.run([sock])
    except SystemExit:
        # So uvicorn ends where the context could not be started.
        raise context.failure or RuntimeError("the server did not start") from None


def make_server(
    context: AppContext,
    ready: Callable[[], None] = lambda: None,
    each_second: Callable[[], Awaitable[None]] | None = None,
) -> GatewayServer:
    """uvicorn's server for a context, which it starts before the first request and stops at the end."""
    from mild_gateway.server.app import create_app
    from mild_gateway.server.protocol import GatewayProtocol, GatewayServer

    limits, tls = context.settings.limits, context.settings.server
    config = Config(
        create_app(context, ready),
        http=partial(GatewayProtocol, context),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]
        timeout_graceful_shutdown=limits.drain_seconds,  # type: ignore[arg-type]
        callback_notify=each_second,
        timeout_notify=0,
        ssl_certfile=tls.tls_certificate,
        ssl_keyfile=tls.tls_key,
    )
    return GatewayServer(config, context)


@dataclass
class Supervisor:
    """Forks the workers, which have the settings of their parent whatever the file says by now.

    Workers that end are replaced. SIGHUP reloads the router of every worker.
    """

    settings: Settings
    load: Callable[[], Router]
    sock: socket.socket
    state: StateFile
    announce: Callable[[], None]

    def __post_init__(self) -> None:
        # prometheus_client reads the variable when it is imported.
        folder = self.state.folder / "metrics"
        folder.mkdir()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        self._shared = SharedMemory(self.settings)
        self._announced = False
        self._signals: list[int] = []
        self._starts = [0.0] * self.settings.workers

    def run(self) -> int:
        """Serve until a signal says to stop; the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._signals.append(number))
        self._workers = [self._start(k) for k in range(self.settings.workers)]
        gc.enable()
        status = None
        while status is None:
            time.sleep(0.05 if self._announced else 0.01)
            status = self._look_after()
        # Who comes now would wait in line for nobody.
        self.sock.close()
        self._signal_all(signal.SIGTERM)
        end = time.monotonic() + self.settings.limits.drain_seconds + KILL_SECONDS
        while any(worker.exitcode is None for worker in self._workers):
            # A second signal does not wait for requests, only for what they leave to be written.
            if self._signals:
                self._signals.clear()
                self._signal_all(signal.SIGTERM)
                end = min(end, time.monotonic() + KILL_SECONDS)
            if time.monotonic() > end:
                self._signal_all(signal.SIGKILL)
            time.sleep(0.01)
        return status

    def _look_after(self) -> int | None:
        """Pass signals on and replace workers; the exit status if the gateway is to stop."""
        while self._signals:
            if self._signals.pop(0) != signal.SIGHUP:
                return 0
            self._signal_all(signal.SIGHUP)
        files = self.state.folder.glob("*.json")
        if not self._announced and len(list(files)) == len(self._workers):
            self._announced = True
            self.announce()
        for k, worker in enumerate(self._workers):
            if worker.exitcode is None:
                continue
            if worker.exitcode == START_FAILED and not self._announced:
                # What fails at the first start fails again.
                return 1
            if time.monotonic() - self._starts[k] < RESTART_SECONDS:
                continue
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
            logger.warning("worker %d ended (%s); another one is started", k, worker.exitcode)
            self._workers[k] = self._start(k)
        return None

    def _signal_all(self, number: int) -> None:
        for worker in self._workers:
            if worker.exitcode is None:
                os.kill(worker.pid, number)

    def _start(self, k: int) -> Any:
        self._starts[k] = time.monotonic()
        fork: Any = multiprocessing.get_context("fork")
        worker = fork.Process(target=self._serve, args=(k,))
        worker.start()
        return worker

    def _serve(self, k: int) -> None:
        """What a worker does."""
        # The parent passes it on; also while the server does not run yet.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.state.leave()
        try:
            _serve(self.settings, self.load, self.sock, self.state, k, self._shared)
        except MildError as error:
            logger.error("%s", error)
            sys.exit(START_FAILED)

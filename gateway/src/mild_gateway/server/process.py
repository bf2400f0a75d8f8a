"""From settings to a served port: the listening socket, and uvicorn with one or several processes."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import multiprocessing
import os
import resource
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from mild.errors import InvalidInputError
from mild_gateway.config import LimitSettings, Settings
from mild_gateway.config_checks import check_against, check_tls, exposure_warning
from mild_gateway.experts.redaction import Redactor
from mild_gateway.logs import configure_logging
from mild_gateway.server.listening import BACKLOG, bind, drop_new_connections

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild_gateway.server.context import AppContext

# How long an idle connection is kept: longer than proxies keep theirs, so that they close first.
KEEP_ALIVE_SECONDS = 75
# Files besides connections: the database, libraries, pipes.
SPARE_FILES = 128
# A worker that does not say for so long that it is alive is replaced.
WORKER_SECONDS = 10
# After so many seconds uvicorn has passed a signal on to its workers.
PASSING_ON_SECONDS = 1.0
_PORT_TAKEN = (errno.EADDRINUSE, errno.EACCES)

logger = logging.getLogger("mild_gateway")


def max_connections(limits: LimitSettings) -> int:
    """Connections and requests of a process beyond which uvicorn answers 503: a far backstop."""
    return max(4096, 4 * limits.max_in_flight)


def raise_file_limit(limits: LimitSettings) -> None:
    """Let each process open as many files as its connections need, or warn that it cannot."""
    needed = max_connections(limits) + limits.max_in_flight + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed
    if hard != resource.RLIM_INFINITY:
        allowed = min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        logger.warning(
            "a process may open %d files, and limits.max_in_flight = %d may need %d; lower it, or raise "
            "the limit (ulimit -Hn).",
            allowed,
            limits.max_in_flight,
            needed,
        )


def serve_settings(
    settings: Settings,
    load: Callable[[], Router],
    what: str,
    after: Callable[[str], str] = lambda url: "",
    options: Mapping[str, Any] | None = None,
) -> int:
    """Bind the port and serve until a signal says to stop; the exit status.

    Several workers read ``options``, those of ``python -m mild_gateway.server``, and load the router
    themselves.
    """
    server = settings.server
    configure_logging(server.log_format, server.log_level, Redactor(settings.experts))
    sock = _listen(settings)
    port = sock.getsockname()[1]
    settings = replace(settings, port=port)
    announcement = f"mild serves {what} on {settings.url} (model: mild){after(settings.url)}"
    try:
        # Whatever cannot be served is reported once, before any worker starts.
        router = load()
        check_against(settings, router)
        check_tls(server)
        raise_file_limit(settings.limits)
        warning = exposure_warning(settings)
        if warning is not None:
            logger.warning("%s", warning)
        if settings.workers > 1 and options is not None:
            return _serve_workers(settings, router, sock, {**options, "port": port}, announcement)
        _serve_here(settings, router, sock, announcement)
        return 0
    finally:
        sock.close()


def _listen(settings: Settings) -> socket.socket:
    try:
        return bind(settings.host, settings.port)
    except OSError as error:
        remedy = "address with --host"
        if error.errno in _PORT_TAKEN:
            remedy = "port with --port"
        raise InvalidInputError(
            f"the gateway must be able to listen on {settings.host}:{settings.port}; "
            f"{error.strerror or error}. Give another {remedy}."
        ) from error


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """The options of ``uvicorn.Config`` that one process and several have in common."""
    return {
        "loop": "mild_gateway.server.event_loop:new_event_loop",
        "http": "httptools",
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "date_header": False,
        "backlog": BACKLOG,
        "limit_concurrency": max_connections(settings.limits),
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": settings.limits.drain_seconds,
        "ssl_certfile": settings.server.tls_certificate,
        "ssl_keyfile": settings.server.tls_key,
    }


def make_server(context: AppContext, ready: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """uvicorn's server for a context, which it starts before the first request and stops at the end."""
    from mild_gateway.server.app import create_app

    config = uvicorn.Config(create_app(context, ready), **uvicorn_options(context.settings))
    return uvicorn.Server(config)


def _serve_here(settings: Settings, router: Router, sock: socket.socket, announcement: str) -> None:
    """Serve in this process."""
    from mild_gateway.server.worker import make_context, start_worker

    is_ready = False

    def stop(*_: Any) -> None:
        # While it serves, uvicorn has the signals; it raises the one that ended it once more.
        if not is_ready:
            raise SystemExit(0)

    def ready() -> None:
        nonlocal is_ready
        is_ready = True
        start_worker(context, sock)
        print(announcement, flush=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    context = make_context(settings, router)
    try:
        make_server(context, ready).run([sock])
    except SystemExit:
        if is_ready or context.failure is None:
            raise
        raise context.failure from None


def _serve_workers(
    settings: Settings,
    router: Router,
    sock: socket.socket,
    options: Mapping[str, Any],
    announcement: str,
) -> int:
    """Serve in uvicorn's worker processes, each of which reads settings and router itself."""
    from mild_gateway.server.worker import FAILED_FILE, OPTIONS_VARIABLE

    asyncio.run(_check_stores(settings, router))
    with tempfile.TemporaryDirectory(prefix="mild-") as name:
        folder = Path(name)
        metrics = folder / "metrics"
        metrics.mkdir()
        # prometheus_client reads the variable when a worker imports it.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
        given = {**options, "folder": name, "announcement": announcement}
        os.environ[OPTIONS_VARIABLE] = json.dumps(given)
        ParentSignals(sock, settings.limits.accept_after_sigterm_seconds).watch()
        uvicorn.run(
            "mild_gateway.server.worker:app_from_environment",
            factory=True,
            workers=settings.workers,
            fd=sock.fileno(),
            timeout_worker_healthcheck=WORKER_SECONDS,
            **uvicorn_options(settings),
        )
        return int((folder / FAILED_FILE).exists())


async def _check_stores(settings: Settings, router: Router) -> None:
    """Open the store and the ledger once, which creates their tables; MildError if one cannot be used."""
    from mild_gateway.access import Access
    from mild_gateway.ledger.writer import LedgerWriter

    access = Access(settings)
    ledger = LedgerWriter(settings.ledger, router.experts)
    await access.start()
    try:
        ledger.start()
        await asyncio.to_thread(ledger.close)
    finally:
        await access.close()


class ParentSignals:
    """What uvicorn's parent process does not do with signals.

    It keeps the listening socket open until its last worker has ended, so new connections would wait for
    nobody: they are dropped when the workers are about to stop accepting, and refused afterwards. And it
    ignores a second signal: the workers get it as SIGINT, with which they end their requests at once.
    """

    def __init__(self, sock: socket.socket, accept_seconds: float) -> None:
        self._sock = sock
        self._accept_seconds = accept_seconds
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)

    def watch(self) -> None:
        """Read the numbers of signals as they arrive; uvicorn sets its own handlers for them."""
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._follow, name="mild-signals", daemon=True).start()

    def _follow(self) -> None:
        is_stopping = False
        while True:
            for number in self._reader.recv(64):
                if number not in (signal.SIGTERM, signal.SIGINT):
                    continue
                if is_stopping:
                    self._end_workers()
                else:
                    is_stopping = True
                    threading.Thread(target=self._refuse_connections, daemon=True).start()

    def _refuse_connections(self) -> None:
        time.sleep(self._accept_seconds)
        drop_new_connections(self._sock)
        time.sleep(PASSING_ON_SECONDS)
        # Of the socket itself: closing it here would leave it open in uvicorn's hands.
        self._sock.shutdown(socket.SHUT_RDWR)

    def _end_workers(self) -> None:
        for worker in multiprocessing.active_children():
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGINT)

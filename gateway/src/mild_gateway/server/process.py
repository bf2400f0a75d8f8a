"""From settings to a served port: the listening socket, and uvicorn with one or several processes."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from mild.errors import InvalidInputError
from mild_gateway.config import LimitSettings, Settings
from mild_gateway.config_checks import check_against, check_tls, exposure_warning
from mild_gateway.experts.redaction import Redactor
from mild_gateway.logs import configure_logging

if TYPE_CHECKING:
    from mild_gateway.decide import Router
    from mild_gateway.server.context import AppContext

# Connections that wait to be accepted.
BACKLOG = 2048
# How long an idle connection is kept: longer than proxies keep theirs, so that they close first.
KEEP_ALIVE_SECONDS = 75
# Files besides connections: the database, libraries, pipes.
SPARE_FILES = 128
# A worker that does not say for so long that it is alive is replaced.
WORKER_SECONDS = 10
# Seconds in which the workers have stopped accepting, once uvicorn has told them to end.
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


def bind(host: str, port: int) -> socket.socket:
    """A listening socket that worker processes can inherit."""
    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Its connections inherit this: small answers are sent at once.
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        server.bind((host.strip("[]"), port))
        server.listen(BACKLOG)
    except OSError:
        server.close()
        raise
    server.setblocking(False)
    return server


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
        start_worker(context)
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
        config = uvicorn.Config(
            "mild_gateway.server.worker:app_from_environment",
            factory=True,
            workers=settings.workers,
            timeout_worker_healthcheck=WORKER_SECONDS,
            **uvicorn_options(settings),
        )
        _Workers(config, [sock]).run()
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


class _Workers(Multiprocess):
    """uvicorn's worker processes, and a port that is closed when they no longer accept."""

    def join_all(self) -> None:
        # This process has the socket, too: without workers, who connects would wait until it ends.
        time.sleep(PASSING_ON_SECONDS)
        for sock in self.sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        super().join_all()

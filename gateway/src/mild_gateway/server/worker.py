"""What one process that serves needs: its context, what begins with it, and uvicorn's factory for it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mild.errors import InvalidInputError, MildError
from mild_gateway.config import Settings, read_settings
from mild_gateway.decide import Router, load_router
from mild_gateway.experts.redaction import Redactor
from mild_gateway.logs import configure_logging

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from mild_gateway.server.context import AppContext

# The variable with the options of `mild serve`, for worker processes.
OPTIONS_VARIABLE = "MILD_SERVE_OPTIONS"
# Written by a worker that cannot start, into the folder that all workers know.
FAILED_FILE = "failed"
# Of malloc.h.
M_MMAP_THRESHOLD = -3
# The ledger's thread gives way to the loop's after so long; Python's own 5 ms are many requests.
SWITCH_SECONDS = 0.0005
# With this status uvicorn's parent process stops, rather than start the worker again.
START_FAILED = 3

logger = logging.getLogger("mild_gateway")


def return_memory() -> None:
    """Let memory of large bodies go back to the system at once: glibc keeps blocks of up to 32 MB."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)


def served_settings(options: dict[str, Any]) -> Settings:
    """The settings of the file, with what the options of ``mild serve`` change."""
    settings = read_settings(Path(options["config"]))
    changes: dict[str, Any] = {}
    for name in ("host", "port", "workers"):
        if options.get(name) is not None:
            changes[name] = options[name]
    if options.get("router") is not None:
        changes["router"] = Path(options["router"])
    server = replace(settings.server, **options.get("logs", {}))
    certificate = options.get("tls_certificate")
    if certificate is not None:
        key = Path(options["tls_key"])
        server = replace(server, tls_certificate=Path(certificate), tls_key=key)
    settings = replace(settings, server=server, **changes)
    if settings.router is None:
        raise InvalidInputError(
            f"a router must be named, as `mild serve DIR --config {options['config']}` or as router in "
            "the file."
        )
    return settings


def make_context(settings: Settings, router: Router) -> AppContext:
    """What the requests of this process share."""
    from mild_gateway.access import Access
    from mild_gateway.dashboard import Dashboard
    from mild_gateway.database.spool import Spool, spool_place
    from mild_gateway.ledger.writer import LedgerWriter
    from mild_gateway.server.context import AppContext

    spool = Spool(spool_place(settings.ledger.path, settings.store, settings.folder))
    access = Access(settings, total_seconds=settings.longest_request, spool=spool)
    ledger = LedgerWriter(settings.ledger, router.experts, spool=spool)
    board = None
    if settings.page:
        board = Dashboard(settings, router, access.spend, ledger)
    return AppContext(settings, router, access, ledger, board, spool=spool)


def drain_on_signals(context: AppContext) -> None:
    """Note that the end has begun, which is uvicorn's; a second Ctrl-C cancels the requests that still run.

    They settle and write their rows: uvicorn, told twice, would leave out the end of the application.
    """
    loop = asyncio.get_running_loop()
    uvicorn_handler: Any = signal.getsignal(signal.SIGTERM)

    def cancel_requests() -> None:
        for task in list(context.running):
            task.cancel()

    def handle(number: int, frame: object) -> None:
        if context.draining and number == signal.SIGINT:
            loop.call_soon_threadsafe(cancel_requests)
        else:
            context.draining = True
            uvicorn_handler(number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def end_with_parent() -> None:
    """Let a worker whose parent was killed end, as by SIGTERM."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    loop = asyncio.get_running_loop()
    sentinel = parent.sentinel

    def end() -> None:
        loop.remove_reader(sentinel)
        signal.raise_signal(signal.SIGTERM)

    loop.add_reader(sentinel, end)


def start_worker(context: AppContext) -> None:
    """Begin what lasts as long as the server: its signals, and the watch on the router's folder."""
    from mild_gateway.server.router_watch import RouterWatch

    sys.setswitchinterval(SWITCH_SECONDS)
    drain_on_signals(context)
    end_with_parent()
    folder = context.settings.router
    if folder is not None:
        context.run_in_background(RouterWatch(context, folder, partial(load_router, folder)).run())
    # What was made so far stays: the collector need not look at it.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def app_from_environment() -> ASGIApp:
    """The application of one of several workers; uvicorn calls this in each of them.

    A worker that cannot start says why and ends with a status that ends the whole gateway.
    """
    from mild_gateway.metrics import forget_dead_workers
    from mild_gateway.server.app import create_app

    options = json.loads(os.environ[OPTIONS_VARIABLE])
    folder = Path(options["folder"])

    def report_failure(error: Exception) -> None:
        logger.error("%s", error)
        (folder / FAILED_FILE).touch()

    configure_logging(**options.get("logs", {}))
    return_memory()
    try:
        settings = served_settings(options)
        server = settings.server
        configure_logging(server.log_format, server.log_level, Redactor(settings.experts))
        assert settings.router is not None
        context = make_context(settings, load_router(settings.router))
    except MildError as error:
        report_failure(error)
        sys.exit(START_FAILED)
    context.on_failure = report_failure

    def ready() -> None:
        forget_dead_workers(folder / "metrics")
        start_worker(context)
        try:
            (folder / "announced").touch(exist_ok=False)
        except FileExistsError:
            logger.info("process %d serves", os.getpid())
        else:
            print(options["announcement"], flush=True)

    return create_app(context, ready)

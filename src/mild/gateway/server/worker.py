"""One worker process: loads the router, serves, reloads on SIGHUP, drains on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mild.artifact import LoadedRouter
from mild.errors import MildError
from mild.gateway.access import Access
from mild.gateway.config import Settings
from mild.gateway.ledger.writer import LedgerWriter
from mild.gateway.page import Board
from mild.gateway.server.app import Gateway, create_app, share_memory
from mild.gateway.server.listening import Listener

__all__ = ["Job", "run_worker"]

# Seconds after which the ledger's thread lets the loop's go on; Python's own 5 ms are many requests.
SWITCH = 0.0005

logger = logging.getLogger("mild.gateway")


@dataclass(frozen=True)
class Job:
    """What a worker is started with.

    Attributes
    ----------
    load : reads the router
    sock : the listening socket that all workers share
    memory : descriptor of the memory that they share
    channel : to the supervisor; its end means that the supervisor is gone
    """

    settings: Settings
    load: Callable[[], LoadedRouter]
    sock: socket.socket
    memory: int
    channel: socket.socket
    worker: int


def run_worker(job: Job) -> int:
    """Serve until told to stop; the exit status."""
    try:
        import uvloop
    except ImportError:
        loop_factory = None
    else:
        loop_factory = uvloop.new_event_loop
    # As the supervisor and the command line write them.
    for level, name in ((logging.WARNING, "warning"), (logging.ERROR, "error")):
        logging.addLevelName(level, name)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    sys.setswitchinterval(SWITCH)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_serve(job))
    except MildError as error:
        _tell(job.channel, {"error": str(error)})
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


async def _serve(job: Job) -> None:
    settings = job.settings
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    app = _build(job)
    await app.start()
    listener = Listener(app, settings.limits, app.metrics.refused)
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reload(app, job))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_reader(job.channel, _listen, job.channel, stop)
    # What was made so far stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    await listener.start(job.sock)
    _tell(job.channel, {"ready": app.serving.fingerprint})
    await stop.wait()
    app.draining = True
    await listener.stop()
    await app.stop()
    loop.remove_reader(job.channel)


def _build(job: Job) -> Gateway:
    settings = job.settings
    router = job.load()
    access = Access(settings)
    ledger = LedgerWriter(settings.ledger, router.expert_names)
    shared = share_memory(settings, job.memory)
    board = Board(settings, router, access.spend, ledger) if settings.page else None
    return create_app(settings, router, access, ledger, board, shared=shared, worker=job.worker)


async def _reload(app: Gateway, job: Job) -> None:
    try:
        fingerprint = await app.reload(job.load)
    except MildError as error:
        logger.error("the router was not reloaded, the old one serves on: %s", error)
        _tell(job.channel, {"failed": str(error), "serves": app.serving.fingerprint})
    else:
        _tell(job.channel, {"reloaded": fingerprint})


def _listen(channel: socket.socket, stop: asyncio.Event) -> None:
    """The supervisor says nothing; when it is gone, so are we."""
    with contextlib.suppress(BlockingIOError):
        if not channel.recv(64):
            asyncio.get_running_loop().remove_reader(channel)
            stop.set()


def _tell(channel: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        channel.send(json.dumps({**message, "pid": os.getpid()}).encode() + b"\n")

"""From a command line to a served port."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mild.errors import InvalidInputError, MildError
from mild.gateway.choosing.sessions import session_bytes
from mild.gateway.config import Settings, read_settings
from mild.gateway.metrics import metric_columns
from mild.gateway.server.listening import bind
from mild.gateway.server.supervisor import Supervisor
from mild.gateway.shared import shared_file, shared_size

if TYPE_CHECKING:
    from mild.artifact import LoadedRouter

__all__ = ["main", "serve", "serve_settings"]

# Another gateway is there, or the port is for root alone.
_PORT_TAKEN = (errno.EADDRINUSE, errno.EACCES)


def main(arguments: list[str]) -> int:
    """Serve as one JSON argument says: config, router, host, port, workers, demo."""
    options = json.loads(arguments[0])
    try:
        return serve(options)
    except MildError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def serve(options: dict[str, Any]) -> int:
    """Serve until a signal says to stop; the exit status."""
    if options.get("demo"):
        from mild.gateway.demo import serve_demo

        return serve_demo(options)
    config = Path(options["config"])
    settings = read_settings(config)
    changed = {
        name: options[name] for name in ("host", "port", "workers") if options.get(name) is not None
    }
    if options.get("router") is not None:
        changed["router"] = Path(options["router"])
    settings = replace(settings, **changed)
    folder = settings.router
    if folder is None:
        raise InvalidInputError(
            f"a router must be named, as `mild serve DIR --config {config}` or as router in the file."
        )

    def load() -> LoadedRouter:
        from mild.artifact import load as load_router

        return load_router(folder)

    return serve_settings(settings, load, str(folder))


def serve_settings(
    settings: Settings,
    load: Callable[[], LoadedRouter],
    what: str,
    after: Callable[[str], str] = lambda url: "",
) -> int:
    """Bind the port, start the workers, and keep them alive.

    Parameters
    ----------
    settings : everything that is served with
    load : reads the router, in the worker
    what : is served, for the line that says so
    after : further lines for it, given the address
    """
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
    names = [expert.name for expert in settings.experts]
    size = shared_size(
        settings.workers, metric_columns(names), session_bytes(settings.routing.max_sessions)
    )
    memory = shared_file(size)

    def start(place: int, channel: socket.socket) -> int:
        # One decision is a small product: threads for it would only cost memory.
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        from mild.gateway.server.worker import Job, run_worker

        return run_worker(Job(settings, load, sock, memory, channel, place))

    def announce() -> None:
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{shown}:{port}"
        print(f"mild serves {what} on {url} (model: mild){after(url)}", flush=True)

    try:
        return Supervisor(
            settings.workers, start, port, settings.limits.drain_seconds, announce, sock.close
        ).run()
    finally:
        sock.close()
        os.close(memory)

"""Connections to Ray, and pools of Ray tasks."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from threadpoolctl import threadpool_limits

from mild.core.threads import cores
from mild.distributed.executors import Submit
from mild.errors import InvalidInputError, MissingExtraError, install_hint

ENGINES = ("local", "ray")
# Seconds in which an address must accept a connection.
TIMEOUT = 5.0
# The first frame of HTTP/2 from client and server.
SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
# How often a task is repeated whose worker was lost.
RETRIES = 5
# Seconds after which a task that goes on is cancelled once more.
CANCEL_SECONDS = 1.0
# Settings that Ray reads when it is imported, unless the user has set them.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # About the seconds for which a cluster is tried.
    "RAY_NUM_REDIS_GET_RETRIES": "4",
}
# Messages are small, and Ray would take a third of the memory.
LOCAL = {"address": "local", "include_dashboard": False, "object_store_memory": 256 << 20}
REMEDY = (
    "Start one with `ray start --head`, correct the address, or leave it out for a Ray on this machine. "
    "If the cluster wants a token, set RAY_AUTH_MODE=token."
)


@contextmanager
def connect(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected; what was started here is shut down at the end.

    A Ray that this process is connected to is used and stays. Workers of a cluster must have the same mild
    installed, and see the files under the same names. ``address`` is ``HOST:PORT``, ``ray://HOST:PORT`` or
    ``auto``; None for a Ray on this machine, with ``workers`` processors.
    """
    check_ray(address)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = importlib.import_module("ray")
    if ray.is_initialized():
        if address is not None:
            raise InvalidInputError(
                "this process is connected to a Ray already; leave the address out to use that one, or "
                "call ray.shutdown() first."
            )
        yield ray
        return
    target = {"address": address} if address else {**LOCAL, "num_cpus": workers or cores()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **target)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        with suppress(RuntimeError):
            ray.shutdown()
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        raise _no_answer(address or "this machine", reason) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def check_ray(address: str | None = None) -> None:
    """Refuse a missing package, and an address without a gRPC server, which Ray would try for minutes."""
    if address is not None and address not in ("auto", "local"):
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or port is None or parts.scheme not in ("tcp", "ray"):
            raise InvalidInputError(
                f"address must be HOST:PORT, ray://HOST:PORT or auto; got {address!r}."
            )
        answer = SETTINGS_FRAME
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT) as connection:
                if os.environ.get("RAY_USE_TLS") != "1":
                    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS_FRAME)
                    answer = connection.recv(9)
        except OSError as error:
            raise _no_answer(address, error.strerror or str(error)) from error
        # The fourth byte is the type of the frame.
        if answer[3:4] != SETTINGS_FRAME[3:4]:
            raise _no_answer(address, "another server does")
    if find_spec("ray") is None:
        raise MissingExtraError(
            f"the engine ray needs the package ray; install it with {install_hint('ray')}."
        )


def waiting_message(ray: Any) -> str | None:
    """What to tell the user if no processor of the cluster is free."""
    total = ray.cluster_resources().get("CPU", 0.0)
    free = ray.available_resources().get("CPU", 0.0)
    if free >= 1:
        return None
    return f"waiting for a processor: the Ray cluster has {total:g} CPUs, {free:g} of them free."


@contextmanager
def ray_pool(ray: Any, workers: int | None, shared: Any) -> Iterator[Submit]:
    """A pool of tasks, one processor each; one whose worker is lost is repeated. The end cancels the rest.

    ``workers`` tasks are under way at a time; None for as many as the cluster has processors.
    """
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(run_task)
    reference = ray.put(shared)
    running: set[Any] = set()
    is_over = False
    # A task is started and noted in one step: the end knows all, and none is started behind it.
    starting = threading.Lock()

    def run(function: Callable[..., Any], *arguments: Any) -> Any:
        with starting:
            if is_over:
                raise CancelledError
            answer = task.remote(function, reference, *arguments)
            running.add(answer)
        try:
            return ray.get(answer)
        finally:
            running.discard(answer)

    # Twice as many as processors, so that none of them waits for the next task.
    pool = ThreadPoolExecutor(workers or 2 * max(1, int(ray.cluster_resources().get("CPU", 1))))
    try:
        yield lambda function, *arguments: pool.submit(run, function, *arguments)
    finally:
        with starting:
            is_over = True
        pool.shutdown(wait=False, cancel_futures=True)
        _cancel(ray, running)
        pool.shutdown(wait=True)


def _cancel(ray: Any, running: set[Any]) -> None:
    """End tasks; whoever waits for one takes it out of the set.

    Ray ends the worker of a task, and on a busy machine may take that for a loss and repeat the task. So
    tasks are cancelled until none is left.
    """
    while running:
        for answer in list(running):
            ray.cancel(answer, force=True)
        again = time.monotonic() + CANCEL_SECONDS
        while running and time.monotonic() < again:
            time.sleep(0.01)


def run_task(function: Callable[..., Any], shared: Any, *arguments: Any) -> Any:
    """On a worker: call the function with one thread for linear algebra."""
    with threadpool_limits(1):
        return function(shared, *arguments)


def _no_answer(address: str, reason: str) -> InvalidInputError:
    return InvalidInputError(f"no Ray cluster answers at {address} ({reason}). {REMEDY}")

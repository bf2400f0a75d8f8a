"""Connections to Ray, and actors on it."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from mild.core.threads import cores
from mild.errors import (
    DataFileError,
    InvalidInputError,
    MissingExtraError,
    OptionError,
    check_option,
    install_hint,
)

ENGINES = ("local", "ray")
# Seconds in which an address must accept a connection.
TIMEOUT = 5.0
# The first frame of HTTP/2 from client and server.
SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
#: How often a task is repeated after its worker was lost.
RETRIES = 5
# Seconds in which a worker must have started.
START_SECONDS = 120.0
# Settings that Ray reads when it is imported, unless the user has set them.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Roughly the seconds that Ray spends on reaching a cluster.
    "RAY_NUM_REDIS_GET_RETRIES": "4",
}
# A Ray on this machine. Messages are small, and its object store would take a third of the memory.
LOCAL = {"address": "local", "include_dashboard": False, "object_store_memory": 256 << 20}
REMEDY = (
    "Start one with `ray start --head`, correct the address, or leave it out for a Ray on this machine. "
    "If the cluster wants a token, set RAY_AUTH_MODE=token."
)


@contextmanager
def connect(address: str | None = None) -> Iterator[Any]:
    """Connect to Ray, yield the module ``ray``, and disconnect at the end.

    If this process is connected already, that connection is used and left open. The workers of a cluster
    must have the same version of mild installed, and find files under the same paths. ``address`` is
    ``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``; with None, Ray is started on this machine.
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
                "this process is connected to Ray already; omit the address to use that connection, or "
                "call ray.shutdown() first."
            )
        yield ray
        return
    if address is not None:
        settings: dict[str, Any] = {"address": address}
    else:
        settings = {**LOCAL, "num_cpus": cores()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        # Clean up what was started before it failed.
        with suppress(RuntimeError):
            ray.shutdown()
        raise _no_answer(address or "this machine", _first_line(error)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _first_line(error: Exception) -> str:
    """The beginning of what Ray says, or the name of the error if it says nothing."""
    message = str(error).strip() or type(error).__name__
    first, *_ = message.splitlines()
    return first.rstrip(".")[:200]


def check_engine(engine: str, address: str | None) -> None:
    """Refuse an unknown engine, an address without Ray, and a Ray that is not there."""
    check_option("engine", engine, ENGINES)
    if engine == "ray":
        check_ray(address)
    elif address is not None:
        raise OptionError(
            parameter="address", rule="is for the engine ray; leave it out, or use ray."
        )


def check_ray(address: str | None = None) -> None:
    """Refuse a missing package, and an address without a gRPC server, which Ray would try for minutes."""
    if address is not None and address not in ("auto", "local"):
        host, port = _host_and_port(address)
        _check_answer(address, host, port)
    if find_spec("ray") is None:
        raise MissingExtraError(
            f"the engine ray needs the package ray; install it with {install_hint('ray')}."
        )


def _host_and_port(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``ray://HOST:PORT``; any other address is refused."""
    url = address
    if "://" not in address:
        url = f"tcp://{address}"
    try:
        parsed = urlsplit(url)
        host = parsed.hostname
        port = parsed.port
    except ValueError as error:
        raise _not_an_address(address) from error
    if not host or port is None or parsed.scheme not in ("tcp", "ray"):
        raise _not_an_address(address)
    return host, port


def _not_an_address(address: str) -> InvalidInputError:
    return InvalidInputError(
        f"address must be HOST:PORT, ray://HOST:PORT or auto; got {address!r}."
    )


def _check_answer(address: str, host: str, port: int) -> None:
    """Refuse an address where no gRPC server answers; with TLS, one that does not accept connections."""
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


class ValueActor:
    """Calls methods of a value, which it fetches when it is first called.

    Ray restarts an actor whose process was lost, and repeats the call: the value is then fetched again.
    """

    def __init__(self) -> None:
        self._value: Any = None

    def is_ready(self) -> bool:
        return True

    def call(self, reference: list[Any], method: str, *arguments: Any) -> Any:
        """Call a method; ``reference`` is a list, in which Ray leaves a reference as it is."""
        if self._value is None:
            ray = importlib.import_module("ray")
            self._value = ray.get(reference[0])
        return getattr(self._value, method)(*arguments)


@dataclass(frozen=True)
class RemoteValue:
    """A value in an actor."""

    actor: Any
    reference: Any

    def call(self, method: str, *arguments: Any) -> Any:
        """Start a call of a method, and return a reference to its result."""
        return self.actor.call.remote([self.reference], method, *arguments)


@contextmanager
def remote_values(ray: Any, value: Any, max_copies: int) -> Iterator[list[RemoteValue]]:
    """Copies of a value in actors of their own: one per processor, at most ``max_copies``.

    At the end all actors are killed, whatever they are doing.
    """
    processors = int(ray.cluster_resources().get("CPU", 1))
    count = max(1, min(max_copies, processors))
    actor_class = ray.remote(num_cpus=1, max_restarts=RETRIES, max_task_retries=RETRIES)(ValueActor)
    actors = [actor_class.remote() for _ in range(count)]
    try:
        started = _started_actors(ray, actors)
        if not started:
            raise InvalidInputError(
                f"no worker has started on the Ray cluster within {START_SECONDS:.0f} s: none of its "
                f"{processors} processors is free. Wait until one is, or use another cluster."
            )
        reference = ray.put(value)
        yield [RemoteValue(actor, reference) for actor in started]
    finally:
        for actor in actors:
            ray.kill(actor)


def _started_actors(ray: Any, actors: Sequence[Any]) -> list[Any]:
    """The actors that start in time; the others are killed, because their processor may never be free."""
    answers = [actor.is_ready.remote() for actor in actors]
    ready, _ = ray.wait(answers, num_returns=len(actors), timeout=START_SECONDS)
    started = []
    for answer, actor in zip(answers, actors, strict=True):
        if answer in ready:
            started.append(actor)
        else:
            ray.kill(actor)
    return started


@contextmanager
def worker_errors(remedy: str) -> Iterator[None]:
    """Raise an error of a worker as the worker raised it, and DataFileError if a worker was lost."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("ray."):
            raise
        # Ray wraps what a worker raised.
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception):
            raise cause from None
        raise DataFileError(
            f"a worker of the Ray cluster was lost ({type(error).__name__}), {RETRIES + 1} times in a row; "
            f"it may be short of memory. {remedy}"
        ) from error


def _no_answer(address: str, reason: str) -> InvalidInputError:
    return InvalidInputError(f"no Ray cluster answers at {address} ({reason}). {REMEDY}")

"""Ray, where one machine is not enough: connected quickly or refused in a sentence."""

from __future__ import annotations

import logging
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from mild.errors import InvalidInputError, MissingExtraError

__all__ = ["ENGINES", "check_ray", "connect", "cores", "patient"]

ENGINES = ("local", "ray")
#: Seconds in which an address must take a connection, and a cluster answer.
PATIENCE = 5.0
#: Seconds without a result after which is said what is waited for.
SILENCE = 10.0
# Shared memory of a Ray of our own: messages are small, and Ray takes a third of the machine unasked.
SHARED_BYTES = 256 * 1024 * 1024
# What Ray reads when it is imported; who has set one of them keeps it.
QUIET = {
    # Nothing is sent to anybody.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Seconds, about, for which a cluster is tried.
    "RAY_NUM_REDIS_GET_RETRIES": "4",
}
TOKEN = "If the cluster wants a token, set RAY_AUTH_MODE=token."
MISSING = 'the engine ray needs the package ray; install it with pip install "mild-learn[ray]".'
REMEDY = "Start one with `ray start --head`, mend the address, or leave it out for a Ray on this machine."


@contextmanager
def connect(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected; what was started here is shut down at the end.

    A Ray that this process already has is used as it is, and stays. Workers of a cluster must have the same
    mild installed, and see the files under the same names.

    Parameters
    ----------
    address : of a cluster, ``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``; None for a Ray on this machine
        that lives as long as the connection
    workers : processors of a Ray on this machine; None for as many as there are

    Raises
    ------
    MissingExtraError
        ray is not installed
    InvalidInputError
        the address does not answer; said within seconds

    Examples
    --------
    >>> with connect("127.0.0.1:1"):  # doctest: +SKIP
    ...     pass
    Traceback (most recent call last):
    mild.errors.InvalidInputError: no Ray cluster answers at 127.0.0.1:1 (Connection refused). ...
    """
    check_ray(address)
    ray = _imported()
    if ray.is_initialized():
        if address is not None:
            raise InvalidInputError(
                "this process is connected to a Ray already; leave the address out to use that one, or "
                "call ray.shutdown() first."
            )
        yield ray
        return
    _open(ray, address, workers or cores())
    try:
        yield ray
    finally:
        ray.shutdown()


def check_ray(address: str | None = None) -> None:
    """Refuse what ``connect`` would refuse, before other work is done; it takes seconds at most."""
    if address is not None:
        _check_answers(address)
    if find_spec("ray") is None:
        raise MissingExtraError(MISSING)


@contextmanager
def patient(
    ray: Any, notice: Callable[[str], None] | None, begun: Callable[[], bool] = lambda: False
) -> Iterator[Callable[[], None]]:
    """A function to call when the first result is there; before, who waits is told why, once.

    Parameters
    ----------
    ray : what ``connect`` gave
    notice : told in a sentence, from another thread, when no processor has been free for seconds
    begun : whether the processors are taken by the work that is waited for, as far as that is known
    """
    arrived = threading.Event()
    if notice is None:
        yield arrived.set
        return
    told = threading.Thread(target=_tell, args=(ray, notice, begun, arrived), daemon=True)
    told.start()
    try:
        yield arrived.set
    finally:
        arrived.set()
        told.join()


def _tell(
    ray: Any, notice: Callable[[str], None], begun: Callable[[], bool], arrived: threading.Event
) -> None:
    while not arrived.wait(SILENCE):
        try:
            total = ray.cluster_resources().get("CPU", 0.0)
            free = ray.available_resources().get("CPU", 0.0)
        except (ray.exceptions.RayError, OSError, RuntimeError):
            # A cluster that is gone: who waits for its results is told.
            return
        if free < 1 and not begun():
            notice(
                f"waiting for a processor: the Ray cluster has {total:g} CPUs, {free:g} of them free. "
                f"Others have them, or our workers are still starting."
            )
            return


def cores() -> int:
    """Processors that this process may use.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _imported() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError as error:
        raise MissingExtraError(MISSING) from error
    return ray


def _open(ray: Any, address: str | None, workers: int) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {
            # A cluster of that name in the environment is not what "this machine" means.
            "address": "local",
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": SHARED_BYTES,
        }
    else:
        options["address"] = address
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        with suppress(RuntimeError):
            ray.shutdown()
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        if address is None:
            raise InvalidInputError(f"Ray cannot be started on this machine ({said}).") from error
        # Ray sends a token to an address only if it is told to, and does not say that this is why.
        mode = "" if os.environ.get("RAY_AUTH_MODE") else f" {TOKEN}"
        raise InvalidInputError(
            f"no Ray cluster answers at {address} ({said}). {REMEDY}{mode}"
        ) from error


def _check_answers(address: str) -> None:
    """Refuse at once what Ray itself would try for minutes."""
    if address in ("auto", "local"):
        return
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None or parts.scheme not in ("tcp", "ray"):
        raise InvalidInputError(
            f"address must be HOST:PORT, ray://HOST:PORT or auto; got {address!r}."
        )
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as wire:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            # A server of another kind, or a stuck one, says nothing to a greeting of HTTP/2; Ray's does.
            wire.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            answered = wire.recv(9)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise InvalidInputError(
            f"no Ray cluster answers at {address} ({reason}). {REMEDY}"
        ) from error
    # The fourth byte of a frame is its type; a server opens with its settings, 4.
    if len(answered) < 4 or answered[3] != 4:
        raise InvalidInputError(
            f"no Ray cluster answers at {address} (something else does). {REMEDY}"
        )

"""Pools of workers with one interface: processes and, in ``ray_connection``, tasks on Ray.

A pool is a function ``submit(function, *arguments)``, giving a Future of ``function(shared, *arguments)``.
The shared value is sent to each worker once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from mild.errors import DataFileError, MildError

Submit = Callable[..., "Future[Any]"]
#: Never fork: threads of the linear algebra may hold locks.
SPAWN = multiprocessing.get_context("spawn")


def result_of(future: Future[Any], task: str, remedy: str) -> Any:
    """The result of a future; a MildError as the worker raised it, DataFileError if the worker died."""
    error = future.exception()
    if error is None:
        return future.result()
    # Ray wraps what a task raised.
    cause = getattr(error, "cause", None)
    if isinstance(cause, MildError):
        raise cause from None
    broken = isinstance(error, BrokenProcessPool)
    if broken or (cause is None and type(error).__module__.startswith("ray.")):
        worker = "a worker process" if broken else f"the worker of {task}"
        raise DataFileError(
            f"{worker} died ({type(error).__name__}); it may be short of memory. {remedy}"
        ) from error
    raise error


@contextmanager
def process_pool(workers: int, shared: Any) -> Iterator[Submit]:
    """A pool of processes, which end with their parent."""
    pool = ProcessPoolExecutor(workers, SPAWN, initializer=_start, initargs=(shared,))
    try:
        yield lambda function, *arguments: pool.submit(_call, function, *arguments)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_shared: Any = None


def _start(shared: Any) -> None:
    global _shared
    _shared = shared
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threadpool_limits(1)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_shared, *arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

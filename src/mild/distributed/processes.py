"""A pool of spawned processes for work that Python itself does, such as text features."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

__all__ = ["SPAWN", "process_pool"]

#: Never fork: threads of the linear algebra may hold locks.
SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def process_pool(
    workers: int, initializer: Callable[..., None], initargs: tuple[Any, ...]
) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes use one thread each for linear algebra and end with their parent."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = ProcessPoolExecutor(
        workers, SPAWN, initializer=_start, initargs=(initializer, *initargs)
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _start(initializer: Callable[..., None], *initargs: Any) -> None:
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*initargs)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

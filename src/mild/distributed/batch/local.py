"""The engine on this machine: threads where Arrow and BLAS do the work, processes where Python does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

from threadpoolctl import threadpool_limits

from mild.artifact import LoadedRouter, load
from mild.distributed.batch.job import Job
from mild.distributed.batch.partitions import Partition
from mild.distributed.batch.routing import Done, route_partition
from mild.errors import DataFileError

__all__ = ["route_here"]

# Processes take a second or two to start: so many seconds go by without them.
BEFORE_POOL = 3.0


def route_here(
    job: Job, router: LoadedRouter, todo: Sequence[Partition], workers: int
) -> Generator[Done, None, None]:
    """Route partitions with so many workers; what is done comes as it is done.

    Every worker has one thread for its linear algebra: rows must not depend on how many there are.
    """
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        # Only text features spend their time in Python.
        slow = job.reading.kind == "texts"
        start = time.monotonic()
        rest = deque(todo)
        while rest and (
            workers == 1 or len(rest) == 1 or (slow and time.monotonic() - start < BEFORE_POOL)
        ):
            yield route_partition(job, router, rest.popleft())
        if not rest:
            return
        opened = _processes(job, workers) if slow else _threads(job, router, workers)
        pool, work = stack.enter_context(opened)
        yield from _collected(pool, work, rest, workers)


def _collected(
    pool: Executor, work: Callable[[Partition], Done], todo: Iterable[Partition], workers: int
) -> Iterator[Done]:
    rest = iter(todo)
    # One more than there are workers waits, so that none does.
    waiting = {pool.submit(work, partition) for partition in islice(rest, workers + 1)}
    try:
        while waiting:
            done: set[Future[Done]]
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                following = next(rest, None)
                if following is not None and future.exception() is None:
                    waiting.add(pool.submit(work, following))
                yield future.result()
    except BrokenProcessPool as error:
        raise DataFileError(
            "a process that routes was ended from outside (out of memory, perhaps); what is finished "
            "stays. Run it again, with fewer --jobs."
        ) from error


@contextmanager
def _threads(
    job: Job, router: LoadedRouter, workers: int
) -> Iterator[tuple[Executor, Callable[[Partition], Done]]]:
    stop = threading.Event()
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool, lambda partition: route_partition(job, router, partition, stop.is_set)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _processes(job: Job, workers: int) -> Iterator[tuple[Executor, Callable[[Partition], Done]]]:
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    # Never a fork: threads of the linear algebra may hold locks.
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, context, initializer=_open, initargs=(job, stop))
    try:
        yield pool, _work
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


_opened: tuple[Job, LoadedRouter, Any] | None = None


def _open(job: Job, stop: Any) -> None:
    """In a process of its own: load the router once."""
    global _opened
    # Ctrl-C is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _opened = (job, job.prepared(load(job.folder)), stop)


def _end_with_parent() -> None:
    """A parent that was killed tells nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(partition: Partition) -> Done:
    """In a process of its own: route a partition."""
    if _opened is None:
        raise RuntimeError(f"process {os.getpid()} was not opened")
    job, router, stop = _opened
    with threadpool_limits(1):
        return route_partition(job, router, partition, stop.is_set)

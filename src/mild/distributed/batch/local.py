"""The engine on this machine: threads where Arrow and BLAS do the work, processes where Python does."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

from threadpoolctl import threadpool_limits

from mild.artifact import LoadedRouter, load
from mild.distributed.batch.job import Job, prepare
from mild.distributed.batch.routing import RoutedPartition, route_partition
from mild.distributed.partitions import Partition
from mild.distributed.processes import SPAWN, process_pool
from mild.errors import DataFileError

__all__ = ["route_here"]

# Seconds of work before processes are started, which takes a second or two.
BEFORE_POOL = 3.0

Route = Callable[[Partition], RoutedPartition]


def route_here(
    job: Job, router: LoadedRouter, todo: Sequence[Partition], workers: int
) -> Generator[RoutedPartition, None, None]:
    """Route partitions and yield each result as it is done.

    Every worker uses one thread for linear algebra: rows must not depend on the number of workers.
    """
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        # Only text features spend their time in Python.
        by_processes = job.inputs.kind == "texts"
        start = time.monotonic()
        rest = deque(todo)
        while rest and (
            workers == 1
            or len(rest) == 1
            or (by_processes and time.monotonic() - start < BEFORE_POOL)
        ):
            yield route_partition(job, router, rest.popleft())
        if rest:
            opened = _processes(job, workers) if by_processes else _threads(job, router, workers)
            pool, route = stack.enter_context(opened)
            yield from _as_done(pool, route, rest, workers)


def _as_done(
    pool: Executor, route: Route, todo: Iterable[Partition], workers: int
) -> Iterator[RoutedPartition]:
    rest = iter(todo)
    # One more than there are workers, so that none of them waits.
    running = {pool.submit(route, partition) for partition in islice(rest, workers + 1)}
    try:
        while running:
            done: set[Future[RoutedPartition]]
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                running.update(pool.submit(route, partition) for partition in islice(rest, 1))
                yield result
    except BrokenProcessPool as error:
        raise DataFileError(
            "a worker process was ended from outside (out of memory, perhaps); finished partitions stay. "
            "Run it again, with fewer --jobs."
        ) from error


@contextmanager
def _threads(job: Job, router: LoadedRouter, workers: int) -> Iterator[tuple[Executor, Route]]:
    stop = threading.Event()
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool, lambda partition: route_partition(job, router, partition, stop.is_set)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _processes(job: Job, workers: int) -> Iterator[tuple[Executor, Route]]:
    stop = SPAWN.Event()
    with process_pool(workers, _load_router, (job, stop)) as pool:
        try:
            yield pool, _route_in_process
        finally:
            stop.set()


_loaded: tuple[Job, LoadedRouter, Any] | None = None


def _load_router(job: Job, stop: Any) -> None:
    """In a worker process: load the router once."""
    global _loaded
    _loaded = (job, prepare(load(job.folder), job.options), stop)


def _route_in_process(partition: Partition) -> RoutedPartition:
    if _loaded is None:
        raise RuntimeError("the router was not loaded in this process")
    job, router, stop = _loaded
    with threadpool_limits(1):
        return route_partition(job, router, partition, stop.is_set)

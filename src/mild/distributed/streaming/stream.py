"""Queries on a stream, answers on another: in order, in bounded memory, on as many cores as there are."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mild.artifact import LoadedRouter
from mild.artifact.prices import Prices
from mild.data.recipe import Recipe
from mild.distributed.streaming.blocks import BLOCK_BYTES, Block, read_blocks
from mild.distributed.streaming.desk import Answered, Desk, open_desk, work
from mild.distributed.streaming.lines import FORMATS, LineFormat, find_format
from mild.errors import DataFileError, UnsupportedError, check_option
from mild.policies.base import thread_count

__all__ = ["Routed", "route_stream"]

# Processes take a second to start: so many full blocks are answered without them.
BEFORE_POOL = 4
# Blocks under way per process: one at work, one waiting.
AHEAD = 2


@dataclass
class Routed:
    """What became of a stream.

    Attributes
    ----------
    counts : expert -> queries that were sent to it
    bad : lines without a query
    blank : lines that hold nothing, which are passed over
    lines : how lines were read; None if there was none
    """

    counts: dict[str, int]
    bad: int = 0
    blank: int = 0
    lines: LineFormat | None = None

    @property
    def queries(self) -> int:
        """How many were answered."""
        return sum(self.counts.values())


@dataclass
class _Run:
    """Writes answers in order, and keeps count."""

    sink: BinaryIO
    names: list[str]
    on_bad: Callable[[int, str], None]
    routed: Routed = field(init=False)

    def __post_init__(self) -> None:
        self.routed = Routed(dict.fromkeys(self.names, 0))

    def take(self, answered: Answered) -> None:
        self.sink.write(answered.output)
        # Whoever waits for an answer before the next question gets it.
        self.sink.flush()
        for name, count in zip(self.names, answered.counts, strict=True):
            self.routed.counts[name] += count
        self.routed.blank += answered.blank
        for number, reason in answered.bad:
            self.routed.bad += 1
            self.on_bad(number, reason)


def route_stream(
    router: LoadedRouter,
    folder: str | os.PathLike[str],
    source: Any,
    sink: BinaryIO,
    *,
    lines: str = "auto",
    query: str | None = None,
    echo: bool = False,
    skip_bad: bool = False,
    prices: Prices | None = None,
    jobs: int | None = None,
    on_bad: Callable[[int, str], None] = lambda number, reason: None,
    block_bytes: int = BLOCK_BYTES,
) -> Routed:
    """Answer every line of a stream by a JSON line.

    Parameters
    ----------
    router : what ``mild.artifact.load`` gave
    folder : where it came from; other processes load it again
    source, sink : binary streams
    lines : "json", "text", or "auto" for what the first line looks like
    query : field of the query in JSON objects; None for what the router learned from, else the usual ones
    echo : whether answers repeat their query
    skip_bad : whether lines without a query are left out of the output
    prices : new prices to decide under, where the router keeps prices apart
    jobs : processes; None for as many as there are cores
    on_bad : called with the number of a line without a query, and the reason
    """
    if router.text is None:
        raise UnsupportedError(
            "this router was fitted on columns of numbers, so it cannot read queries; use mild predict "
            "for a table of them, or fit one on a table of outcomes."
        )
    check_option("format", lines, FORMATS)
    new = prices or Prices()
    run = _Run(sink, router.expert_names, on_bad)
    blocks = read_blocks(source, block_bytes)
    first = next(blocks, None)
    if first is None:
        return run.routed
    vectors = router.text.kind == "vectors"
    form = find_format(first.lines, lines, query, vectors, _recipe(router))
    run.routed.lines = form
    options: dict[str, Any] = {"lines": form, "echo": echo, "skip_bad": skip_bad}
    desk = Desk(new.on(router), **options)
    workers = thread_count() if jobs is None else max(1, jobs)
    run.take(desk.answer(first))
    if not _answer_alone(run, desk, blocks, None if workers == 1 else BEFORE_POOL):
        with _pool(Path(folder), new, options, workers) as pool:
            _answer_together(run, blocks, pool, AHEAD * workers)
    return run.routed


def _recipe(router: LoadedRouter) -> Recipe | None:
    """How the router's table made its queries; None if that was not written down."""
    fields = (router.metadata.get("notes") or {}).get("query")
    return None if fields is None else Recipe.from_dict(fields)


def _answer_alone(run: _Run, desk: Desk, blocks: Iterator[Block], most: int | None) -> bool:
    """Answer in this process, up to so many full blocks; whether that was all."""
    full = 0
    while most is None or full < most:
        block = next(blocks, None)
        if block is None:
            return True
        full += block.full
        run.take(desk.answer(block))
    return False


def _answer_together(
    run: _Run, blocks: Iterator[Block], pool: ProcessPoolExecutor, most: int
) -> None:
    """Answer by processes, in order; nothing waits where the input pauses."""
    waiting: deque[Future[Answered]] = deque()
    try:
        for block in blocks:
            waiting.append(pool.submit(work, block))
            while waiting and (len(waiting) >= most or not block.full):
                run.take(waiting.popleft().result())
        while waiting:
            run.take(waiting.popleft().result())
    except BrokenProcessPool as error:
        raise DataFileError(
            "a process that answers queries was ended from outside (out of memory, perhaps); what was "
            "written is complete up to there. Try --jobs 1."
        ) from error


@contextmanager
def _pool(
    folder: Path, prices: Prices, options: dict[str, Any], workers: int
) -> Iterator[ProcessPoolExecutor]:
    # One thread each: the processes are the parallelism.
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = ProcessPoolExecutor(
        workers,
        # Never a fork: threads of the linear algebra may hold locks.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=open_desk,
        initargs=(folder, prices, options),
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before

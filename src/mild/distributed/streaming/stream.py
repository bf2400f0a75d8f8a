"""Route the lines of a stream: answers in order, in bounded memory, on as many cores as there are."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mild.artifact import LoadedRouter, load
from mild.artifact.answers import Answers, error_line
from mild.artifact.deciding import decide_all
from mild.artifact.prices import Prices
from mild.data.queries import Recipe
from mild.distributed.processes import process_pool
from mild.distributed.streaming.blocks import BLOCK_BYTES, Block, read_blocks
from mild.distributed.streaming.lines import FORMATS, BadLineError, LineFormat, Query, find_format
from mild.errors import DataFileError, MildError, UnsupportedError, check_option
from mild.policies.base import thread_count

__all__ = ["LineRouter", "Routed", "RoutedBlock", "route_stream"]

# Full blocks that are routed before processes are started, which takes a second.
BEFORE_POOL = 4
# Blocks under way per process: one at work, one waiting.
AHEAD = 2


@dataclass(frozen=True)
class RoutedBlock:
    """Answers to a block of lines.

    Attributes
    ----------
    output : JSON lines
    counts : (n_experts,) queries that were sent to each expert
    bad : (line number, reason) of lines without a query
    blank : number of blank lines
    """

    output: bytes
    counts: list[int]
    bad: list[tuple[int, str]]
    blank: int = 0


class LineRouter:
    """A router with a text step that answers lines.

    Parameters
    ----------
    lines : how lines are read
    echo : whether answers repeat their query
    skip_bad : whether lines without a query are left out of the output
    """

    def __init__(
        self, router: LoadedRouter, lines: LineFormat, echo: bool = False, skip_bad: bool = False
    ) -> None:
        self.router = router
        self.lines = lines
        self.skip_bad = skip_bad
        self._answers = Answers(router.expert_names, echo)

    def route(self, block: Block) -> RoutedBlock:
        """Answers to a block, in the order of its lines."""
        queries: list[Query] = []
        # For each line that is not blank: the index of its query, or its number and why it has none.
        entries: list[int | tuple[int, str]] = []
        for number, line in enumerate(block.lines, block.first):
            try:
                query = self.lines.read(line)
                if query is not None and self.lines.vectors:
                    self.router.features([query.content])
            except (BadLineError, MildError) as error:
                entries.append((number, str(error)))
                continue
            if query is not None:
                entries.append(len(queries))
                queries.append(query)
        answers, counts = self._decide(queries)
        bad = [entry for entry in entries if isinstance(entry, tuple)]
        output = "".join(
            f"{error_line(*entry) if isinstance(entry, tuple) else answers[entry]}\n"
            for entry in entries
            if not (self.skip_bad and isinstance(entry, tuple))
        )
        return RoutedBlock(output.encode(), counts, bad, len(block.lines) - len(entries))

    def _decide(self, queries: list[Query]) -> tuple[list[str], list[int]]:
        if not queries:
            return [], [0] * self.router.n_experts
        contents = [query.content for query in queries]
        found = decide_all(self.router.policy, self.router.features(contents))
        answers = self._answers.write(found, contents, [query.key for query in queries])
        chosen = found.chosen.tolist()
        return answers, [chosen.count(k) for k in range(self.router.n_experts)]


@dataclass
class Routed:
    """Counts of a stream.

    Attributes
    ----------
    counts : expert -> queries that were sent to it
    bad : lines without a query
    blank : blank lines, which have no answer
    lines : how lines were read; None if there was none
    """

    counts: dict[str, int]
    bad: int = 0
    blank: int = 0
    lines: LineFormat | None = None

    @property
    def queries(self) -> int:
        """Number of answers."""
        return sum(self.counts.values())


@dataclass
class _Writer:
    """Writes answers in order and counts them."""

    sink: BinaryIO
    names: list[str]
    on_bad: Callable[[int, str], None]
    routed: Routed = field(init=False)

    def __post_init__(self) -> None:
        self.routed = Routed(dict.fromkeys(self.names, 0))

    def write(self, block: RoutedBlock) -> None:
        self.sink.write(block.output)
        # A caller may wait for an answer before the next question.
        self.sink.flush()
        for name, count in zip(self.names, block.counts, strict=True):
            self.routed.counts[name] += count
        self.routed.blank += block.blank
        self.routed.bad += len(block.bad)
        for number, reason in block.bad:
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
    """Answer every line of a stream with a JSON line.

    Parameters
    ----------
    router : result of ``mild.artifact.load``
    folder : folder of the router, from which other processes load it
    source, sink : binary streams
    lines : "json", "text", or "auto" to decide by the first line
    query : field of the query in JSON objects; None for those that the router was fitted on, or usual ones
    echo : whether answers repeat their query
    skip_bad : whether lines without a query are left out of the output
    prices : new prices, for a router that keeps prices apart
    jobs : processes; None for one per core
    on_bad : called with the number of a line without a query, and the reason
    """
    if router.text is None:
        raise UnsupportedError(
            "this router was fitted on columns of numbers, so it cannot read queries; use mild predict "
            "for a table of them, or fit one on a table of outcomes.",
            parameter="router",
        )
    check_option("format", lines, FORMATS)
    prices = prices or Prices()
    writer = _Writer(sink, router.expert_names, on_bad)
    blocks = read_blocks(source, block_bytes)
    first = next(blocks, None)
    if first is None:
        return writer.routed
    fields = (router.metadata.get("notes") or {}).get("query")
    recipe = None if fields is None else Recipe.from_dict(fields)
    form = find_format(first.lines, lines, query, router.text.kind == "vectors", recipe)
    writer.routed.lines = form
    options: dict[str, Any] = {"lines": form, "echo": echo, "skip_bad": skip_bad}
    here = LineRouter(prices.on(router), **options)
    workers = thread_count() if jobs is None else max(1, jobs)
    writer.write(here.route(first))
    if not _route_here(writer, here, blocks, None if workers == 1 else BEFORE_POOL):
        with process_pool(workers, _load_router, (Path(folder), prices, options)) as pool:
            _route_by_processes(writer, blocks, pool, AHEAD * workers)
    return writer.routed


def _route_here(
    writer: _Writer, router: LineRouter, blocks: Iterator[Block], most: int | None
) -> bool:
    """Route in this process, up to so many full blocks; whether that was all."""
    full = 0
    while most is None or full < most:
        block = next(blocks, None)
        if block is None:
            return True
        full += block.full
        writer.write(router.route(block))
    return False


def _route_by_processes(
    writer: _Writer, blocks: Iterator[Block], pool: ProcessPoolExecutor, most: int
) -> None:
    """Route by processes, in order; where the input pauses, all answers are written."""
    running: deque[Future[RoutedBlock]] = deque()
    try:
        for block in blocks:
            running.append(pool.submit(_route_in_process, block))
            while running and (len(running) >= most or not block.full):
                writer.write(running.popleft().result())
        while running:
            writer.write(running.popleft().result())
    except BrokenProcessPool as error:
        raise DataFileError(
            "a worker process was ended from outside (out of memory, perhaps); the output is complete up "
            "to there. Try --jobs 1."
        ) from error


_router: LineRouter | None = None


def _load_router(folder: Path, prices: Prices, options: dict[str, Any]) -> None:
    """In a worker process: load the router once."""
    global _router
    _router = LineRouter(prices.on(load(folder)), **options)


def _route_in_process(block: Block) -> RoutedBlock:
    if _router is None:
        raise RuntimeError("the router was not loaded in this process")
    return _router.route(block)

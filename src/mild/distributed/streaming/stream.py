"""Route the lines of a stream: answers in order, in bounded memory, on several cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, BinaryIO

from mild.artifact import LoadedRouter
from mild.artifact.answers import Answers, error_line
from mild.artifact.deciding import decide_all
from mild.artifact.prices import Prices
from mild.data.recipe import Recipe
from mild.distributed.executors import process_pool, result_of
from mild.distributed.streaming.lines import (
    BLOCK_BYTES,
    FORMATS,
    BadLineError,
    Block,
    LineFormat,
    Query,
    find_format,
    read_blocks,
)
from mild.errors import MildError, UnsupportedError, check_option
from mild.policies.base import thread_count

__all__ = ["LineRouter", "Routed", "RoutedBlock", "route_stream"]

# Full blocks that are routed before processes are started, which takes a second.
BEFORE_POOL = 4
# Blocks under way per process: one at work, one waiting.
AHEAD = 2


@dataclass(frozen=True)
class RoutedBlock:
    """Answers to a block: JSON lines, queries per expert, (number, reason) of bad lines, and blank lines."""

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
        answers: list[str] = []
        chosen: list[int] = []
        if queries:
            contents = [query.content for query in queries]
            found = decide_all(self.router.policy, self.router.features(contents))
            answers = self._answers.write(found, contents, [query.key for query in queries])
            chosen = found.chosen.tolist()
        bad = [entry for entry in entries if isinstance(entry, tuple)]
        output = "".join(
            f"{error_line(*entry) if isinstance(entry, tuple) else answers[entry]}\n"
            for entry in entries
            if not (self.skip_bad and isinstance(entry, tuple))
        )
        counts = [chosen.count(k) for k in range(self.router.n_experts)]
        return RoutedBlock(output.encode(), counts, bad, len(block.lines) - len(entries))


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


def route_stream(
    router: LoadedRouter,
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
    names = router.expert_names
    routed = Routed(dict.fromkeys(names, 0))
    blocks = read_blocks(source, block_bytes)
    first = next(blocks, None)
    if first is None:
        return routed
    notes = (router.metadata.get("notes") or {}).get("query")
    recipe = None if notes is None else Recipe.from_dict(notes)
    routed.lines = find_format(first.lines, lines, query, router.text.kind == "vectors", recipe)
    here = LineRouter((prices or Prices()).on(router), routed.lines, echo, skip_bad)
    workers = thread_count() if jobs is None else max(1, jobs)
    for block in _routed_blocks(here, first, blocks, workers):
        sink.write(block.output)
        # A caller may wait for an answer before the next question.
        sink.flush()
        for name, count in zip(names, block.counts, strict=True):
            routed.counts[name] += count
        routed.blank += block.blank
        routed.bad += len(block.bad)
        for number, reason in block.bad:
            on_bad(number, reason)
    return routed


def _routed_blocks(
    router: LineRouter, first: Block, blocks: Iterator[Block], workers: int
) -> Iterator[RoutedBlock]:
    """Route blocks in this process and, after a few full ones, in several."""
    yield router.route(first)
    full = 0
    while workers == 1 or full < BEFORE_POOL:
        block = next(blocks, None)
        if block is None:
            return
        full += block.full
        yield router.route(block)
    running: deque[Future[RoutedBlock]] = deque()
    with process_pool(workers, router) as submit:
        for block in blocks:
            running.append(submit(LineRouter.route, block))
            # Where the input pauses, all answers are written.
            while running and (len(running) >= AHEAD * workers or not block.full):
                yield _answered(running)
        while running:
            yield _answered(running)


def _answered(running: deque[Future[RoutedBlock]]) -> RoutedBlock:
    block: RoutedBlock = result_of(
        running.popleft(), "a block", "The output is complete up to there. Try --jobs 1."
    )
    return block

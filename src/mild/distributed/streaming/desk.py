"""One worker's desk: a loaded router that turns a block of lines into a block of answers."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mild.artifact import LoadedRouter, load
from mild.artifact.answers import Answers, error_line
from mild.artifact.deciding import decide_all
from mild.artifact.prices import Prices
from mild.distributed.streaming.blocks import Block
from mild.distributed.streaming.lines import BadLineError, LineFormat, Query
from mild.errors import MildError

__all__ = ["Answered", "Desk", "open_desk", "work"]


@dataclass(frozen=True)
class Answered:
    """A block of answers.

    Attributes
    ----------
    output : JSON lines, ready to be written
    counts : (n_experts,) how many queries went to each expert
    bad : (line number, reason) of lines without a query
    blank : how many lines hold nothing
    """

    output: bytes
    counts: list[int]
    bad: list[tuple[int, str]]
    blank: int = 0


class Desk:
    """A router with everything that it takes to answer lines.

    Parameters
    ----------
    router : with a text step
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

    def answer(self, block: Block) -> Answered:
        """Answers to a block, in the order of its lines."""
        queries: list[Query] = []
        # Per line: its answer's place, or why it has none.
        places: list[int | tuple[int, str]] = []
        for number, line in enumerate(block.lines, block.first):
            try:
                query = self.lines.read(line)
                if query is not None and self.lines.vectors:
                    self.router.features([query.content])
            except (BadLineError, MildError) as error:
                places.append((number, str(error)))
                continue
            if query is not None:
                places.append(len(queries))
                queries.append(query)
        answers, counts = self._decide(queries)
        bad = [place for place in places if isinstance(place, tuple)]
        output = [
            error_line(*place) if isinstance(place, tuple) else answers[place]
            for place in places
            if not (self.skip_bad and isinstance(place, tuple))
        ]
        text = "".join(f"{line}\n" for line in output)
        return Answered(text.encode(), counts, bad, len(block.lines) - len(places))

    def _decide(self, queries: list[Query]) -> tuple[list[str], list[int]]:
        if not queries:
            return [], [0] * self.router.n_experts
        contents = [query.content for query in queries]
        found = decide_all(self.router.policy, self.router.features(contents))
        answers = self._answers.write(found, contents, [query.key for query in queries])
        chosen = found.chosen.tolist()
        return answers, [chosen.count(k) for k in range(self.router.n_experts)]


_desk: Desk | None = None


def open_desk(folder: Path, prices: Prices, options: dict[str, Any]) -> None:
    """In a process of its own: load the router once."""
    global _desk
    # Ctrl-C is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _desk = Desk(prices.on(load(folder)), **options)


def work(block: Block) -> Answered:
    """In a process of its own: answer a block."""
    if _desk is None:
        raise RuntimeError(f"process {os.getpid()} was not opened")
    return _desk.answer(block)

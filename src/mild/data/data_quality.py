"""Findings about a table of outcomes: duplicates, missing cells, ties, constant experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.errors import DataFileError, counted, listed
from mild.money import amount

#: What to do about scores outside [0, 1].
RESCALE = "Rescale them so that 1 is a perfect answer."
#: How messages count the rows of a table.
ROW_ONE = "row 1 is the first below the header"
#: A price that is so many times the median is questioned.
DEAR = 1000
#: Queries with more characters than this are counted.
LONG = 1_000_000


@dataclass(frozen=True)
class Finding:
    """A property of a table that its user should know about."""

    kind: str  # short name, for programs
    count: int  # rows, cells, pairs or experts concerned
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def duplicate_groups(queries: Sequence[str]) -> IntArray:
    """First row with the same text, whitespace aside: equal numbers are equal queries.

    A split that keeps equal numbers together never trains on a query that it tests on.

    Parameters
    ----------
    queries : texts

    Returns
    -------
    (n,) array of row numbers

    Examples
    --------
    >>> duplicate_groups(["2 + 2?", "Who?", " 2 + 2? "])
    array([0, 1, 0])
    """
    first: dict[str, int] = {}
    rows = (first.setdefault(" ".join(text.split()), row) for row, text in enumerate(queries))
    return np.fromiter(rows, np.intp, len(queries))


def row_number(row: int, row_numbers: IntArray | None = None) -> int:
    """Number of a row for a message, from 1; ``row_numbers`` are those in the file, from 0."""
    return 1 + (row if row_numbers is None else int(row_numbers[row]))


def check_range(
    what: str,
    values: FloatArray,
    columns: Sequence[str],
    high: float,
    remedy: str,
    row_numbers: IntArray | None = None,
) -> None:
    """Refuse numbers outside [0, high] and infinity, with their count and an example; NaN is allowed."""
    outside = np.isinf(values) | (values < 0) | (values > high)
    count = int(outside.sum())
    if count:
        row, expert = (int(index) for index in np.argwhere(outside)[0])
        rule, verbs = f"lie in [0, {high:g}]", ("cell does", "cells do")
        if not np.isfinite(high):
            rule, verbs = "be finite and not negative", ("cell is", "cells are")
        raise DataFileError(
            f"{what} must {rule}; {counted(count, *verbs)} not, such as {values[row, expert]:g} in row "
            f"{row_number(row, row_numbers)} of column {columns[expert]!r} ({ROW_ONE}). {remedy}",
            parameter=what,
        )


@dataclass(frozen=True)
class ScoreCounts:
    """Counts over scores."""

    rows: int
    asked: IntArray  # (p,) rows in which each expert was asked
    complete: int  # rows in which every expert was asked
    ties: int  # rows in which several were asked and all score the same
    low: FloatArray  # (p,) least score of each expert; infinity where it was never asked
    high: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> ScoreCounts:
        """Counts of scores (n, p), NaN where an expert was not asked."""
        asked = ~np.isnan(scores)
        several = asked.sum(axis=1) > 1
        same = np.fmin.reduce(scores, axis=1) == np.fmax.reduce(scores, axis=1)
        return cls(
            len(scores),
            asked.sum(axis=0),
            int(asked.all(axis=1).sum()),
            int((several & same).sum()),
            np.fmin.reduce(scores, axis=0, initial=np.inf),
            np.fmax.reduce(scores, axis=0, initial=-np.inf),
        )

    def findings(self, expert_names: Sequence[str]) -> list[Finding]:
        """Missing cells, experts that never vary, ties."""
        found = []
        size = self.rows * len(expert_names)
        missing = size - int(self.asked.sum())
        if missing:
            words = (
                f"{missing:,} of {counted(size, 'cell')} ({100 * missing / size:.1f} %) are missing and "
                f"kept as not asked; {counted(self.complete, 'row has', 'rows have')} every expert, "
                f"so the means of the experts are over different rows."
            )
            found.append(Finding("missing", missing, words))
        states = {1.0: "always right", 0.0: "always wrong"}
        constant = [
            f"{expert_names[k]} is {states.get(low, f'at {low:g} in every row')}"
            for k, low in enumerate(self.low.tolist())
            if low == self.high[k] and self.asked[k] > 1
        ]
        if constant:
            count = counted(len(constant), "expert never varies", "experts never vary")
            found.append(Finding("constant", len(constant), f"{count}: {listed(constant, 6)}."))
        if self.ties:
            words = (
                f"{counted(self.ties, 'row is a tie', 'rows are ties')} "
                f"({100 * self.ties / self.rows:.1f} %): all experts that were asked have the same score, "
                f"so only the cost of asking can decide."
            )
            found.append(Finding("ties", self.ties, words))
        return found


def unasked_rows(count: int) -> Finding:
    """Rows in which no expert was asked."""
    verb = "was" if count == 1 else "were"
    sentence = f"{counted(count, 'row')} in which no expert was asked {verb} dropped."
    return Finding("unasked_rows", count, sentence)


def examine(
    queries: Sequence[str],
    expert_names: Sequence[str],
    scores: FloatArray,
    prices: FloatArray | None,
    has_text: bool,
    row_numbers: IntArray | None = None,
) -> list[Finding]:
    """Findings about queries, cells and prices; every row has a score."""
    found: list[Finding] = []
    if has_text:
        groups = duplicate_groups(queries)
        lengths = np.fromiter(map(len, queries), np.intp, len(queries))
        repeats = int((groups != np.arange(len(groups))).sum())
        words = counted(repeats, "query repeats", "queries repeat")
        words += " an earlier one, apart from whitespace: keep them on the same side of a split."
        found.append(Finding("duplicates", repeats, words))
        empty = sum(not text or text.isspace() for text in queries)
        words = f"{counted(empty, 'query is', 'queries are')} empty: there is nothing to route by."
        found.append(Finding("empty_queries", empty, words))
        long = int((lengths > LONG).sum())
        words = (
            f"{counted(long, 'query has', 'queries have')} more than {LONG:,} characters, up to "
        )
        found.append(Finding("long_queries", long, f"{words}{lengths.max(initial=0):,}."))
    found += ScoreCounts.of(scores).findings(expert_names)
    if prices is not None:
        found.append(_unknown_prices(expert_names, scores, prices))
        found.append(_dear_prices(expert_names, prices, row_numbers))
    return [finding for finding in found if finding.count]


def _dear_prices(
    expert_names: Sequence[str], prices: FloatArray, row_numbers: IntArray | None
) -> Finding:
    """Prices that are far above the median of the table, or of their expert."""
    paid = np.where(prices > 0, prices, np.nan)
    known = np.sort(paid[~np.isnan(paid)])
    if not len(known):
        return Finding("large_prices", 0, "")
    # The lower of two middle prices: of two experts one may be in another unit throughout.
    median = known[(len(known) - 1) // 2]
    own = [np.sort(column[~np.isnan(column)]) for column in paid.T]
    medians = [column[(len(column) - 1) // 2] if len(column) else median for column in own]
    large = np.argwhere(paid > DEAR * np.minimum(median, medians))
    count = len(large)
    if not count:
        return Finding("large_prices", 0, "")
    row, k = (int(index) for index in large[np.argmax(paid[tuple(large.T)])])
    usual, highest = amount(min(median, medians[k])), amount(prices[row, k])
    words = (
        f"{counted(count, 'price is', 'prices are')} more than {DEAR:,} times the median (${usual}), such "
        f"as ${highest} of {expert_names[k]!r} in row {row_number(row, row_numbers)}: prices are dollars "
        f"per query; check that none is in cents, or in dollars per million tokens."
    )
    return Finding("large_prices", count, words)


def _unknown_prices(expert_names: Sequence[str], scores: FloatArray, prices: FloatArray) -> Finding:
    """Answers without a price, and the experts whose dollars are therefore means over the known ones."""
    answers = (~np.isnan(scores)).sum(axis=0)
    unknown = (np.isnan(prices) & ~np.isnan(scores)).sum(axis=0)
    count = int(unknown.sum())
    words = (
        f"{counted(count, 'answer has', 'answers have')} no price: where dollars count, the loss of "
        f"{'it' if count == 1 else 'them'} is unknown, and a row without any price is left out."
    )
    partly = [
        f"{name} ({lacking:,} of {asked:,} unknown)"
        for name, lacking, asked in zip(expert_names, unknown, answers, strict=True)
        if 0 < lacking < asked
    ]
    if partly:
        words += f" Dollars of {listed(partly, 6)} are means over the known prices."
    return Finding("unknown_prices", count, words)

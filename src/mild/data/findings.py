"""What is odd about a table of outcomes, counted and said in a sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.data.duplicates import duplicate_groups
from mild.errors import DataFileError, listed

__all__ = [
    "RESCALE",
    "Cells",
    "Finding",
    "check_range",
    "counted",
    "examine",
    "share",
    "unasked_rows",
]

#: What to do about scores outside [0, 1].
RESCALE = "Rescale them so that 1 is a perfect answer."
#: Queries with more characters than this are counted.
LONG = 1_000_000


@dataclass(frozen=True)
class Finding:
    """Something that whoever uses the table should know.

    Attributes
    ----------
    kind : short name, for programs
    count : how many rows, cells, pairs or experts it is about
    sentence : the same for people
    """

    kind: str
    count: int
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "query", "queries"), counted(2263, "query", "queries"), counted(0, "row")
    ('1 query', '2,263 queries', '0 rows')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def share(count: int, total: int) -> str:
    """``count`` as a percentage of ``total``."""
    return f"{100 * count / total:.1f} %"


def check_range(
    what: str,
    values: FloatArray,
    columns: Sequence[str],
    low: float,
    high: float,
    remedy: str,
    places: IntArray | None = None,
) -> None:
    """Refuse numbers outside [low, high], with their count and an example; NaN may be anywhere.

    ``places`` are the numbers of the rows in their file, where they have others.
    """
    outside = ~np.isnan(values) & ~((values >= low) & (values <= high))
    # Infinity lies in [0, inf) to numpy, and is a price of nothing.
    outside |= np.isinf(values)
    count = int(outside.sum())
    if count:
        row, expert = (int(index) for index in np.argwhere(outside)[0])
        place = row if places is None else places[row]
        rule = f"lie in [{low:g}, {high:g}]" if np.isfinite(high) else "be finite and not negative"
        raise DataFileError(
            f"{what} must {rule}; {counted(count, 'cell does', 'cells do')} not, such as "
            f"{values[row, expert]:g} in row {place} of column {columns[expert]!r}. {remedy}"
        )


@dataclass(frozen=True)
class Cells:
    """Scores, counted so that the counts of pieces of a table add up to those of the table.

    Attributes
    ----------
    rows : how many
    asked : (p,) rows in which each expert was asked
    complete : rows in which every expert was asked
    ties : rows in which several were asked and all score the same
    low, high : (p,) least and largest score of each expert; infinity where it was never asked

    Examples
    --------
    >>> one, other = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, np.nan]])
    >>> (Cells.of(one) + Cells.of(other)).findings(["small", "large"])[-1].sentence
    '1 row is a tie (33.3 %): all that were asked score the same, and only what asking costs can decide.'
    """

    rows: int
    asked: IntArray
    complete: int
    ties: int
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> Cells:
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

    def __add__(self, other: Cells) -> Cells:
        return Cells(
            self.rows + other.rows,
            self.asked + other.asked,
            self.complete + other.complete,
            self.ties + other.ties,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def findings(self, expert_names: Sequence[str]) -> list[Finding]:
        """What is odd about them."""
        found = []
        size = self.rows * len(expert_names)
        missing = size - int(self.asked.sum())
        if missing:
            found.append(
                Finding(
                    "missing",
                    missing,
                    f"{missing:,} of {counted(size, 'cell')} ({share(missing, size)}) are missing and "
                    f"kept as not asked; {counted(self.complete, 'row has', 'rows have')} every expert, "
                    f"so means over different rows are not quite comparable.",
                )
            )
        words = {1.0: "always right", 0.0: "always wrong"}
        constant = [
            f"{expert_names[k]} is {words.get(low, f'at {low:g} in every row')}"
            for k, low in enumerate(self.low.tolist())
            if low == self.high[k] and self.asked[k] > 1
        ]
        if constant:
            found.append(
                Finding(
                    "constant",
                    len(constant),
                    f"{counted(len(constant), 'expert never varies', 'experts never vary')}: "
                    f"{listed(constant, 6)}.",
                )
            )
        if self.ties:
            found.append(
                Finding(
                    "ties",
                    self.ties,
                    f"{counted(self.ties, 'row is a tie', 'rows are ties')} "
                    f"({share(self.ties, self.rows)}): all that were asked score the same, and only "
                    f"what asking costs can decide.",
                )
            )
        return found


def unasked_rows(count: int) -> Finding:
    """Rows that are no outcomes: nobody was asked."""
    verb = "was" if count == 1 else "were"
    sentence = f"{counted(count, 'row')} in which no expert was asked {verb} dropped."
    return Finding("unasked_rows", count, sentence)


def examine(
    queries: Sequence[str],
    expert_names: Sequence[str],
    scores: FloatArray,
    prices: FloatArray | None,
    has_text: bool,
) -> list[Finding]:
    """Findings about queries and cells; every row has a score."""
    found = _about_queries(queries) if has_text else []
    asked = ~np.isnan(scores)
    cells = Cells.of(scores)
    return [*found, *cells.findings(expert_names), *_about_prices(prices, asked)]


def _about_queries(queries: Sequence[str]) -> list[Finding]:
    groups = duplicate_groups(queries)
    repeats = int((groups != np.arange(len(groups))).sum())
    lengths = np.fromiter(map(len, queries), np.intp, len(queries))
    empty = sum(map(str.isspace, queries)) + int((lengths == 0).sum())
    long = int((lengths > LONG).sum())
    found = []
    if repeats:
        found.append(
            Finding(
                "duplicates",
                repeats,
                f"{counted(repeats, 'query repeats', 'queries repeat')} an earlier one, whitespace "
                f"aside: keep equal ones on the same side of a split.",
            )
        )
    if empty:
        found.append(
            Finding(
                "empty_queries",
                empty,
                f"{counted(empty, 'query is', 'queries are')} empty: there is nothing to route by.",
            )
        )
    if long:
        found.append(
            Finding(
                "long_queries",
                long,
                f"{counted(long, 'query has', 'queries have')} more than {LONG:,} characters, up to "
                f"{lengths.max():,}.",
            )
        )
    return found


def _about_prices(prices: FloatArray | None, asked: BoolArray) -> list[Finding]:
    unknown = 0 if prices is None else int((np.isnan(prices) & asked).sum())
    if not unknown:
        return []
    return [
        Finding(
            "unknown_prices",
            unknown,
            f"{counted(unknown, 'answer has', 'answers have')} no price: a price weight cannot be "
            f"used before {'it is' if unknown == 1 else 'they are'} filled in, or the rows or "
            f"experts left out.",
        )
    ]

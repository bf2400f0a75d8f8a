"""What is odd about a table of outcomes, counted and said in a sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.arrays import BoolArray, FloatArray
from mild.exceptions import DataFileError
from mild.tables.columns import listed
from mild.tables.duplicates import duplicate_groups

__all__ = ["RESCALE", "Finding", "check_range", "counted", "examine", "share"]

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
    what: str, values: FloatArray, columns: Sequence[str], low: float, high: float, remedy: str
) -> None:
    """Refuse numbers outside [low, high], with their count and an example; NaN may be anywhere."""
    outside = ~np.isnan(values) & ~((values >= low) & (values <= high))
    # Infinity lies in [0, inf) to numpy, and is a price of nothing.
    outside |= np.isinf(values)
    count = int(outside.sum())
    if count:
        row, expert = (int(index) for index in np.argwhere(outside)[0])
        rule = f"lie in [{low:g}, {high:g}]" if np.isfinite(high) else "be finite and not negative"
        raise DataFileError(
            f"{what} must {rule}; {counted(count, 'cell does', 'cells do')} not, such as "
            f"{values[row, expert]:g} in row {row} of column {columns[expert]!r}. {remedy}"
        )


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
    return [*found, *_about_cells(expert_names, scores, asked), *_about_prices(prices, asked)]


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


def _about_cells(names: Sequence[str], scores: FloatArray, asked: BoolArray) -> list[Finding]:
    found = []
    missing = int((~asked).sum())
    if missing:
        complete = int(asked.all(axis=1).sum())
        found.append(
            Finding(
                "missing",
                missing,
                f"{missing:,} of {counted(scores.size, 'cell')} ({share(missing, scores.size)}) are "
                f"missing and kept as not asked; {counted(complete, 'row has', 'rows have')} every "
                f"expert, so means over different rows are not quite comparable.",
            )
        )
    low, high = np.nanmin(scores, axis=0), np.nanmax(scores, axis=0)
    words = {1.0: "always right", 0.0: "always wrong"}
    constant = [
        f"{names[k]} is {words.get(float(low[k]), f'at {low[k]:g} in every row')}"
        for k in np.flatnonzero((low == high) & (asked.sum(axis=0) > 1)).tolist()
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
    several = asked.sum(axis=1) > 1
    ties = int((several & (np.nanmin(scores, axis=1) == np.nanmax(scores, axis=1))).sum())
    if ties:
        found.append(
            Finding(
                "ties",
                ties,
                f"{counted(ties, 'row is a tie', 'rows are ties')} ({share(ties, len(scores))}): all "
                f"that were asked score the same, and only what asking costs can decide.",
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

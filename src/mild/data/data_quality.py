"""Findings about a table of outcomes: duplicates, missing cells, ties, constant experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.errors import DataFileError, count_noun, listed
from mild.money import amount

#: What to do about scores outside [0, 1].
RESCALE = "Rescale them so that 1 is a perfect answer."
#: How messages count the rows of a table.
ROW_ONE = "row 1 is the first below the header"
#: A price that is this many times the median is questioned.
DEAR = 1000
#: Queries with more characters than this are counted.
LONG = 1_000_000


@dataclass(frozen=True)
class Finding:
    """A property of a table that its user should know about.

    Attributes
    ----------
    kind : str
        Short name, for programs.
    count : int
        Number of rows, cells, pairs or experts concerned.
    sentence : str
        What was found, for people.
    """

    kind: str
    count: int
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)


def duplicate_groups(queries: Sequence[str]) -> IntArray:
    """Return for each row the first row with the same text; whitespace does not count.

    A split that keeps equal numbers together never trains on a query that it tests on.

    Parameters
    ----------
    queries : sequence of str
        Texts of the n rows.

    Returns
    -------
    ndarray of shape (n,)
        Row numbers.

    Examples
    --------
    >>> duplicate_groups(["2 + 2?", "Who?", " 2 + 2? "])
    array([0, 1, 0])
    """
    first_rows: dict[str, int] = {}
    groups = []
    for row, text in enumerate(queries):
        groups.append(first_rows.setdefault(" ".join(text.split()), row))
    return np.array(groups, np.intp)


def row_number(row: int, row_numbers: IntArray | None = None) -> int:
    """Number of a row for a message, from 1; ``row_numbers`` are those in the file, from 0."""
    if row_numbers is None:
        return 1 + row
    return 1 + int(row_numbers[row])


def check_range(
    parameter: str,
    values: FloatArray,
    columns: Sequence[str],
    high: float,
    remedy: str,
    row_numbers: IntArray | None = None,
) -> None:
    """Raise an error for numbers outside [0, high] or infinite, with an example; NaN is allowed."""
    outside = np.isinf(values) | (values < 0) | (values > high)
    n_outside = int(outside.sum())
    if n_outside == 0:
        return
    if np.isfinite(high):
        rule = f"lie in [0, {high:g}]"
        cells = count_noun(n_outside, "cell does", "cells do")
    else:
        rule = "be finite and not negative"
        cells = count_noun(n_outside, "cell is", "cells are")
    row, index = np.argwhere(outside)[0].tolist()
    raise DataFileError(
        f"{parameter} must {rule}; {cells} not, such as {values[row, index]:g} in row "
        f"{row_number(row, row_numbers)} of column {columns[index]!r} ({ROW_ONE}). {remedy}",
        parameter=parameter,
    )


@dataclass(frozen=True)
class ScoreCounts:
    """What the scores of a table say about its rows and experts."""

    rows: int
    asked: IntArray  # (n_experts,) rows in which each expert was asked
    complete: int  # rows in which every expert was asked
    ties: int  # rows in which several were asked and all score the same
    low: FloatArray  # (n_experts,) lowest score of each expert; infinity where it was never asked
    high: FloatArray  # (n_experts,) highest score of each expert

    @classmethod
    def from_scores(cls, scores: FloatArray) -> ScoreCounts:
        """Count over scores (n_rows, n_experts), NaN where an expert was not asked."""
        asked = ~np.isnan(scores)
        several_asked = asked.sum(axis=1) > 1
        # fmin and fmax leave NaN out.
        all_equal = np.fmin.reduce(scores, axis=1) == np.fmax.reduce(scores, axis=1)
        return cls(
            rows=len(scores),
            asked=asked.sum(axis=0),
            complete=int(asked.all(axis=1).sum()),
            ties=int((several_asked & all_equal).sum()),
            low=np.fmin.reduce(scores, axis=0, initial=np.inf),
            high=np.fmax.reduce(scores, axis=0, initial=-np.inf),
        )

    def findings(self, expert_names: Sequence[str]) -> list[Finding]:
        """Report missing cells, experts that never vary, and ties; a count may be 0."""
        return [
            self._missing_cells(len(expert_names)),
            self._constant_experts(expert_names),
            self._tied_rows(),
        ]

    def _missing_cells(self, n_experts: int) -> Finding:
        n_cells = self.rows * n_experts
        n_missing = n_cells - int(self.asked.sum())
        share = 0.0
        if n_cells:
            share = 100 * n_missing / n_cells
        sentence = (
            f"{n_missing:,} of {count_noun(n_cells, 'cell')} ({share:.1f} %) are missing and "
            f"kept as not asked; {count_noun(self.complete, 'row has', 'rows have')} every expert, "
            f"so the means of the experts are over different rows."
        )
        return Finding("missing", n_missing, sentence)

    def _constant_experts(self, expert_names: Sequence[str]) -> Finding:
        constant = []
        for index, name in enumerate(expert_names):
            score = self.low[index]
            if score != self.high[index] or self.asked[index] <= 1:
                continue
            if score == 1:
                constant.append(f"{name} is always right")
            elif score == 0:
                constant.append(f"{name} is always wrong")
            else:
                constant.append(f"{name} is at {score:g} in every row")
        experts = count_noun(len(constant), "expert never varies", "experts never vary")
        return Finding("constant", len(constant), f"{experts}: {listed(constant, 6)}.")

    def _tied_rows(self) -> Finding:
        share = 0.0
        if self.rows:
            share = 100 * self.ties / self.rows
        sentence = (
            f"{count_noun(self.ties, 'row is a tie', 'rows are ties')} "
            f"({share:.1f} %): all experts that were asked have the same score, "
            f"so only the cost of asking can decide."
        )
        return Finding("ties", self.ties, sentence)


def unasked_rows(count: int) -> Finding:
    """Report how many rows were dropped because no expert was asked."""
    verb = "were"
    if count == 1:
        verb = "was"
    sentence = f"{count_noun(count, 'row')} in which no expert was asked {verb} dropped."
    return Finding("unasked_rows", count, sentence)


def examine(
    queries: Sequence[str],
    expert_names: Sequence[str],
    scores: FloatArray,
    prices: FloatArray | None,
    has_text: bool,
    row_numbers: IntArray | None = None,
) -> list[Finding]:
    """Return the findings about queries, missing scores and prices; every row must have a score."""
    findings: list[Finding] = []
    if has_text:
        findings += _examine_queries(queries)
    findings += ScoreCounts.from_scores(scores).findings(expert_names)
    if prices is not None:
        findings.append(_unknown_prices(expert_names, scores, prices))
        findings.append(_large_prices(expert_names, prices, row_numbers))
    return [finding for finding in findings if finding.count]


def _examine_queries(queries: Sequence[str]) -> list[Finding]:
    """Report repeated, empty and very long queries; a count may be 0."""
    groups = duplicate_groups(queries)
    n_repeats = int((groups != np.arange(len(groups))).sum())
    repeats = (
        f"{count_noun(n_repeats, 'query repeats', 'queries repeat')} an earlier one, apart from "
        "whitespace: keep them on the same side of a split."
    )
    n_empty = sum(not text or text.isspace() for text in queries)
    empty = f"{count_noun(n_empty, 'query is', 'queries are')} empty: there is nothing to route by."
    lengths = np.fromiter(map(len, queries), np.intp, len(queries))
    n_long = int((lengths > LONG).sum())
    long = (
        f"{count_noun(n_long, 'query has', 'queries have')} more than {LONG:,} characters, up to "
        f"{lengths.max(initial=0):,}."
    )
    return [
        Finding("duplicates", n_repeats, repeats),
        Finding("empty_queries", n_empty, empty),
        Finding("long_queries", n_long, long),
    ]


def _large_prices(
    expert_names: Sequence[str], prices: FloatArray, row_numbers: IntArray | None
) -> Finding:
    """Report prices that are far above the median of the table, or of their expert."""
    positive_prices = np.where(prices > 0, prices, np.nan)
    median = _lower_median(positive_prices)
    if np.isnan(median):
        return Finding("large_prices", 0, "")
    # Whichever is lower, for an expert may be in another unit throughout.
    usual_prices = np.fmin(median, [_lower_median(column) for column in positive_prices.T])
    is_large = positive_prices > DEAR * usual_prices
    count = int(is_large.sum())
    if count == 0:
        return Finding("large_prices", 0, "")
    highest = np.argmax(np.where(is_large, positive_prices, 0.0))
    row, index = divmod(int(highest), prices.shape[1])
    sentence = (
        f"{count_noun(count, 'price is', 'prices are')} more than {DEAR:,} times the median "
        f"(${amount(usual_prices[index])}), such as ${amount(prices[row, index])} of "
        f"{expert_names[index]!r} in row {row_number(row, row_numbers)}: prices are dollars per query; "
        "check that none is in cents, or in dollars per million tokens."
    )
    return Finding("large_prices", count, sentence)


def _lower_median(values: FloatArray) -> float:
    """Return the lower of the two middle values that are not NaN; NaN if there are none."""
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return np.nan
    return float(ordered[(len(ordered) - 1) // 2])


def _unknown_prices(expert_names: Sequence[str], scores: FloatArray, prices: FloatArray) -> Finding:
    """Report answers without a price, and the experts whose mean price leaves some out."""
    is_answered = ~np.isnan(scores)
    n_answers = is_answered.sum(axis=0)
    n_unknown = (np.isnan(prices) & is_answered).sum(axis=0)
    count = int(n_unknown.sum())
    them = "them"
    if count == 1:
        them = "it"
    sentence = (
        f"{count_noun(count, 'answer has', 'answers have')} no price: where dollars count, the loss of "
        f"{them} is unknown, and a row without any price is left out."
    )
    partly_known = []
    for name, unknown, answers in zip(expert_names, n_unknown, n_answers, strict=True):
        if 0 < unknown < answers:
            partly_known.append(f"{name} ({unknown:,} of {answers:,} unknown)")
    if partly_known:
        sentence += f" Dollars of {listed(partly_known, 6)} are means over the known prices."
    return Finding("unknown_prices", count, sentence)

"""Read a log: the draws of the ledger, and queries and errors from files."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mild.core.propensities import CERTAIN, is_preferred
from mild.data.queries import QUERY_NAMES
from mild.data.tables import read_table
from mild.errors import DataFileError

#: Gets names of a ledger's columns and a span of time; yields blocks of its rows, oldest first.
LogReader: TypeAlias = Callable[
    [Sequence[str], float | None, float | None], Iterator[list[tuple[Any, ...]]]
]

# The model name that asks for the configured trade-off.
ROUTED_NAME = "mild"
#: Why a row without text is left out.
WITHOUT_QUERY = "without a query"

_COLUMNS = (
    "request_id", "asked", "chosen", "propensity", "price", "outcome", "text", "pinned_by", "session",
    "probabilities", "preferred",
)  # fmt: skip


class LoggedRow(NamedTuple):
    """A request that the router decided."""

    text: str  # what was routed
    chosen: str  # name of the expert that was drawn
    propensity: float
    episode: int  # number of the draw that the row belongs to, from 0 in the order of time
    decides: bool  # whether the expert was drawn for this row
    dollars: float
    failed: bool
    error: float  # NaN if the answer was not graded
    weight: float = 1.0  # for how many requests it stands; 0 if its grade is not used
    preferred: bool = True  # whether the router would choose the expert without exploration
    extra: tuple[Any, ...] = ()  # values of further columns that were asked for


def read_draws(
    read: LogReader,
    left_out: Counter[str],
    texts: Mapping[str, str] | None = None,
    errors: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    since: float | None = None,
    until: float | None = None,
    extra: Sequence[str] = (),
) -> Iterator[list[LoggedRow]]:
    """Blocks of the rows that the router decided, in the order of time.

    A row is used if the router was asked at its configured trade-off, the draw was not certain, and query
    and price are known. Requests of a pinned session belong to the episode of the request that pinned it,
    which must lie in the span, too. ``extra`` are further columns to read.
    """
    episodes: dict[str, int] = {}
    count = 0
    for rows in read((*_COLUMNS, *extra), since, until):
        block = []
        for row in rows:
            name, asked, chosen, propensity, price, outcome, text, pinned_by, session, shares = row[
                :10
            ]
            if texts is not None:
                text = texts.get(name)
            reason = why_left_out(asked, chosen, propensity, price, outcome, text, shares)
            if reason is None and pinned_by is not None and pinned_by not in episodes:
                reason = "pinned by a request that is not among the rows that count"
            if reason is not None:
                left_out[reason] += 1
                continue
            if pinned_by is None:
                episode, count = count, count + 1
                # Only a session's first request is looked up again.
                if session is not None:
                    episodes[name] = episode
            else:
                episode = episodes[pinned_by]
            failed = outcome in ("failed", "cut")
            error = (errors or {}).get(name, 1.0 if failed else math.nan)
            weight = (weights or {}).get(name, 1.0)
            drawn, first = pinned_by is None, row[10]
            # Rows before schema 0006 do not say it.
            experts = shares.count(",") + 1 if shares else 2
            preferred = is_preferred(propensity, experts) if first is None else chosen == first
            known = text, chosen, propensity, episode, drawn, price or 0.0, failed, error, weight
            block.append(LoggedRow(*known, preferred, extra=row[len(_COLUMNS) :]))
        if block:
            yield block


def why_left_out(
    asked: str,
    chosen: str | None,
    propensity: float | None,
    price: float | None,
    outcome: str,
    text: str | None,
    shares: str | None,
    needs_exploration: bool = True,
) -> str | None:
    """Why a request says nothing about the router's decisions; None if it does."""
    if outcome == "refused":
        return "refused before an expert was asked"
    if chosen is None or propensity is None:
        return "sent to an expert by its name"
    if asked != ROUTED_NAME:
        return "asked for a trade-off of its own"
    if text is None:
        return WITHOUT_QUERY
    if needs_exploration and not 0 < propensity < CERTAIN:
        return "drawn without exploration"
    if price is None and outcome == "ok":
        return "without a price"
    # Another router would have to choose among the same experts, and decides for all.
    return "could not be served by every expert" if "null" in (shares or "") else None


def read_texts(source: Any, text_column: str | None, id_column: str) -> dict[str, str]:
    """Request -> query from a file or frame with one row per request."""
    hint = " Name it with text_column=COLUMN."
    names = (text_column,) if text_column else QUERY_NAMES
    table, name = _read_columns(source, id_column, names, hint)
    pairs = zip(*(table.column(one).to_pylist() for one in (id_column, name)), strict=True)
    return {str(key): str(text) for key, text in pairs if text is not None}


def read_judged(source: Any, id_column: str) -> Iterator[tuple[str, str, float]]:
    """Request, expert ("" if that is not said) and score in [0, 1] of each row of a file or frame.

    It has a column ``error``, ``score`` or ``correct``; rows without a value are left out.
    """
    table, name = _read_columns(source, id_column, ("error", "score", "correct"))
    known = [one for one in (id_column, name, "expert") if one in table.column_names]
    columns = [table.column(one).to_pylist() for one in known]
    for row, (key, value, *expert) in enumerate(zip(*columns, strict=True), start=1):
        if key is None or value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number <= 1:
            raise DataFileError(
                f"{_name(source)}: {name} must be a number in [0, 1]; got {value!r} in row {row}."
            )
        who = "" if not expert or expert[0] is None else str(expert[0])
        yield str(key), who, 1 - number if name == "error" else number


def _read_columns(
    source: Any, id_column: str, names: Sequence[str], hint: str = ""
) -> tuple[Any, str]:
    """The table, which must have the column of requests, and the first of ``names`` that it has."""
    try:
        table = read_table(source, (id_column, *(names if len(names) == 1 else ())))
    except DataFileError as error:
        raise DataFileError(f"{_name(source)}: {error}") from error
    known = table.column_names
    for wanted in ((id_column,), names):
        if not set(wanted) & set(known):
            rule = f"the column {wanted[0]!r}"
            if len(wanted) > 1:
                rule = f"one of the columns {', '.join(wanted)}"
            remedy = hint if len(wanted) > 1 else ""
            raise DataFileError(
                f"{_name(source)} must have {rule}; got {', '.join(known)}.{remedy}"
            )
    return table, next(name for name in names if name in known)


def _name(source: Any) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else "the table"

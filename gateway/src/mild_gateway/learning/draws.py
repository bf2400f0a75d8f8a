"""What a replay reads: the draws of a ledger, and queries and scores from files."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mild.errors import DataFileError
from mild_gateway.learning.estimating import WITHOUT_QUERY, LoggedRow
from mild_gateway.learning.tables import QUERY_NAMES, read_table
from mild_gateway.ledger.records import CERTAIN
from mild_gateway.selection.models import ROUTER_MODEL

#: Gets names of a ledger's columns and a span of time; yields blocks of its rows, oldest first.
LogReader: TypeAlias = Callable[
    [Sequence[str], float | None, float | None], Iterator[list[tuple[Any, ...]]]
]


class LedgerRow(NamedTuple):
    """A request in the ledger; values that the ledger does not have are None."""

    request_id: str
    asked: str  # the model name that the client asked for
    chosen: Any  # name of the expert that was drawn
    propensity: Any
    price: float | None
    outcome: str
    text: str | None
    pinned_by: str | None  # the request that pinned the session
    session: str | None
    probabilities: str | None  # of all experts, as a JSON list
    # Name of the expert that the router would choose without exploration; None if the request is pinned
    preferred: str | None

    @property
    def failed(self) -> bool:
        """Whether there was no complete answer."""
        return self.outcome in ("failed", "cut")


class Draw(NamedTuple):
    """The draw of an expert, for one request or for all of a pinned session."""

    number: int
    preferred: str | None  # name of the expert that the router would choose without exploration


class Episodes:
    """Numbers draws in the order of time; all requests of a pinned session have the draw of the first."""

    def __init__(self) -> None:
        self._count = 0
        self._of_first_request: dict[str, Draw] = {}

    def lacks(self, row: LedgerRow) -> bool:
        """Whether the row was pinned by a request that has no number."""
        return row.pinned_by is not None and row.pinned_by not in self._of_first_request

    def draw_of(self, row: LedgerRow) -> Draw:
        """The draw that the row belongs to."""
        if row.pinned_by is not None:
            return self._of_first_request[row.pinned_by]
        draw = Draw(self._count, row.preferred)
        self._count += 1
        # Only a session's first request is looked up again.
        if row.session is not None:
            self._of_first_request[row.request_id] = draw
        return draw


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
    errors = errors or {}
    weights = weights or {}
    episodes = Episodes()
    n_columns = len(LedgerRow._fields)
    for rows in read((*LedgerRow._fields, *extra), since, until):
        block = []
        for values in rows:
            row = LedgerRow(*values[:n_columns])
            if texts is not None:
                row = row._replace(text=texts.get(row.request_id))
            reason = _why_row_left_out(row, episodes)
            if reason is not None:
                left_out[reason] += 1
                continue
            draw = episodes.draw_of(row)
            block.append(_logged_row(row, draw, errors, weights, values[n_columns:]))
        if block:
            yield block


def _logged_row(
    row: LedgerRow,
    draw: Draw,
    errors: Mapping[str, float],
    weights: Mapping[str, float],
    extra: tuple[Any, ...],
) -> LoggedRow:
    """A row of the ledger that can be used; a failure that was not judged is an error."""
    error = math.nan
    if row.failed:
        error = 1.0
    return LoggedRow(
        text=row.text or "",
        chosen=row.chosen,
        propensity=row.propensity,
        episode=draw.number,
        decides=row.pinned_by is None,
        dollars=row.price or 0.0,
        failed=row.failed,
        error=errors.get(row.request_id, error),
        weight=weights.get(row.request_id, 1.0),
        preferred=row.chosen == draw.preferred,
        extra=extra,
    )


def _why_row_left_out(row: LedgerRow, episodes: Episodes) -> str | None:
    reason = why_left_out(
        row.asked,
        row.chosen,
        row.propensity,
        row.price,
        row.outcome,
        row.text,
        row.probabilities,
    )
    if reason is None and episodes.lacks(row):
        return "pinned by a request that is not among the rows that count"
    return reason


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
    if asked != ROUTER_MODEL:
        return "asked for a trade-off of its own"
    if text is None:
        return WITHOUT_QUERY
    if needs_exploration and not 0 < propensity < CERTAIN:
        return "drawn without exploration"
    if price is None and outcome == "ok":
        return "without a price"
    # Another router would have to choose among the same experts, and decides for all.
    if "null" in (shares or ""):
        return "could not be served by every expert"
    return None


def read_texts(source: Any, text_column: str | None, id_column: str) -> dict[str, str]:
    """Request -> query from a file or frame with one row per request."""
    hint = " Name it with text_column=COLUMN."
    names: Sequence[str] = QUERY_NAMES
    if text_column:
        names = (text_column,)
    table, name = _read_columns(source, id_column, names, hint)
    requests = table.column(id_column).to_pylist()
    queries = table.column(name).to_pylist()
    query_of_request = {}
    for request, query in zip(requests, queries, strict=True):
        if query is not None:
            query_of_request[str(request)] = str(query)
    return query_of_request


def read_judged(source: Any, id_column: str) -> Iterator[tuple[str, str, float]]:
    """Request, expert ("" if that is not said) and score in [0, 1] of each row of a file or frame.

    It has a column ``error``, ``score`` or ``correct``; rows without a value are left out.
    """
    table, name = _read_columns(source, id_column, ("error", "score", "correct"))
    requests = table.column(id_column).to_pylist()
    values = table.column(name).to_pylist()
    experts: list[Any] = [None] * len(requests)
    if "expert" in table.column_names:
        experts = table.column("expert").to_pylist()
    columns = zip(requests, values, experts, strict=True)
    for row, (request, value, expert) in enumerate(columns, start=1):
        if request is None or value is None:
            continue
        score = _number(value)
        if not 0 <= score <= 1:
            raise DataFileError(
                f"{_name(source)}: {name} must be a number in [0, 1]; got {value!r} in row {row}."
            )
        if name == "error":
            score = 1 - score
        expert_name = ""
        if expert is not None:
            expert_name = str(expert)
        yield str(request), expert_name, score


def _number(value: Any) -> float:
    """A value as a number; NaN if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _read_columns(
    source: Any, id_column: str, names: Sequence[str], hint: str = ""
) -> tuple[Any, str]:
    """The table, which must have the column of requests, and the first of ``names`` that it has."""
    required = [id_column]
    if len(names) == 1:
        required.append(names[0])
    try:
        table = read_table(source, tuple(required))
    except DataFileError as error:
        raise DataFileError(f"{_name(source)}: {error}") from error
    columns = table.column_names
    if id_column not in columns:
        rule = f"the column {id_column!r}"
        raise DataFileError(f"{_name(source)} must have {rule}; got {', '.join(columns)}.")
    for name in names:
        if name in columns:
            return table, name
    if len(names) == 1:
        rule = f"the column {names[0]!r}"
        raise DataFileError(f"{_name(source)} must have {rule}; got {', '.join(columns)}.")
    rule = f"one of the columns {', '.join(names)}"
    raise DataFileError(f"{_name(source)} must have {rule}; got {', '.join(columns)}.{hint}")


def _name(source: Any) -> str:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return "the table"

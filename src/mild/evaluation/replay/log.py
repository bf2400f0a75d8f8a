"""Read a log: the draws of the ledger, and the queries and errors that files add to them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from mild.data.tables import read_table
from mild.errors import DataFileError

__all__ = [
    "ROUTED_NAME",
    "Block",
    "LeftOut",
    "LogReader",
    "read_draws",
    "read_errors",
    "read_texts",
]

#: Gets names of a ledger's columns and a span of time; gives blocks of its rows, oldest first.
LogReader: TypeAlias = Callable[
    [Sequence[str], float | None, float | None], Iterator[list[tuple[Any, ...]]]
]

# The model name that asks for the configured trade-off.
ROUTED_NAME = "mild"
# Propensities this near to 1 are certain: the log could not have shown anything else.
CERTAIN = 1 - 1e-9

_COLUMNS = (
    "request_id", "asked", "chosen", "propensity", "price", "outcome", "text", "pinned_by", "session",
)  # fmt: skip


@dataclass
class LeftOut:
    """Rows that say nothing about another router, by reason."""

    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str) -> None:
        """Count a row."""
        self.reasons[reason] += 1


@dataclass(frozen=True)
class Block:
    """Rows that count, in lists of one length.

    Attributes
    ----------
    texts : what was routed
    chosen : name of the expert that was drawn
    propensity : with which probability
    episodes : number of the draw that the row belongs to, from 0 in the order of time
    decides : whether the row is the one for which was drawn
    dollars, failed, error : what followed; error is None where nobody has judged the answer
    """

    texts: list[str]
    chosen: list[str]
    propensity: list[float]
    episodes: list[int]
    decides: list[bool]
    dollars: list[float]
    failed: list[bool]
    error: list[float | None]


def read_draws(
    read: LogReader,
    left_out: LeftOut,
    texts: Mapping[str, str] | None = None,
    errors: Mapping[str, float] | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[Block]:
    """Blocks of the rows that the router decided, in the order of time.

    A row counts if the router was asked at its configured trade-off, the draw was not certain, and the
    query and the price are known. Requests of a pinned session belong to the episode of the
    request that pinned it, which must lie in the span, too.

    Parameters
    ----------
    read : reads the ledger, such as ``mild.gateway.ledger.ledger_reader`` gives it
    left_out : filled with what does not count
    texts : request -> query, in place of the ledger's texts
    errors : request -> error in [0, 1] of its answer; None if answers are not judged. A request that failed
        or was cut counts as an error of 1 where it has no other
    since, until : span of time
    """
    episodes: dict[str, int] = {}
    count = 0
    for rows in read(_COLUMNS, since, until):
        block = Block([], [], [], [], [], [], [], [])
        for name, asked, chosen, chance, price, outcome, text, pinned_by, session in rows:
            if texts is not None:
                text = texts.get(name)
            failed = outcome in ("failed", "cut")
            reason = _reason(asked, chosen, chance, price, outcome, text)
            if reason is None and pinned_by is not None and pinned_by not in episodes:
                reason = "pinned by a request that is not among the rows that count"
            if reason is not None:
                left_out.add(reason)
                continue
            if pinned_by is None:
                episode, count = count, count + 1
                # Only a session's first request is looked up again.
                if session is not None:
                    episodes[name] = episode
            else:
                episode = episodes[pinned_by]
            error = None if errors is None else errors.get(name, 1.0 if failed else None)
            block.texts.append(text)
            block.chosen.append(chosen)
            block.propensity.append(chance)
            block.episodes.append(episode)
            block.decides.append(pinned_by is None)
            block.dollars.append(price or 0.0)
            block.failed.append(failed)
            block.error.append(error)
        if block.texts:
            yield block


def _reason(
    asked: str,
    chosen: str | None,
    chance: float | None,
    price: float | None,
    outcome: str,
    text: str | None,
) -> str | None:
    """Why a row does not count; None if it does."""
    if outcome == "refused":
        return "refused before an expert was asked"
    if chosen is None or chance is None:
        return "sent to an expert by its name"
    if asked != ROUTED_NAME:
        return "asked for a trade-off of its own"
    if text is None:
        return "without a query"
    if not 0 < chance < CERTAIN:
        return "drawn without exploration"
    if price is None and outcome == "ok":
        return "without a price"
    return None


def read_texts(path: Path, text_column: str | None, id_column: str) -> dict[str, str]:
    """Request -> query from a table with one row per request."""
    table = _load(path, (id_column, *(() if text_column is None else (text_column,))))
    name = text_column or _one_of(
        path, table, ("text", "query", "prompt", "question", "input", "instruction"), "text-column"
    )
    names = _column(path, table, id_column)
    texts = _column(path, table, name)
    return {str(key): str(text) for key, text in zip(names, texts, strict=True) if text is not None}


def read_errors(path: Path, id_column: str) -> dict[str, float]:
    """Request -> error in [0, 1] from a table with a column ``error``, ``score`` or ``correct``.

    A score of 1 is an error of 0. Rows without a value are left out; a request that appears twice counts
    with its last row.
    """
    table = _load(path, (id_column,))
    name = _one_of(path, table, ("error", "score", "correct"), None)
    result = {}
    pairs = zip(_column(path, table, id_column), _column(path, table, name), strict=True)
    for row, (key, value) in enumerate(pairs):
        if key is None or value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number <= 1:
            raise DataFileError(
                f"{path}: {name} must be a number in [0, 1]; got {value!r} in row {row}."
            )
        result[str(key)] = number if name == "error" else 1 - number
    return result


def _load(path: Path, texts: tuple[str, ...]) -> Any:
    try:
        return read_table(path, texts)
    except DataFileError as error:
        raise DataFileError(f"{path}: {error}") from error


def _column(path: Path, table: Any, name: str) -> list[Any]:
    if name not in table.column_names:
        raise DataFileError(
            f"{path} must have the column {name!r}; got {', '.join(table.column_names)}."
        )
    return list(table.column(name).to_pylist())


def _one_of(path: Path, table: Any, names: tuple[str, ...], option: str | None) -> str:
    for name in names:
        if name in table.column_names:
            return name
    remedy = "" if option is None else f" Name it with --{option}."
    raise DataFileError(
        f"{path} must have one of the columns {', '.join(names)}; got {', '.join(table.column_names)}."
        f"{remedy}"
    )

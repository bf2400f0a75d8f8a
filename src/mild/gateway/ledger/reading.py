"""The ledger as rows, in the order of time, in constant memory, while it is being written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from mild.errors import DataFileError, InvalidInputError
from mild.gateway.database import DatabaseError
from mild.gateway.ledger.places import Place, open_to_read, shown
from mild.gateway.ledger.records import COLUMNS, Record, from_row

__all__ = ["ledger_reader", "read_blocks", "read_experts", "read_ledger"]

# Rows held at a time.
BLOCK = 10_000


def read_blocks(
    path: Place,
    since: float | None = None,
    until: float | None = None,
    columns: Sequence[str] = COLUMNS,
    rows: int = BLOCK,
) -> Iterator[list[tuple[Any, ...]]]:
    """Rows with ``since <= time < until``, a block at a time, oldest first.

    Every block is a short look at the file: a reader that is slow holds up nobody who writes.

    Parameters
    ----------
    path : file of the ledger, or address of its database
    since, until : seconds since 1970; None for no bound
    columns : names out of ``COLUMNS``, in the order wanted; probabilities are JSON texts here
    rows : rows in a block
    """
    for name in columns:
        if name not in COLUMNS:
            raise InvalidInputError(f"a ledger has the columns {', '.join(COLUMNS)}; got {name!r}.")
    question = (
        f"SELECT time, id, {', '.join(columns)} FROM decisions "
        "WHERE (time, id) > (?, ?) AND time < ? ORDER BY time, id LIMIT ?"
    )
    last = (-math.inf if since is None else math.nextafter(since, -math.inf), 2**62)
    end = math.inf if until is None else until
    with closing(open_to_read(path)) as database:
        while True:
            try:
                found = database.execute(question, (*last, end, rows)).rows
            except DatabaseError as error:
                raise DataFileError(f"{shown(path)} cannot be read: {error}.") from error
            if not found:
                return
            last = found[-1][:2]
            yield [row[2:] for row in found]


def ledger_reader(
    path: Place,
) -> Callable[[Sequence[str], float | None, float | None], Iterator[list[tuple[Any, ...]]]]:
    """A function from columns and a span of time to blocks of a ledger's rows."""
    return lambda columns, since, until: read_blocks(path, since, until, columns)


def read_ledger(
    path: Place, since: float | None = None, until: float | None = None
) -> Iterator[Record]:
    """Records with ``since <= time < until``, oldest first."""
    for block in read_blocks(path, since, until):
        yield from map(from_row, block)


def read_experts(path: Place) -> dict[str, list[str]]:
    """Names of the experts, in their order, by fingerprint of the router."""
    with closing(open_to_read(path)) as database:
        rows = database.execute("SELECT fingerprint, experts FROM routers").rows
    return {fingerprint: json.loads(names) for fingerprint, names in rows}

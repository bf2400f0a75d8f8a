"""Read a ledger in the order of time, in constant memory, while it is being written."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mild.errors import DataFileError, InvalidInputError, OptionError
from mild_gateway.database import AddressError, DatabaseError, is_address, read_address
from mild_gateway.database.engine import Database, Location, open_database, shown_place
from mild_gateway.ledger.records import COLUMNS, Record, decisions, from_row, routers

# Rows held at a time.
BLOCK = 10_000
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([mhdw])")
# The row that was read last, by time and id.
_LAST_READ = sa.tuple_(
    sa.bindparam("time", type_=sa.Double), sa.bindparam("id", type_=sa.BigInteger)
)
_AFTER_ALL_IDS = 2**62
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def ledger_location(text: str | os.PathLike[str]) -> Location:
    """The ledger that a user names: its file, its address, or the configuration of a gateway."""
    if isinstance(text, str) and is_address(text):
        try:
            return read_address(text)
        except AddressError as error:
            # Not quoted: it may hold a password.
            raise DataFileError(f"the address of a ledger {error}.") from None
    if Path(text).suffix.lower() == ".toml":
        from mild_gateway.config import read_ledger_location

        location = read_ledger_location(text)
        if location is None:
            raise DataFileError(f"{text} turns the ledger off: ledger.enabled is false.")
        return location
    return text


def moment(name: str, value: str | float | datetime | None, now: float) -> float | None:
    """Seconds since 1970 of a date, a date with time (UTC unless it says otherwise), or a time ago.

    >>> moment("since", "2026-11-01", 0.0)
    1793491200.0
    >>> moment("since", "2h", 10_000.0)
    2800.0
    """
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        ago = _AGO.fullmatch(value.strip())
        if ago:
            return now - float(ago[1]) * _SECONDS[ago[2]]
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise OptionError(
                f"{name} must be a date such as 2026-11-01 or 2026-11-01T12:30, or a time ago such as 7d, "
                f"12h, 30m; got {value!r}."
            ) from None
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return value.timestamp()


@contextmanager
def open_ledger(location: Location) -> Iterator[Database]:
    """A ledger for a reader; raises DataFileError if it cannot be read."""
    try:
        database = open_database(location, reading=True)
        try:
            if not database.schema:
                raise DataFileError(
                    f"{shown_place(location)} is empty: `mild serve` has not written to it yet."
                )
            yield database
        finally:
            database.close()
    except DatabaseError as error:
        raise DataFileError(
            f"{shown_place(location)} cannot be read as a ledger: {error}."
        ) from error


def read_blocks(
    path: Location,
    since: float | None = None,
    until: float | None = None,
    columns: Sequence[str] = COLUMNS,
    rows: int = BLOCK,
    where: sa.ColumnElement[bool] | None = None,
) -> Iterator[list[tuple[Any, ...]]]:
    """Rows with ``since <= time < until``, a block at a time, oldest first; probabilities are JSON texts.

    Every block is a short query: a slow reader delays nobody who writes. ``where`` is a further condition.
    """
    for name in columns:
        if name not in COLUMNS:
            raise InvalidInputError(f"a ledger has the columns {', '.join(COLUMNS)}; got {name!r}.")
    table = decisions.c
    query = sa.select(table.time, table.id, *[table[name] for name in columns])
    query = query.where(sa.tuple_(table.time, table.id) > _LAST_READ)
    last_read = {"time": -math.inf, "id": _AFTER_ALL_IDS}
    if since is not None:
        last_read["time"] = math.nextafter(since, -math.inf)
    if until is not None:
        query = query.where(table.time < until)
    if where is not None:
        query = query.where(where)
    query = query.order_by(table.time, table.id).limit(rows)
    with open_ledger(path) as database:
        while True:
            with database.transaction() as connection:
                block = connection.execute(query, last_read).all()
            if not block:
                return
            last_read = {"time": block[-1].time, "id": block[-1].id}
            yield [tuple(row[2:]) for row in block]


def ledger_reader(
    path: Location,
) -> Callable[[Sequence[str], float | None, float | None], Iterator[list[tuple[Any, ...]]]]:
    """A function from columns and a span of time to blocks of a ledger's rows."""
    return lambda columns, since, until: read_blocks(path, since, until, columns)


def read_ledger(
    path: Location, since: float | None = None, until: float | None = None
) -> Iterator[Record]:
    """Records with ``since <= time < until``, oldest first."""
    for block in read_blocks(path, since, until):
        yield from map(from_row, block)


def read_experts(path: Location) -> dict[str, list[str]]:
    """Names of the experts, in their order, by fingerprint of the router."""
    with open_ledger(path) as database, database.transaction() as connection:
        rows = connection.execute(sa.select(routers.c.fingerprint, routers.c.experts)).all()
    return {row.fingerprint: json.loads(row.experts) for row in rows}

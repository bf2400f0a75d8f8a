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
from mild_gateway.ledger.records import COLUMNS, NEW_COLUMNS, Record, decisions, from_row, routers

# Rows held at a time.
BLOCK = 10_000
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def ledger_location(text: str | os.PathLike[str]) -> Location:
    """The ledger that a user names: its file, its address, or the configuration of a gateway."""
    if isinstance(text, str) and is_address(text):
        try:
            return read_address(text)
        except AddressError as error:
            # Not quoted: it may hold a password.
            raise DataFileError(f"the address of a ledger {error}.") from None
    if Path(text).suffix.lower() in (".toml", ".yaml", ".yml"):
        from mild_gateway.config import read_ledger_location

        found = read_ledger_location(text)
        if found is None:
            raise DataFileError(f"{text} turns the ledger off: ledger.enabled is false.")
        return found
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
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


@contextmanager
def open_ledger(place: Location) -> Iterator[Database]:
    """A ledger for a reader, also one of mild 0.1; raises DataFileError if it cannot be read."""
    try:
        database = open_database(place, reading=True)
        try:
            if not database.schema:
                raise DataFileError(
                    f"{shown_place(place)} is empty: `mild serve` has not written to it yet."
                )
            yield database
        finally:
            database.close()
    except DatabaseError as error:
        raise DataFileError(f"{shown_place(place)} cannot be read as a ledger: {error}.") from error


def ledger_columns(
    database: Database, names: Sequence[str] = COLUMNS
) -> list[sa.ColumnElement[Any]]:
    """Columns to select; those of a later version are empty in a ledger that nobody has opened to write."""
    absent = {
        name for version, new in NEW_COLUMNS.items() if database.schema < version for name in new
    }
    return [sa.null().label(name) if name in absent else decisions.c[name] for name in names]


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
    last = sa.tuple_(sa.bindparam("time", type_=sa.Double), sa.bindparam("id", type_=sa.BigInteger))
    place = (-math.inf if since is None else math.nextafter(since, -math.inf), 2**62)
    table = decisions.c
    with open_ledger(path) as database:
        query = (
            sa.select(table.time, table.id, *ledger_columns(database, columns))
            .where(
                sa.tuple_(table.time, table.id) > last,
                table.time < (math.inf if until is None else until),
                sa.true() if where is None else where,
            )
            .order_by(table.time, table.id)
            .limit(rows)
        )
        while True:
            with database.transaction() as connection:
                found = connection.execute(query, {"time": place[0], "id": place[1]}).all()
            if not found:
                return
            place = (found[-1][0], found[-1][1])
            yield [tuple(row[2:]) for row in found]


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
        found = connection.execute(sa.select(routers.c.fingerprint, routers.c.experts)).all()
    return {fingerprint: json.loads(names) for fingerprint, names in found}

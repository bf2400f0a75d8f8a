"""Connections to a store or ledger: transactions, what their errors mean, and inserts that replace rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mild.errors import DataFileError
from mild_gateway.database.address import Address
from mild_gateway.database.errors import CommitUnknownError, DatabaseError, InvalidRowError
from mild_gateway.database.postgres import postgres_engine
from mild_gateway.database.schema import NO_TABLES, create_tables, read_schema
from mild_gateway.database.sqlite import MEMORY, create_file, file_engine, reading_engine

Location = str | os.PathLike[str] | Address

# Seconds to wait for the lock of a file.
PATIENCE = 5.0
# What libpq puts before the reason.
_LEAD = re.compile(r'^connection failed: |connection to server (?:at|on) ".*? failed: |FATAL: +')
# PostgreSQL: the state of a statement that would write on a server that is read-only.
_READ_ONLY = "25006"
# PostgreSQL uses its own clock; a file is on one machine, whose clock is passed in.
_SERVER_CLOCK: Any = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
_GIVEN_TIME: Any = sa.bindparam("now", type_=sa.Double)


class Database:
    """One connection, used by one thread at a time. Methods raise DatabaseError.

    One that is ``broken`` was lost: open another. ``schema`` is the number of its tables, 0 without any.
    ``now`` in a statement is the server's time; for a file the parameter of this name.
    """

    def __init__(self, engine: sa.Engine, reading: bool = False) -> None:
        self.broken = False
        self.schema = NO_TABLES
        self.is_postgres = engine.dialect.name == "postgresql"
        self._driver: Any = engine.dialect.loaded_dbapi
        if self.is_postgres:
            self.now = _SERVER_CLOCK
        else:
            self.now = _GIVEN_TIME
            _begin_explicitly(engine, reading)
        try:
            self._connection = engine.connect()
        except (sa.exc.DBAPIError, self._driver.Error) as error:
            raise DatabaseError(_reason(getattr(error, "orig", error))) from error
        self._raw: Any = self._connection.connection.driver_connection

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Everything in it or nothing; CommitUnknownError if the connection was lost during the commit.

        SQLite lets nobody else write meanwhile, PostgreSQL does. The first statement begins it.
        """
        committing = False
        try:
            yield self._connection
            committing = True
            self._connection.commit()
        except BaseException as error:
            with suppress(sa.exc.SQLAlchemyError):
                self._connection.rollback()
            if isinstance(error, sa.exc.DBAPIError | sa.exc.InvalidRequestError):
                raise self._explain(error, committing) from error
            raise

    def time(self, now: float) -> float:
        """Seconds since 1970 by the server's clock; ``now`` for a file, which is on one machine."""
        return float(self._connection.execute(sa.select(self.now), {"now": now}).scalar_one())

    def close(self) -> None:
        """Close the connection."""
        with suppress(sa.exc.SQLAlchemyError):
            self._connection.close()
        self._connection.engine.dispose()

    def _explain(self, error: Exception, committing: bool) -> DatabaseError:
        """The error of the driver in our terms; notes whether the connection is lost."""
        if isinstance(error, sa.exc.InvalidRequestError):
            # SQLAlchemy has noticed before that the connection is closed.
            self.broken = True
            reason = "the connection was lost"
        else:
            cause = getattr(error, "orig", error)
            reason = _reason(cause)
            # A server that is read-only has become a copy: the next connection may find the original.
            is_copy = getattr(cause, "sqlstate", None) == _READ_ONLY
            if is_copy or getattr(self._raw, "closed", False):
                self.broken = True
            elif self._is_about_a_value(cause):
                return InvalidRowError(reason)
        if self.broken and committing:
            return CommitUnknownError(reason)
        return DatabaseError(reason)

    def _is_about_a_value(self, cause: object) -> bool:
        """Whether a row is at fault, and not the database."""
        driver = self._driver
        if isinstance(cause, driver.DataError | driver.IntegrityError):
            return True
        # The driver itself refused the value: the server has not seen it, and gave no state.
        is_refused = isinstance(cause, driver.InterfaceError | driver.ProgrammingError)
        return is_refused and not getattr(cause, "sqlstate", None)


def open_database(
    location: Location, patience: float = PATIENCE, reading: bool = False
) -> Database:
    """Open a store or a ledger; to write, it is created where needed.

    DataFileError if it belongs to something else or to another version of mild; DatabaseError if it
    cannot be used now. ``patience`` is the seconds to wait for the lock of a file.
    """
    if not (reading or location == MEMORY or isinstance(location, Address)):
        create_file(Path(location))
    try:
        database = Database(_make_engine(location, patience, reading), reading)
        try:
            with database.transaction() as connection:
                database.schema = read_schema(connection, shown_place(location))
            if database.schema == NO_TABLES and not reading:
                with database.transaction() as connection:
                    create_tables(connection, shown_place(location))
                    database.schema = read_schema(connection, shown_place(location))
        except BaseException:
            database.close()
            raise
    except DatabaseError as error:
        if isinstance(location, Address) or "not a database" not in str(error):
            raise
        raise DataFileError(
            f"{shown_place(location)} is not an SQLite file; name another one."
        ) from None
    return database


def inspect_database(location: Location) -> int:
    """Number of the tables, 0 where there are none; nothing is changed. Raises as ``open_database``."""
    engine = _make_engine(location, PATIENCE, reading=True)
    with closing(Database(engine, reading=True)) as database, database.transaction() as connection:
        return read_schema(connection, shown_place(location))


def shown_place(location: Location) -> str:
    """A location for messages, without a secret."""
    if isinstance(location, Address):
        return location.shown
    return os.fspath(location)


def upsert(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    replace: tuple[str, ...] = (),
    add: tuple[str, ...] = (),
) -> None:
    """Insert rows; of one that exists, replace these columns or add to them, or leave it as it is."""
    if rows:
        statement = upsert_from_json(connection.dialect.name, table, replace, add)
        connection.execute(statement, {table.name: json.dumps(rows, allow_nan=False)})


@cache
def upsert_from_json(
    dialect: str, table: sa.Table, replace: tuple[str, ...] = (), add: tuple[str, ...] = ()
) -> Any:
    """The statement of ``upsert``; its parameter has the table's name."""
    insert = insert_from_json(dialect, table)
    changes = {}
    for name in replace:
        changes[name] = insert.excluded[name]
    for name in add:
        changes[name] = table.c[name] + insert.excluded[name]
    if not changes:
        return insert.on_conflict_do_nothing()
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changes)


@cache
def insert_from_json(dialect: str, table: sa.Table) -> Any:
    """One statement for any number of rows: a JSON list, the parameter of the table's name."""
    rows_as_json = sa.bindparam(table.name, type_=sa.Text)
    if dialect == "postgresql":
        columns = [sa.column(column.name, column.type) for column in table.c]
        records = sa.func.json_to_recordset(sa.cast(rows_as_json, sa.JSON)).table_valued(*columns)
        rows = sa.select(records.render_derived(with_types=True))
    else:
        row = sa.func.json_each(rows_as_json).table_valued("value").c.value
        rows = sa.select(*[sa.func.json_extract(row, f"$.{column.name}") for column in table.c])
    # A file needs nothing of the other.
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    # With a condition: SQLite would take the ON of a conflict for a part of the SELECT.
    return insert.from_select(table.c.keys(), rows.where(sa.true()))


def _make_engine(location: Location, patience: float, reading: bool) -> sa.Engine:
    if isinstance(location, Address):
        return postgres_engine(location)
    if reading:
        return reading_engine(location, patience)
    return file_engine(location, patience)


def _begin_explicitly(engine: sa.Engine, reading: bool) -> None:
    """SQLite: who writes takes the lock with the first statement; readers take none."""
    begin = "BEGIN IMMEDIATE"
    if reading:
        begin = "BEGIN"
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))


def _reason(error: BaseException | None) -> str:
    """What the server or the driver says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "no reason was given"
    # With several hosts or addresses each has a line; the last one is where it ended.
    failures = [line for line in lines if "FATAL" in line or "failed" in line]
    line = failures[-1] if failures else lines[0]
    return _LEAD.sub("", line).removeprefix("- ").rstrip(".")

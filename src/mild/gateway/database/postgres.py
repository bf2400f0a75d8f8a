"""PostgreSQL behind the face of a database. Imports the driver: only where such a store is used."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, errors

from mild.errors import DataFileError
from mild.gateway.database.address import Address
from mild.gateway.database.face import DatabaseError, DoubtError, Found, UnfitError

__all__ = ["SCHEMA_NAME", "PostgresDatabase", "connect"]

# All tables stand in a schema of their own: a database may hold other things as well.
SCHEMA_NAME = "mild"
# Said with each transaction, so that poolers that lend a connection for one transaction serve, too.
_BEGIN = f"BEGIN; SET LOCAL search_path TO {SCHEMA_NAME}"
_CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)"
# How soon a machine that is gone is noticed; what the address says goes first.
_DEFAULTS = {
    "connect_timeout": "5",
    "application_name": "mild",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_LEAD = re.compile(r'^connection failed: |connection to server (?:at|on) ".*? failed: |FATAL: +')

Result = TypeVar("Result")


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up on a server that has said nothing for so many seconds."""

    patience = 5.0

    def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
        return super().wait(_within(gen, self.patience), *args, **more)


class PostgresDatabase:
    """One connection; outside of ``transaction`` each statement is one of its own."""

    def __init__(self, connection: _Connection, address: Address) -> None:
        self._connection = connection
        self._address = address
        self._inside = False

    @property
    def broken(self) -> bool:
        """Whether the connection has ended."""
        return self._connection.closed

    def time(self, now: float) -> float:
        """By the server's clock, asked each time: those of the machines differ, and may be set."""
        return float(self.execute(_CLOCK).value)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Found:
        """Run a statement to its end."""
        if not self._inside:
            with self.transaction():
                return self.execute(sql, values)
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(_written(sql, bool(values)), values or None)
            return Found(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values, in one go."""
        if not self._inside:
            with self.transaction():
                self.executemany(sql, rows)
            return
        with self._translated(), self._connection.cursor() as cursor:
            cursor.executemany(_written(sql, True), rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything in it or nothing; what others must not change meanwhile has to be locked.

        Raises
        ------
        DoubtError : the connection ended when everything had been said
        """
        with self._translated():
            self._connection.execute(_BEGIN)
        self._inside = True
        try:
            yield
        except BaseException:
            self._inside = False
            # A connection that is broken takes its transaction with it.
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")
            raise
        self._inside = False
        try:
            with self._translated():
                self._connection.execute("COMMIT")
        except DatabaseError as error:
            if self.broken:
                raise DoubtError(str(error)) from error
            raise

    def close(self) -> None:
        """Leave the server."""
        with suppress(psycopg.Error):
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            unfit = isinstance(error, psycopg.DataError | psycopg.IntegrityError) or (
                # A value that the driver cannot write; what the server refuses has a number.
                isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None
            )
            # One that only reads has become a copy: the next connection may find the original.
            if isinstance(error, _Silence | errors.ReadOnlySqlTransaction):
                self.close()
            raise (UnfitError if unfit else DatabaseError)(_reason(error)) from error


class _Silence(psycopg.OperationalError):
    """The server has not answered in time."""


def connect(address: Address, patience: float = 5.0) -> PostgresDatabase:
    """Go to a server; nothing is made or checked there.

    Parameters
    ----------
    address : where, and as whom; what it leaves out, libpq's variables and files say (PGPASSWORD,
        PGPASSFILE, PGSSLMODE, service files)
    patience : seconds without an answer after which the server counts as gone

    Raises
    ------
    DataFileError : the address has options that there are not
    DatabaseError : it cannot be reached, or does not let us in
    """
    try:
        given: dict[str, Any] = conninfo.conninfo_to_dict(address.value)
    except psycopg.Error as error:
        # The driver's own words may hold the password, unless they name an option.
        said = re.fullmatch(r'invalid URI query parameter: "(\w+)"\s*', str(error))
        what = f"there is no option {said[1]!r}" if said else "it is not understood"
        raise DataFileError(f"{address.shown}: the address must be libpq's; {what}.") from None
    try:
        connection = _Connection.connect(
            **{**_DEFAULTS, **given},
            autocommit=True,
            # Poolers may give the next transaction to another connection.
            prepare_threshold=None,
        )
    except psycopg.Error as error:
        raise DatabaseError(_reason(error)) from None
    # What goes wrong is raised and told in our words.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    connection.patience = patience
    return PostgresDatabase(connection, address)


def _within(gen: Generator[Any, Any, Result], seconds: float) -> Generator[Any, Any, Result]:
    """A driver's errand that ends when nothing was heard for so long."""
    end = time.monotonic() + seconds
    try:
        step = next(gen)
        while True:
            ready = yield step
            if ready:
                end = time.monotonic() + seconds
            elif time.monotonic() > end:
                raise _Silence(f"it has not answered for {seconds:g} s")
            step = gen.send(ready)
    except StopIteration as stop:
        return stop.value


@lru_cache(maxsize=256)
def _written(sql: str, with_values: bool) -> bytes:
    return (sql.replace("%", "%%").replace("?", "%s") if with_values else sql).encode()


def _reason(error: psycopg.Error) -> str:
    """What the server or the driver says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # With several hosts or addresses each has a line; the last one is where it ended.
    fatal = [line for line in lines if "FATAL" in line or "failed" in line]
    line = (fatal or lines or ["it does not say why"])[-1 if fatal else 0]
    return _LEAD.sub("", line).removeprefix("- ").rstrip(".")

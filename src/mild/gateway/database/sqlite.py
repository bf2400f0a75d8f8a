"""SQLite behind the face of a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mild.gateway.database.face import DatabaseError, Found, UnfitError

__all__ = ["SqliteDatabase", "translated"]

_UNFIT = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class SqliteDatabase:
    """A connection without transactions of its own (``isolation_level=None``)."""

    broken = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def time(self, now: float) -> float:
        """The same: a file is on one machine."""
        return now

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Found:
        """Run a statement to its end."""
        with translated():
            cursor = self._connection.execute(sql, values)
            return Found(cursor.fetchall(), cursor.rowcount)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        with translated():
            self._connection.executemany(sql, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything in it or nothing; nobody writes in between."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # A full disk may have ended it already.
            if self._connection.in_transaction:
                self.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        with translated():
            self._connection.close()


@contextmanager
def translated() -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except _UNFIT as error:
        raise UnfitError(str(error)) from error
    except sqlite3.Error as error:
        raise DatabaseError(str(error)) from error

"""What the gateway asks of a database, whichever it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from mild.errors import MildError

__all__ = ["Database", "DatabaseError", "DoubtError", "Found", "UnfitError", "marks"]


class DatabaseError(MildError, OSError):
    """Why a database cannot be used now, as the end of a sentence; what was begun has not happened."""


class DoubtError(DatabaseError):
    """The database went away while it was told to keep a transaction: it has happened, or not."""


class UnfitError(DatabaseError):
    """A value does not fit its column; the database is well."""


class Found(NamedTuple):
    """Rows that a statement gave, and how many rows it found or changed."""

    rows: list[tuple[Any, ...]]
    affected: int

    @property
    def first(self) -> tuple[Any, ...] | None:
        """The first row, if there is one."""
        return self.rows[0] if self.rows else None

    @property
    def value(self) -> Any:
        """What the first row begins with."""
        return self.rows[0][0]


class Database(Protocol):
    """One connection, used by one thread at a time. Every method may raise ``DatabaseError``.

    Statements are written in the SQL that SQLite and PostgreSQL share, with ``?`` for values.
    """

    @property
    def broken(self) -> bool:
        """Whether the connection has ended: another one is needed."""

    def time(self, now: float) -> float:
        """The moment by a clock that all who use it share; ``now`` is by this process's own."""

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Found: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    def transaction(self) -> AbstractContextManager[None]:
        """Everything in it or nothing. SQLite lets nobody else write meanwhile, PostgreSQL does."""

    def close(self) -> None: ...


def marks(rows: int, columns: int) -> str:
    """Places of so many rows of values.

    Examples
    --------
    >>> marks(2, 3)
    '(?, ?, ?), (?, ?, ?)'
    """
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)

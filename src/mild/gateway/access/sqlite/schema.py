"""The file: its tables, who may read it, and how it is opened."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from mild.exceptions import DataFileError
from mild.gateway.access.store import StoreError

__all__ = ["MEMORY", "connect", "transaction", "translated"]

MEMORY = ":memory:"
# "mild", by which a file of ours is known; and the number of its tables.
_APPLICATION = 0x6D696C64
_VERSION = 1
# Others hold the file for less than a millisecond; a machine that is asleep holds it longer.
_BUSY_SECONDS = 5.0

# Money in billionths of a dollar. An allotment is what a worker holds and has not reported as spent.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE keys (
    name TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, hint TEXT NOT NULL,
    created REAL NOT NULL, revoked REAL,
    budget_day INTEGER, budget_month INTEGER, requests_per_minute INTEGER
);
CREATE TABLE accounts (
    scope TEXT, period TEXT, spent INTEGER NOT NULL DEFAULT 0, lost INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, period)
) WITHOUT ROWID;
CREATE TABLE allotments (
    scope TEXT, period TEXT, owner TEXT, amount INTEGER NOT NULL,
    PRIMARY KEY (scope, period, owner)
) WITHOUT ROWID;
CREATE INDEX allotments_of ON allotments (owner);
CREATE TABLE owners (
    name TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, started INTEGER NOT NULL,
    beat REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE slots (
    scope TEXT, second INTEGER, taken INTEGER NOT NULL, PRIMARY KEY (scope, second)
) WITHOUT ROWID;
"""


def connect(path: str) -> sqlite3.Connection:
    """Open the file; make it where there is none, for its owner's eyes only.

    Raises
    ------
    DataFileError : it is a file of something else, or of a newer mild
    StoreError : it cannot be opened
    """
    with translated(path):
        if path != MEMORY:
            _touch(Path(path))
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything in it or nothing; nobody writes in between."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # A full disk may have ended it already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: the store cannot be used: {error}.") from error
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path}: the store cannot be used: {error.strerror}.") from error


def _touch(file: Path) -> None:
    # SQLite gives its other files the permissions of this one.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    try:
        version, application = _numbers(connection)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise DataFileError(f"{path}: it is not an SQLite file; name another store.") from None
    if version > _VERSION and application == _APPLICATION:
        raise DataFileError(
            f"{path}: it was written by a newer mild (tables {version}; this one knows {_VERSION}); "
            "upgrade mild, or name another store."
        )
    _use_wal(connection)
    # What was spent must outlive a loss of power; there are few commits, and none on a request's way.
    connection.execute("PRAGMA synchronous = FULL")
    if (version, application) == (_VERSION, _APPLICATION):
        return
    with transaction(connection):
        # Another worker may have been quicker.
        if _numbers(connection) == (_VERSION, _APPLICATION):
            return
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise DataFileError(f"{path}: it is a database of something else; name another store.")
        for statement in _TABLES.split(";\n"):
            connection.execute(statement)
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            [("salt", secrets.token_bytes(32)), ("keys_version", 1)],
        )
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")


def _use_wal(connection: sqlite3.Connection) -> None:
    # Of several workers that do this at the same moment, SQLite lets all but one fail without waiting.
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    return version, connection.execute("PRAGMA application_id").fetchone()[0]

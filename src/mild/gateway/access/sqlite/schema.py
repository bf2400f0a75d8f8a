"""The file: its tables, who may read it, and how it is opened."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from pathlib import Path

from mild.errors import DataFileError
from mild.gateway.database.face import Database, DatabaseError
from mild.gateway.database.sqlite import SqliteDatabase, translated

__all__ = ["MEMORY", "MIGRATIONS", "SCHEMA", "connect"]

MEMORY = ":memory:"
# "mild", by which a file of ours is known.
_APPLICATION = 0x6D696C64
# Others hold the file for less than a millisecond; a machine that is asleep holds it longer.
_BUSY_SECONDS = 5.0

# The place in this list is the number of the schema that a step leads to, from 1. Steps are only added.
# Money in billionths of a dollar. An allotment is what a worker holds and has not reported as spent.
MIGRATIONS = (
    """
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
""",
    # Which exchange of a worker was the last.
    "ALTER TABLE owners ADD COLUMN number INTEGER NOT NULL DEFAULT 0;\n",
)
SCHEMA = len(MIGRATIONS)


def connect(path: str) -> Database:
    """Open the file; make it where there is none, for its owner's eyes only.

    Raises
    ------
    DataFileError : it is a file of something else, or of a newer mild
    DatabaseError : it cannot be opened
    """
    if path != MEMORY:
        _touch(Path(path))
    with translated():
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return SqliteDatabase(connection)


def _touch(file: Path) -> None:
    # SQLite gives its other files the permissions of this one.
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if file.is_dir():
            raise DatabaseError("it is a folder; name a file in it") from None
        # SQLite makes files beside it; what it says where it cannot is no help.
        if not (os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK)):
            raise DatabaseError("the file and its folder must be writable") from None
    except FileNotFoundError as error:
        raise DatabaseError(f"there is no folder {file.parent}; make it first") from error
    except OSError as error:
        raise DatabaseError(str(error.strerror)) from error


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    try:
        version, application = _numbers(connection)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise DataFileError(f"{path}: it is not an SQLite file; name another store.") from None
    if version > SCHEMA and application == _APPLICATION:
        raise DataFileError(
            f"{path}: it was written by a newer mild (tables {version}; this one knows {SCHEMA}); "
            "upgrade mild, or name another store."
        )
    _use_wal(connection)
    # What was spent must outlive a loss of power; there are few commits, and none on a request's way.
    connection.execute("PRAGMA synchronous = FULL")
    if (version, application) == (SCHEMA, _APPLICATION):
        return
    with SqliteDatabase(connection).transaction():
        # Another worker may have been quicker.
        version, application = _numbers(connection)
        if (version, application) == (SCHEMA, _APPLICATION):
            return
        if application != _APPLICATION:
            if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise DataFileError(
                    f"{path}: it is a database of something else; name another store."
                )
            version = 0
        _migrate(connection, version)


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    for step in MIGRATIONS[version:]:
        for statement in step.split(";\n"):
            connection.execute(statement)
    if version == 0:
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            [("salt", secrets.token_bytes(32)), ("keys_version", 1)],
        )
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


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

"""The tables in SQLite, as numbered migrations, and how the file is opened.

``decisions`` has one row per accepted request, ``minutes`` their sums per minute, expert and outcome,
``routers`` the names behind the probabilities, ``workers`` what each serving process says of itself,
``marks`` small facts such as when old rows were last looked for.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from mild.errors import DataFileError
from mild.gateway.database.face import Database, DatabaseError
from mild.gateway.database.sqlite import SqliteDatabase

__all__ = ["MIGRATIONS", "SCHEMA", "open_file_to_read", "open_to_write"]

# Tells a gateway's ledger from other SQLite files: "milg".
APPLICATION = 0x6D696C67

# The place in this list is the number of the schema that a step leads to, from 1. Steps are only added.
MIGRATIONS = (
    """
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, time REAL NOT NULL, key TEXT NOT NULL,
        asked TEXT NOT NULL, expert TEXT, chosen TEXT, probabilities TEXT, propensity REAL,
        expected_cost REAL, price REAL, tokens_in INTEGER, tokens_out INTEGER, latency_ms REAL,
        first_byte_ms REAL, overhead_ms REAL, status INTEGER NOT NULL, outcome TEXT NOT NULL,
        attempts INTEGER NOT NULL, streamed INTEGER NOT NULL, session TEXT, router TEXT NOT NULL,
        text TEXT, error TEXT, pinned_by TEXT
    );
    CREATE INDEX decisions_by_time ON decisions (time);
    CREATE TABLE minutes (
        minute INTEGER NOT NULL, expert TEXT NOT NULL, outcome TEXT NOT NULL, requests INTEGER NOT NULL,
        price REAL NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL,
        latency_ms REAL NOT NULL, PRIMARY KEY (minute, expert, outcome)
    ) WITHOUT ROWID;
    CREATE TABLE routers (fingerprint TEXT PRIMARY KEY, experts TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE workers (pid INTEGER PRIMARY KEY, time REAL NOT NULL, document TEXT NOT NULL);
    CREATE TABLE marks (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
    """,
)
SCHEMA = len(MIGRATIONS)
# A log that was written far is cut back to this when it is started anew.
LOG_BYTES = 16_000_000


def open_to_write(path: str | os.PathLike[str], patience: float) -> Database:
    """Open for writing, made or brought up to date where needed; waits so many seconds for a lock.

    Raises DataFileError if the file can never be a ledger of ours, and DatabaseError if it cannot be
    one now (locked, disk full).
    """
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise DataFileError(f"the ledger's folder must exist; {folder} does not.")
    # For its owner's eyes, as are the other files that SQLite makes beside it. What is wrong, SQLite says.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        database = sqlite3.connect(path, timeout=patience, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise DatabaseError(_reason(error, Path(path))) from error
    try:
        owner, version = _whose(database, path)
        if owner == 0:
            # Takes effect only while the file is empty.
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        # A killed process loses nothing that was committed; a power cut may take the last commits.
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        if version < SCHEMA:
            _migrate(database, path)
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.OperationalError):
            raise DatabaseError(_reason(error, Path(path))) from error
        if isinstance(error, sqlite3.DatabaseError):
            raise DataFileError(f"{path} cannot be used as a ledger: {error}.") from error
        raise
    return SqliteDatabase(database)


def _reason(error: sqlite3.OperationalError, file: Path) -> str:
    """What SQLite says, unless that does not help."""
    if file.is_dir():
        return f"{file} is a folder; name a file in it"
    if file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        return f"{file} and its folder must be writable"
    return str(error)


def open_file_to_read(path: str | os.PathLike[str]) -> Database:
    """Open for reading; other processes may go on writing."""
    place = Path(path)
    if not place.is_file():
        raise DataFileError(f"{path} is no file; a ledger is what `mild serve` writes.")
    address = place.resolve().as_uri() + "?mode=ro"
    if not os.access(place.parent, os.W_OK) and not Path(f"{place}-wal").exists():
        address += "&immutable=1"
    database = sqlite3.connect(address, uri=True, timeout=5.0, isolation_level=None)
    try:
        owner, version = _whose(database, path)
        if owner == 0 or version == 0:
            raise DataFileError(f"{path} is empty: nothing has been written to it yet.")
        if version < SCHEMA:
            raise DataFileError(
                f"{path} is a ledger of schema {version}, older than {SCHEMA}; it is brought up to date "
                f"when `mild serve` opens it."
            )
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.Error):
            raise DataFileError(f"{path} cannot be read as a ledger: {error}.") from error
        raise
    return SqliteDatabase(database)


def _whose(database: sqlite3.Connection, path: str | os.PathLike[str]) -> tuple[int, int]:
    """Application and schema number; refuses files of others and of a newer mild."""
    # One look: another process may be making the file at this moment.
    alone = not database.in_transaction
    if alone:
        database.execute("BEGIN")
    names = int(database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])
    owner = int(database.execute("PRAGMA application_id").fetchone()[0])
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if alone:
        database.execute("COMMIT")
    if owner not in (0, APPLICATION) or (owner == 0 and names):
        raise DataFileError(
            f"{path} is a database of something else, not a gateway's ledger; name another file."
        )
    if version > SCHEMA:
        raise DataFileError(
            f"{path} was written by a newer mild: schema {version}, this one knows {SCHEMA}; upgrade "
            f"with pip install --upgrade mild-learn, or name another file."
        )
    return owner, version


def _migrate(database: sqlite3.Connection, path: str | os.PathLike[str]) -> None:
    """Take the steps that are missing, all or none; another process may have taken them meanwhile."""
    database.execute("BEGIN IMMEDIATE")
    try:
        _, version = _whose(database, path)
        for step in MIGRATIONS[version:]:
            for statement in step.split(";"):
                database.execute(statement)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {SCHEMA}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise

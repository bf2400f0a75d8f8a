"""SQLite files: how they are created, opened and set up."""

from __future__ import annotations

import os
import pwd
import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa

from mild.errors import DataFileError
from mild_gateway.database.errors import DatabaseError
from mild_gateway.database.schema import APPLICATION

MEMORY = ":memory:"
_WAL_BYTES = 16_000_000


def create_file(file: Path) -> None:
    """Create the file for its owner alone, if it is not there; SQLite gives its other files the same mode.

    DatabaseError says what is wrong with a file that is there and cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        _check_writable(file)
        return
    except FileNotFoundError as error:
        raise DataFileError(
            f"{file}: there is no folder {file.parent}; create it first."
        ) from error
    except OSError as error:
        raise DatabaseError(str(error.strerror)) from error
    try:
        _give_to_owner_of_folder(descriptor, file.parent)
    finally:
        os.close(descriptor)


def _give_to_owner_of_folder(descriptor: int, folder: Path) -> None:
    """Root creates the file for the owner of the folder: a service that runs as that user must read it."""
    if os.geteuid() != 0:
        return
    owner = folder.stat()
    os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _check_writable(file: Path) -> None:
    if file.is_dir():
        raise DatabaseError(f"{file} is a folder; name a file in it")
    # SQLite creates files beside it; its own message does not say so.
    if os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK):
        return
    raise DatabaseError(
        f"{file} and its folder must be writable for {_user_name(os.geteuid())}, who runs this process; "
        f"the file belongs to {_user_name(file.stat().st_uid)}. Run both as the same user, or change "
        "the owner with chown"
    )


def _user_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"user {user_id}"


def file_engine(path: str | os.PathLike[str], patience: float) -> sa.Engine:
    """An engine to write; ``patience`` is the seconds to wait for the lock of the file."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            os.fspath(path), timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, patience)
        except BaseException:
            connection.close()
            raise
        return connection

    return _engine(connect)


def reading_engine(path: str | os.PathLike[str], patience: float) -> sa.Engine:
    """An engine that changes nothing, for a file that is there."""
    file = Path(path)
    if not file.is_file():
        raise DataFileError(f"{path} is not a file; a ledger is a file that `mild serve` wrote.")
    uri = file.resolve().as_uri() + "?mode=ro"
    # SQLite would create the files beside it, which it may not.
    if not os.access(file.parent, os.W_OK) and not Path(f"{file}-wal").exists():
        uri += "&immutable=1"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            uri, timeout=patience, isolation_level=None, check_same_thread=False, uri=True
        )

    return _engine(connect)


def _engine(connect: object) -> sa.Engine:
    return sa.create_engine("sqlite://", paramstyle="named", creator=connect, poolclass=sa.NullPool)


def _prepare(connection: sqlite3.Connection, patience: float) -> None:
    """Set up a new connection, again and again while another process sets up the same file.

    Of several that change the journal at the same moment, SQLite lets all but one fail without waiting.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            _set_pragmas(connection)
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _set_pragmas(connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    n_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    # Files of other programs are left as they are.
    if n_tables and application != APPLICATION:
        return
    # Takes effect only while the file is empty.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    # A killed process loses nothing that was committed; a power cut may take the last commits.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")

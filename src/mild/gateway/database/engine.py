"""Connections: how a file or a server is opened, checked and migrated, and what its errors mean."""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from mild.errors import DataFileError, MissingExtraError, install_hint
from mild.gateway.database.address import Address
from mild.gateway.database.errors import (
    CommitUnknownError,
    ConditionError,
    DatabaseError,
    InvalidRowError,
)

try:
    import sqlalchemy as sa
except ImportError as missing:
    raise MissingExtraError(
        f"the gateway's store and ledger need SQLAlchemy; install it with: {install_hint('gateway')}"
    ) from missing

Location = str | os.PathLike[str] | Address
MEMORY = ":memory:"
# Revision of the newest migration. "old" stands for tables of mild 0.1, which had no migrations.
SCHEMA = "0003"
OLD = "old"
metadata = sa.MetaData()

# PostgreSQL: all tables are in a schema of their own.
_NAMESPACE = "mild"
# PRAGMA application_id of our files, and of stores and ledgers of mild 0.1.
_APPLICATION = 0x6D696C32
_OLD_APPLICATIONS = (0x6D696C64, 0x6D696C67)
_LOCK = 0x6D696C64
_WAL_BYTES = 16_000_000
# Pages of the log after which they are written to the file; SQLite's own number.
_WAL_PAGES = 1000
# How soon a machine that is gone is noticed; what the address says goes first.
_LIBPQ = {
    "connect_timeout": "5",
    "application_name": "mild",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# Seconds that PostgreSQL may take to answer a statement before the connection is given up.
ANSWER_SECONDS = 30.0
_LEAD = re.compile(r'^connection failed: |connection to server (?:at|on) ".*? failed: |FATAL: +')
_BROKEN_RULE = "a budget would have been exceeded"
# check_violation, of mild.apply_batch.
_BROKEN_RULE_STATE = "23514"
# Alembic keeps the running migration in module variables.
_migrating = threading.Lock()


class SqlStatement(NamedTuple):
    """SQL that runs for many rows of values, without SQLAlchemy, which takes longer than the database does.

    ``sqlite`` runs once for each row; with ``changes_all`` the transaction fails unless each changes a row.
    ``postgres`` runs once for all rows, which it gets as JSON: for ``{given}``, a table of ``columns``, or
    as they are for ``{json}``.
    """

    sqlite: str
    postgres: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    changes_all: bool = False

    def for_postgres(self, rows: Any, quote: Callable[[str], str]) -> str:
        """The SQL with its rows as one literal: passing arrays takes the driver longer."""
        if not self.columns:
            return self.postgres.replace("{json}", quote(_rows_json(rows)))
        names = [name for name, _ in self.columns]
        document = quote(_rows_json([dict(zip(names, row, strict=True)) for row in rows]))
        kinds = ", ".join(f'"{name}" {kind}' for name, kind in self.columns)
        return self.postgres.replace("{given}", f"json_to_recordset({document}) AS given({kinds})")


def _rows_json(rows: Any) -> str:
    try:
        return json.dumps(rows, allow_nan=False)
    except (TypeError, ValueError) as error:
        # Not quoted: it may be the text of a request.
        raise InvalidRowError("a value must be a text or a finite number") from error


def make_table(name: str, key: Sequence[str], /, **columns: Any) -> sa.Table:
    """A table with columns of these types, all of them required."""
    return sa.Table(
        name,
        metadata,
        *(
            sa.Column(column, kind, primary_key=column in key, nullable=False, autoincrement=False)
            for column, kind in columns.items()
        ),
    )


# PostgreSQL uses its own clock; a file is on one machine, whose clock is passed in.
CLOCK = SqlStatement("", "SELECT EXTRACT(epoch FROM clock_timestamp())::double precision")


class Database:
    """One connection, used by one thread at a time. Methods raise DatabaseError.

    One that is ``broken`` was lost: open another. ``schema`` is the revision of its tables, "" without any.
    """

    def __init__(self, engine: sa.Engine, reading: bool = False) -> None:
        self.broken = False
        self.schema = ""
        self.is_postgres = engine.dialect.name == "postgresql"
        self._driver: Any = engine.dialect.loaded_dbapi
        self._errors = (sa.exc.DBAPIError, sa.exc.InvalidRequestError, self._driver.Error)
        try:
            self._connection = engine.connect()
        except (sa.exc.DBAPIError, self._driver.Error) as error:
            raise DatabaseError(_failure(getattr(error, "orig", error))) from error
        self._raw: Any = self._connection.connection.driver_connection
        self._patience = self._waiting = 0
        # Readers of a file take no lock.
        self._begins_with = "BEGIN" if self.is_postgres or reading else "BEGIN IMMEDIATE"
        sa.event.listen(engine, "begin", self._begin)
        if not self.is_postgres:
            # In milliseconds, as the file was opened with.
            self._patience = self._waiting = self._pragma("busy_timeout")
        else:
            from psycopg.pq import Escaping

            raw: Any = self._raw
            self._escaping = Escaping(raw.pgconn)

    def set_waiting(self, waits: bool) -> None:
        """SQLite: whether transactions from now on wait for the lock, and write the log to the file."""
        wanted = self._patience if waits else 0
        if wanted != self._waiting:
            self._waiting = wanted
            self._pragma(f"busy_timeout = {wanted}")
            # The thread of another transaction does that, which has time to wait for the disk.
            self._pragma(f"wal_autocheckpoint = {_WAL_PAGES if waits else 0}")

    def _pragma(self, text: str) -> int:
        return int(self._raw.execute(f"PRAGMA {text}").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Everything in it or nothing; CommitUnknownError if the connection was lost during the commit.

        SQLite lets nobody else write meanwhile, PostgreSQL does. The first statement begins it.
        """
        try:
            try:
                yield self._connection
            except BaseException:
                self._roll_back()
                raise
        except self._errors as error:
            raise self._explain(error) from error
        try:
            self._connection.commit()
            self._raw.commit()
        except self._errors as error:
            self._roll_back()
            raise self._explain(error, committing=True) from error

    def _roll_back(self) -> None:
        for connection in (self._connection, self._raw):
            with suppress(sa.exc.SQLAlchemyError, self._driver.Error):
                connection.rollback()

    def _begin(self, *_: Any) -> None:
        """Begin a transaction, unless one was begun."""
        raw = self._raw
        if not (raw.pgconn.transaction_status if self.is_postgres else raw.in_transaction):
            raw.execute(self._begins_with)

    def run(
        self, *work: tuple[SqlStatement, Any], commit: bool = False
    ) -> list[list[tuple[Any, ...]]]:
        """Run each statement for its rows of values; the rows that each returns.

        PostgreSQL gets all of them in one message, with the COMMIT if the transaction ends with them.
        """
        if self.is_postgres:
            try:
                return self._send(work, commit)
            except self._errors as error:
                raise self._explain(error, committing=commit) from error
        self._begin()
        return [self._run_each(*one) for one in work]

    def _run_each(self, statement: SqlStatement, rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        if not rows:
            return []
        sql, found = statement.sqlite, []
        if sql.startswith("SELECT") or " RETURNING " in sql:
            execute = self._raw.cursor().execute
            found = [line for row in rows for line in execute(sql, row)]
            changed = len(found)
        else:
            changed = self._raw.executemany(sql, rows).rowcount
        if statement.changes_all and changed != len(rows):
            raise ConditionError(_BROKEN_RULE)
        return found

    def _send(
        self, work: Sequence[tuple[SqlStatement, Any]], commit: bool
    ) -> list[list[tuple[Any, ...]]]:
        asked = [bool(rows) or not statement.columns for statement, rows in work]
        said = [
            statement.for_postgres(rows, self._quote)
            for (statement, rows), is_asked in zip(work, asked, strict=True)
            if is_asked
        ]
        begins = not self._raw.pgconn.transaction_status
        if begins and commit and len(said) == 1:
            # A statement alone is a transaction.
            begins = commit = False
        cursor = self._raw.execute("; ".join(["BEGIN"] * begins + said + ["COMMIT"] * commit))
        if begins:
            cursor.nextset()
        found: list[list[tuple[Any, ...]]] = []
        for is_asked in asked:
            # Without a number of its row, the statement returns none.
            found.append(cursor.fetchall() if is_asked and cursor.rownumber is not None else [])
            if is_asked:
                cursor.nextset()
        return found

    def _quote(self, text: str) -> str:
        quoted: bytes = self._escaping.escape_literal(text.encode("ascii"))
        return quoted.decode("ascii")

    def time(self, now: float) -> float:
        """Seconds since 1970 by the server's clock; ``now`` for a file, which is on one machine."""
        return float(self.run((CLOCK, ()))[0][0][0]) if self.is_postgres else now

    def close(self) -> None:
        """Close the connection."""
        with suppress(sa.exc.SQLAlchemyError, sqlite3.Error):
            self._connection.close()
        self._connection.engine.dispose()

    def _explain(self, error: Exception, committing: bool = False) -> DatabaseError:
        """What an error of the driver means."""
        cause = getattr(error, "orig", error)
        state = getattr(cause, "sqlstate", None)
        closed = getattr(self._raw, "closed", False)
        lost = isinstance(error, sa.exc.InvalidRequestError)
        # A server that is read-only has become a copy: the next connection may find the original.
        if closed or lost or state == "25006":
            self.broken = True
        reason = "the connection was lost" if lost else _failure(cause)
        if state == _BROKEN_RULE_STATE:
            return ConditionError(_BROKEN_RULE)
        if self.broken:
            return CommitUnknownError(reason) if committing else DatabaseError(reason)
        driver = self._driver
        invalid = isinstance(cause, driver.DataError | driver.IntegrityError) or (
            isinstance(cause, driver.InterfaceError | driver.ProgrammingError) and not state
        )
        return InvalidRowError(reason) if invalid else DatabaseError(reason)


def insert(
    table: sa.Table, once: bool = False, replace: Sequence[str] = (), add: Sequence[str] = ()
) -> SqlStatement:
    """Insert rows; where one exists, fail, do nothing (``once``), or replace or add to these columns."""
    columns = tuple(
        (column.name, str(column.type).lower().replace("double", "double precision"))
        for column in table.columns
        if column is not table.autoincrement_column
    )
    names = ", ".join(f'"{name}"' for name, _ in columns)
    new = [f'"{name}" = excluded."{name}"' for name in replace]
    new += [f'"{name}" = {table.name}."{name}" + excluded."{name}"' for name in add]
    keys = ", ".join(f'"{column.name}"' for column in table.primary_key)
    rest = " ON CONFLICT DO NOTHING" if once else ""
    if new:
        rest = f" ON CONFLICT ({keys}) DO UPDATE SET {', '.join(new)}"
    marks = ", ".join("?" * len(columns))
    return SqlStatement(
        f"INSERT INTO {table.name} ({names}) VALUES ({marks}){rest}",
        f"INSERT INTO {_NAMESPACE}.{table.name} ({names}) SELECT {names} FROM {{given}}{rest}",
        columns,
    )


def open_database(place: Location, patience: float = 5.0, reading: bool = False) -> Database:
    """Open a store or a ledger; to write, it is created and migrated where needed.

    DataFileError if it belongs to something else, to mild 0.1 (whose ledger may be read) or to a newer
    mild; DatabaseError if it cannot be used now. ``patience`` is the seconds to wait for the lock of a
    file.
    """
    if not (reading or place == MEMORY or isinstance(place, Address)):
        _create_file(Path(place))
    try:
        database = Database(_engine(place, patience, reading), reading)
        try:
            database.schema = schema_of(database, place, reading)
            if database.schema < SCHEMA and not reading:
                _migrate(database)
        except BaseException:
            database.close()
            raise
    except DatabaseError as error:
        if isinstance(place, Address) or "not a database" not in str(error):
            raise
        raise DataFileError(
            f"{shown_place(place)} is not an SQLite file; name another one."
        ) from None
    return database


def inspect_database(place: Location) -> str:
    """Revision of the tables, "" where there are none; nothing is changed. Raises as ``open_database``."""
    database = Database(_engine(place, 5.0, reading=True), reading=True)
    try:
        return schema_of(database, place)
    finally:
        database.close()


def shown_place(place: Location) -> str:
    """A place for messages, without a secret."""
    return place.shown if isinstance(place, Address) else os.fspath(place)


def schema_of(database: Database, place: Location, reading: bool = False) -> str:
    """Revision of the tables, "" where there are none; refuses what cannot be used.

    Tables of mild 0.1 are refused to writers; readers get ``OLD``.
    """
    is_ours, is_old, version = True, False, ""
    with database.transaction() as connection:
        if database.is_postgres:
            # pg_class and not the inspector: a role may not be allowed to see other schemas.
            query = (
                "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
                f"WHERE nspname = '{_NAMESPACE}'"
            )
            names = set(connection.scalars(sa.text(query)))
            is_old = "schema_version" in names
        else:
            names = set(connection.scalars(sa.text("SELECT name FROM sqlite_master")))
            application = connection.scalar(sa.text("PRAGMA application_id"))
            is_old = application in _OLD_APPLICATIONS
            is_ours = application in (0, _APPLICATION) or is_old
        if "alembic_version" in names:
            table = sa.table("alembic_version", sa.column("version_num"))
            version = connection.scalar(sa.select(table.c.version_num)) or ""
    if version > SCHEMA:
        raise DataFileError(
            f"{shown_place(place)}: it was written by a newer version of mild (schema {version}; this "
            f"version reads {SCHEMA}); upgrade with pip install --upgrade mild-learn, or name another "
            "place."
        )
    if is_old and not (reading and "decisions" in names):
        raise DataFileError(
            f"{shown_place(place)}: it was written by mild 0.1, whose keys and budgets are not taken over; "
            "name another place and add the keys again. Its ledger can still be read."
        )
    if (names and not (version or is_old)) or not is_ours:
        what = "its schema mild" if database.is_postgres else "it"
        raise DataFileError(
            f"{shown_place(place)}: {what} belongs to another program; name another place."
        )
    return OLD if is_old else version


def _migrate(database: Database) -> None:
    """Apply the migrations that are missing, all or none; another process may have been quicker."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    folder = str(Path(__file__).with_name("migrations"))
    script = ScriptDirectory(folder, version_locations=[folder])
    with _migrating, database.transaction() as connection:
        if database.is_postgres:
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            # Asked first: who may use a schema may not be allowed to create one.
            exists = f"SELECT 1 FROM pg_namespace WHERE nspname = '{_NAMESPACE}'"
            if connection.scalar(sa.text(exists)) is None:
                connection.execute(sa.text(f"CREATE SCHEMA {_NAMESPACE}"))
        else:
            connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION}")

        def steps(revision: Any, _: Any) -> Any:
            return script._upgrade_revs("head", revision)

        with EnvironmentContext(Config(), script, fn=steps, destination_rev="head") as environment:
            environment.configure(
                connection, version_table_schema=_NAMESPACE if database.is_postgres else None
            )
            environment.run_migrations()


def _create_file(file: Path) -> None:
    """Create the file for its owner alone; SQLite gives its other files the same mode."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if file.is_dir():
            raise DatabaseError(f"{file} is a folder; name a file in it") from None
        # SQLite creates files beside it; its own message does not say so.
        if not (os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK)):
            raise DatabaseError(f"{file} and its folder must be writable") from None
    except FileNotFoundError as error:
        raise DataFileError(
            f"{file}: there is no folder {file.parent}; create it first."
        ) from error
    except OSError as error:
        raise DatabaseError(str(error.strerror)) from error


def _engine(place: Location, patience: float, reading: bool) -> sa.Engine:
    if isinstance(place, Address):
        return _postgres_engine(place)
    return _sqlite_engine(place, patience, reading)


def _sqlite_engine(place: str | os.PathLike[str], patience: float, reading: bool) -> sa.Engine:
    target = os.fspath(place)
    if reading:
        file = Path(place)
        if not file.is_file():
            raise DataFileError(
                f"{place} is not a file; a ledger is a file that `mild serve` wrote."
            )
        target = file.resolve().as_uri() + "?mode=ro"
        if not os.access(file.parent, os.W_OK) and not Path(f"{file}-wal").exists():
            target += "&immutable=1"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            target, timeout=patience, isolation_level=None, check_same_thread=False, uri=reading
        )
        try:
            # Files of others are left as they are.
            owner = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not reading and (owner == _APPLICATION or not tables):
                # Takes effect only while the file is empty.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                _use_wal(connection, patience)
                # A killed process loses nothing that was committed; a power cut may take the last commits.
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
                # RETURNING collects its rows there; in a file that takes longer than the change itself.
                connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    return sa.create_engine("sqlite://", paramstyle="named", creator=connect, poolclass=sa.NullPool)


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    # Of several processes that do this at the same moment, SQLite lets all but one fail without waiting.
    end = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _postgres_engine(address: Address) -> sa.Engine:
    """What the address leaves out, libpq's variables and files say (PGPASSWORD, service files)."""
    try:
        import psycopg
        from psycopg import conninfo
    except ImportError as error:
        raise MissingExtraError(
            f"a store in PostgreSQL needs psycopg; install it with: {install_hint('gateway,postgres')}"
        ) from error
    try:
        options: dict[str, Any] = {**_LIBPQ, **conninfo.conninfo_to_dict(address.value)}
    except psycopg.Error as error:
        # The driver's message may hold the password, unless it names an option.
        said = re.fullmatch(r'invalid URI query parameter: "(\w+)"\s*', str(error))
        what = f"it has the unknown option {said[1]!r}" if said else "it is not one"
        raise DataFileError(
            f"{address.shown}: the address must be a connection URI of libpq; {what}."
        ) from None

    class BoundedConnection(psycopg.Connection[Any]):
        """A connection that is closed where the server does not answer a statement in time."""

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            return super().wait(self._bounded(gen), *arguments, **options)

        def _bounded(self, gen: Any) -> Any:
            # psycopg looks up every 0.1 s. A server that is frozen, or behind a dead proxy, keeps no
            # time-out of its own.
            end = time.monotonic() + ANSWER_SECONDS
            ready = None
            while True:
                try:
                    wanted = gen.send(ready)
                except StopIteration as done:
                    return done.value
                ready = yield wanted
                if not ready and time.monotonic() > end:
                    gen.close()
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {ANSWER_SECONDS:g} s")

    # What goes wrong is raised and told in our words.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    # Poolers may give the next transaction to another connection: nothing is prepared. Transactions begin
    # where ``Database`` says so.
    return sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: BoundedConnection.connect(
            **options, prepare_threshold=None, autocommit=True
        ),
        poolclass=sa.NullPool,
        use_native_hstore=False,
    ).execution_options(schema_translate_map={None: _NAMESPACE})


def _failure(error: BaseException | None) -> str:
    """What the server or the driver says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # With several hosts or addresses each has a line; the last one is where it ended.
    fatal = [line for line in lines if "FATAL" in line or "failed" in line]
    line = (fatal or lines or ["no reason was given"])[-1 if fatal else 0]
    return _LEAD.sub("", line).removeprefix("- ").rstrip(".")

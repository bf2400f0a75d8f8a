"""Connections: how a file or a server is opened, checked and migrated, and what its errors mean."""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mild.errors import DataFileError, MissingExtraError, install_hint
from mild_gateway.database.address import Address
from mild_gateway.database.errors import CommitUnknownError, DatabaseError, InvalidRowError

Location = str | os.PathLike[str] | Address
MEMORY = ":memory:"
# Revision of the newest migration, and what stands for tables of mild 0.1, which had no migrations.
SCHEMA = "0006"
OLD = "0"
metadata = sa.MetaData()

# PostgreSQL: all tables are in a schema of their own.
_NAMESPACE = "mild"
# PRAGMA application_id of our files, and of stores and ledgers of mild 0.1.
_APPLICATION = 0x6D696C32
_OLD_APPLICATIONS = (0x6D696C64, 0x6D696C67)
_LOCK = 0x6D696C64
_WAL_BYTES = 16_000_000
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
# Alembic keeps the running migration in module variables.
_migrating = threading.Lock()


def make_table(
    name: str, key: Sequence[str], /, docs: Mapping[str, str] | None = None, **columns: Any
) -> sa.Table:
    """A table with columns of these types, all of them required; ``docs`` says what they hold."""
    return sa.Table(
        name,
        metadata,
        *(
            sa.Column(
                column,
                kind,
                primary_key=column in key,
                nullable=False,
                autoincrement=False,
                doc=(docs or {}).get(column),
            )
            for column, kind in columns.items()
        ),
    )


# PostgreSQL uses its own clock; a file is on one machine, whose clock is passed in.
_CLOCK: Any = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
_GIVEN: Any = sa.bindparam("now", type_=sa.Double)


class Database:
    """One connection, used by one thread at a time. Methods raise DatabaseError.

    One that is ``broken`` was lost: open another. ``schema`` is the revision of its tables, "" without any.
    ``now`` in a statement is the server's time; for a file the parameter of this name.
    """

    def __init__(self, engine: sa.Engine, reading: bool = False, place: Location = MEMORY) -> None:
        self.broken = False
        self.schema = ""
        self.is_postgres = engine.dialect.name == "postgresql"
        self.now = _CLOCK if self.is_postgres else _GIVEN
        self._driver: Any = engine.dialect.loaded_dbapi
        if not self.is_postgres:
            # Readers of a file take no lock.
            begin = "BEGIN" if reading else "BEGIN IMMEDIATE"
            sa.event.listen(engine, "begin", lambda found: found.exec_driver_sql(begin))
        try:
            self._connection = engine.connect()
        except (sa.exc.DBAPIError, self._driver.Error) as error:
            raise DatabaseError(_failure(getattr(error, "orig", error))) from error
        self._raw: Any = self._connection.connection.driver_connection
        self._place = place
        self._identity = file_identity(place)

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

    def is_gone(self) -> bool:
        """Whether the file was deleted or replaced: what is written would be lost."""
        return file_identity(self._place) != self._identity

    def close(self) -> None:
        with suppress(sa.exc.SQLAlchemyError):
            self._connection.close()
        self._connection.engine.dispose()

    def _explain(self, error: Exception, committing: bool) -> DatabaseError:
        cause = getattr(error, "orig", error)
        state = getattr(cause, "sqlstate", None)
        closed = getattr(self._raw, "closed", False)
        lost = isinstance(error, sa.exc.InvalidRequestError)
        # A server that is read-only has become a copy: the next connection may find the original.
        if closed or lost or state == "25006":
            self.broken = True
        reason = "the connection was lost" if lost else _failure(cause)
        if self.broken:
            return CommitUnknownError(reason) if committing else DatabaseError(reason)
        driver = self._driver
        invalid = isinstance(cause, driver.DataError | driver.IntegrityError) or (
            isinstance(cause, driver.InterfaceError | driver.ProgrammingError) and not state
        )
        return InvalidRowError(reason) if invalid else DatabaseError(reason)


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
    new = {name: insert.excluded[name] for name in replace}
    new |= {name: table.c[name] + insert.excluded[name] for name in add}
    if not new:
        return insert.on_conflict_do_nothing()
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)


@cache
def insert_from_json(dialect: str, table: sa.Table) -> Any:
    """One statement for any number of rows: a JSON list, the parameter of the table's name."""
    given = sa.bindparam(table.name, type_=sa.Text)
    if dialect == "postgresql":
        columns = [sa.column(one.name, one.type) for one in table.c]
        records = sa.func.json_to_recordset(sa.cast(given, sa.JSON)).table_valued(*columns)
        rows = sa.select(records.render_derived(with_types=True))
    else:
        value = sa.func.json_each(given).table_valued("value").c.value
        rows = sa.select(*(sa.func.json_extract(value, f"$.{one.name}") for one in table.c))
    # A file needs nothing of the other.
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    # With a condition: SQLite would take the ON of a conflict for a part of the SELECT.
    return insert.from_select(table.c.keys(), rows.where(sa.true()))


def open_database(place: Location, patience: float = 5.0, reading: bool = False) -> Database:
    """Open a store or a ledger; to write, it is created and migrated where needed.

    DataFileError if it belongs to something else, to mild 0.1 (whose ledger may be read) or to a newer
    mild; DatabaseError if it cannot be used now. ``patience`` is the seconds to wait for the lock of a
    file.
    """
    if not (reading or place == MEMORY or isinstance(place, Address)):
        _create_file(Path(place))
    try:
        database = Database(_engine(place, patience, reading), reading, place)
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
    with closing(Database(_engine(place, 5.0, reading=True), reading=True)) as database:
        return schema_of(database, place)


def file_identity(place: Location) -> tuple[int, int] | None:
    """Device and inode of a file; None if there is no file, or the place is not one."""
    if isinstance(place, Address) or place == MEMORY:
        return None
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
            f"version reads {SCHEMA}); upgrade with pip install --upgrade mild-learn mild-gateway, or name "
            "another place."
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
            _prepare(connection, patience, reading)
        except BaseException:
            connection.close()
            raise
        return connection

    return sa.create_engine("sqlite://", paramstyle="named", creator=connect, poolclass=sa.NullPool)


def _prepare(connection: sqlite3.Connection, patience: float, reading: bool) -> None:
    """Set up a new connection, again and again while another process sets up the same file.

    Of several that change the journal at the same moment, SQLite lets all but one fail without waiting.
    """
    end = time.monotonic() + patience
    while True:
        try:
            _set_pragmas(connection, reading)
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _set_pragmas(connection: sqlite3.Connection, reading: bool) -> None:
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    # Files of others are left as they are.
    if reading or (tables and owner != _APPLICATION):
        return
    # Takes effect only while the file is empty.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    # A killed process loses nothing that was committed; a power cut may take the last commits.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")


def _postgres_engine(address: Address) -> sa.Engine:
    """What the address leaves out, libpq's variables and files say (PGPASSWORD, service files)."""
    try:
        import psycopg
        from psycopg import conninfo
    except ImportError as error:
        hint = install_hint("postgres", "mild-gateway")
        raise MissingExtraError(
            f"a store in PostgreSQL needs psycopg; install it with: {hint}"
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
    # Poolers may give the next transaction to another connection: nothing is prepared.
    return sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: BoundedConnection.connect(**options, prepare_threshold=None),
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

"""The tables of a database: created together in one transaction, and recognised by a number."""

from __future__ import annotations

from importlib import import_module

import sqlalchemy as sa

from mild.errors import DataFileError
from mild_gateway.database.tables import make_table, metadata

# Number of the tables as they are now, and the number that stands for a database without tables.
SCHEMA = 1
NO_TABLES = 0
# PostgreSQL: all tables are in a schema of their own.
NAMESPACE = "mild"
# SQLite: PRAGMA application_id of our files.
APPLICATION = 0x6D696C33
# PostgreSQL: the lock of the process that creates the tables.
_CREATE_LOCK = 0x6D696C64
# These modules define the tables. They import this package, so they are imported only when a database is
# created, which may happen in a process that uses one of them.
_TABLE_MODULES = ("mild_gateway.access.tables", "mild_gateway.ledger.store")

schema_number = make_table("mild_schema", ["number"], number=sa.BigInteger)


def is_postgres(connection: sa.Connection) -> bool:
    """Whether a connection leads to PostgreSQL, and not to an SQLite file."""
    return connection.dialect.name == "postgresql"


def read_schema(connection: sa.Connection, shown_place: str) -> int:
    """Number of the tables; ``NO_TABLES`` if there are none. Refuses a database that cannot be used."""
    table_names = _table_names(connection)
    if not _is_ours(connection, table_names):
        subject = "it"
        if is_postgres(connection):
            subject = f"its schema {NAMESPACE}"
        raise DataFileError(
            f"{shown_place}: {subject} belongs to another program; name another place."
        )
    if not table_names:
        return NO_TABLES
    number = connection.scalar(sa.select(schema_number.c.number)) or NO_TABLES
    if number not in (NO_TABLES, SCHEMA):
        raise DataFileError(
            f"{shown_place}: it was written by another version of mild (schema {number}; this version "
            f"reads {SCHEMA}); use that version, or name another place."
        )
    return number


def create_tables(connection: sa.Connection, shown_place: str) -> None:
    """Create all tables, in the transaction of the connection, unless another process was quicker."""
    if is_postgres(connection):
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATE_LOCK)))
        if not _has_namespace(connection):
            connection.execute(sa.schema.CreateSchema(NAMESPACE))
    if read_schema(connection, shown_place) == SCHEMA:
        return
    for module in _TABLE_MODULES:
        import_module(module)
    if not is_postgres(connection):
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")
    metadata.create_all(connection)
    connection.execute(schema_number.insert().values(number=SCHEMA))


def _table_names(connection: sa.Connection) -> set[str]:
    if not is_postgres(connection):
        return set(connection.scalars(sa.text("SELECT name FROM sqlite_master")))
    # pg_class and not the inspector: a role may not be allowed to see other schemas.
    query = (
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        f"WHERE nspname = '{NAMESPACE}'"
    )
    return set(connection.scalars(sa.text(query)))


def _is_ours(connection: sa.Connection, table_names: set[str]) -> bool:
    """Whether the tables are ours, or there are none and nobody else has claimed the file."""
    if schema_number.name in table_names:
        return True
    if table_names:
        return False
    return is_postgres(connection) or _application(connection) in (0, APPLICATION)


def _application(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql("PRAGMA application_id").scalar_one())


def _has_namespace(connection: sa.Connection) -> bool:
    """Whether the schema exists. A role that may use one may not be allowed to create one."""
    query = f"SELECT 1 FROM pg_namespace WHERE nspname = '{NAMESPACE}'"
    return connection.scalar(sa.text(query)) is not None

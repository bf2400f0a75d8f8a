"""The tables in PostgreSQL, as numbered migrations, and how a database is opened."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from mild.errors import DataFileError, MissingExtraError
from mild.gateway.database.address import Address
from mild.gateway.database.face import Database

if TYPE_CHECKING:
    from mild.gateway.database.postgres import PostgresDatabase

__all__ = ["MIGRATIONS", "SCHEMA", "connect_to", "open_postgres", "schema_of"]

# One at a time brings the tables up to date: "mild".
_LOCK = 0x6D696C64

# The place in this list is the number of the schema that a step leads to, from 1. Steps are only added.
# Money in billionths of a dollar; an allotment is what a worker holds and has not reported as spent.
MIGRATIONS = (
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
    CREATE TABLE salts (salt BYTEA NOT NULL);
    CREATE TABLE keys (
        name TEXT PRIMARY KEY, digest BYTEA NOT NULL UNIQUE, hint TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL, revoked DOUBLE PRECISION,
        budget_day BIGINT, budget_month BIGINT, requests_per_minute BIGINT
    );
    CREATE TABLE accounts (
        scope TEXT, period TEXT, spent BIGINT NOT NULL DEFAULT 0, lost BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (scope, period)
    );
    CREATE TABLE allotments (
        scope TEXT, period TEXT, owner TEXT, amount BIGINT NOT NULL,
        PRIMARY KEY (scope, period, owner)
    );
    CREATE INDEX allotments_of ON allotments (owner);
    CREATE TABLE owners (
        name TEXT PRIMARY KEY, host TEXT NOT NULL, pid BIGINT NOT NULL, started BIGINT NOT NULL,
        beat DOUBLE PRECISION NOT NULL, number BIGINT NOT NULL DEFAULT 0
    );
    CREATE TABLE slots (
        scope TEXT, second BIGINT, taken BIGINT NOT NULL, PRIMARY KEY (scope, second)
    );
    CREATE TABLE decisions (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, request_id TEXT NOT NULL UNIQUE,
        time DOUBLE PRECISION NOT NULL, key TEXT NOT NULL, asked TEXT NOT NULL, expert TEXT,
        chosen TEXT, probabilities TEXT, propensity DOUBLE PRECISION, expected_cost DOUBLE PRECISION,
        price DOUBLE PRECISION, tokens_in BIGINT, tokens_out BIGINT, latency_ms DOUBLE PRECISION,
        first_byte_ms DOUBLE PRECISION, overhead_ms DOUBLE PRECISION, status BIGINT NOT NULL,
        outcome TEXT NOT NULL, attempts BIGINT NOT NULL, streamed BIGINT NOT NULL, session TEXT,
        router TEXT NOT NULL, text TEXT, error TEXT, pinned_by TEXT
    );
    CREATE INDEX decisions_by_time ON decisions (time, id);
    CREATE TABLE minutes (
        minute BIGINT NOT NULL, expert TEXT NOT NULL, outcome TEXT NOT NULL, requests BIGINT NOT NULL,
        price DOUBLE PRECISION NOT NULL, tokens_in BIGINT NOT NULL, tokens_out BIGINT NOT NULL,
        latency_ms DOUBLE PRECISION NOT NULL, PRIMARY KEY (minute, expert, outcome)
    );
    CREATE TABLE routers (fingerprint TEXT PRIMARY KEY, experts TEXT NOT NULL);
    CREATE TABLE workers (pid TEXT PRIMARY KEY, time DOUBLE PRECISION NOT NULL, document TEXT NOT NULL);
    CREATE TABLE marks (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);
    """,
)
SCHEMA = len(MIGRATIONS)


def connect_to(address: Address, patience: float = 5.0) -> PostgresDatabase:
    """Go to the database, if its driver is installed; raises as ``postgres.connect`` does."""
    try:
        from mild.gateway.database.postgres import connect
    except ImportError as error:
        raise MissingExtraError(
            "a store in PostgreSQL needs psycopg; install it with: pip install "
            "'mild-learn[gateway,postgres]'"
        ) from error
    return connect(address, patience)


def open_postgres(address: Address, patience: float = 5.0) -> PostgresDatabase:
    """Go to the database, and make its tables or bring them up to date where needed.

    Raises
    ------
    DataFileError : it belongs to a newer mild or to something else
    DatabaseError : it cannot be used now
    """
    database = connect_to(address, patience)
    try:
        if schema_of(database, address) < SCHEMA:
            _migrate(database, address)
    except BaseException:
        database.close()
        raise
    return database


def schema_of(database: Database, address: Address) -> int:
    """Number of the schema, 0 where there is none; refuses a newer one and tables of others."""
    # Asked of tables: what the server remembers of names may be older than this transaction.
    tables = {
        row[0]
        for row in database.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname = 'mild'"
        ).rows
    }
    if tables and "schema_version" not in tables:
        raise DataFileError(
            f"{address.shown}: its schema mild belongs to something else; name another database."
        )
    if not tables:
        return 0
    version = int(database.execute("SELECT version FROM mild.schema_version").value)
    if version > SCHEMA:
        raise DataFileError(
            f"{address.shown}: it was written by a newer mild: schema {version}, this one knows "
            f"{SCHEMA}; upgrade with pip install --upgrade mild-learn, or name another database."
        )
    return version


def _migrate(database: Database, address: Address) -> None:
    """Take the steps that are missing, all or none; another replica may have taken them meanwhile."""
    with database.transaction():
        database.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        version = schema_of(database, address)
        if version == 0:
            _begin(database)
        for step in MIGRATIONS[version:]:
            database.execute(step)
        if version == 0:
            database.execute("INSERT INTO salts VALUES (?)", (secrets.token_bytes(32),))
            database.execute("INSERT INTO meta VALUES ('keys_version', 1)")
        database.execute("UPDATE schema_version SET version = ?", (SCHEMA,))


def _begin(database: Database) -> None:
    # Asked first: who may use a schema may not be allowed to make one.
    if not database.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'mild'").rows:
        database.execute("CREATE SCHEMA mild")
    database.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
    database.execute("INSERT INTO schema_version VALUES (0)")

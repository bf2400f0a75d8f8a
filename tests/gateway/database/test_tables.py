"""Numbered migrations: taken once, all or none, and never backwards."""

import threading

import pytest

from mild.errors import DataFileError
from mild.gateway.database import DatabaseError, tables
from mild.gateway.database.tables import SCHEMA, connect_to, open_postgres, schema_of


def version_of(postgres):
    database = connect_to(postgres.address)
    try:
        return schema_of(database, postgres.address)
    finally:
        database.close()


def test_an_empty_database_gets_its_tables_once_however_many_come(postgres):
    assert version_of(postgres) == 0
    errors = []

    def come():
        try:
            open_postgres(postgres.address).close()
        except DatabaseError as error:
            errors.append(error)

    threads = [threading.Thread(target=come) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert version_of(postgres) == SCHEMA
    assert len(postgres.query("SELECT salt FROM salts")) == 1
    assert postgres.query("SELECT version FROM schema_version") == [(SCHEMA,)]


def test_a_new_step_is_taken_and_what_is_there_stays(postgres, monkeypatch):
    open_postgres(postgres.address).close()
    salt = postgres.query("SELECT salt FROM salts")
    steps = (
        *tables.MIGRATIONS,
        "ALTER TABLE keys ADD COLUMN mood TEXT; CREATE TABLE more (x TEXT)",
    )
    monkeypatch.setattr(tables, "MIGRATIONS", steps)
    monkeypatch.setattr(tables, "SCHEMA", len(steps))
    open_postgres(postgres.address).close()
    open_postgres(postgres.address).close()
    assert version_of(postgres) == len(steps)
    assert postgres.query("SELECT salt FROM salts") == salt
    assert postgres.query("SELECT mood FROM keys") == []


def test_a_step_that_fails_leaves_everything_as_it_was(postgres, monkeypatch):
    open_postgres(postgres.address).close()
    steps = (*tables.MIGRATIONS, "CREATE TABLE more (x TEXT); CREATE TABLE keys (x TEXT)")
    monkeypatch.setattr(tables, "MIGRATIONS", steps)
    monkeypatch.setattr(tables, "SCHEMA", len(steps))
    with pytest.raises(DatabaseError, match='"keys" already exists'):
        open_postgres(postgres.address)
    monkeypatch.undo()
    assert version_of(postgres) == SCHEMA
    assert postgres.query("SELECT count(*) FROM pg_class WHERE relname = 'more'") == [(0,)]


def test_a_newer_schema_is_refused_and_left_alone(postgres):
    open_postgres(postgres.address).close()
    postgres.query(f"UPDATE schema_version SET version = {SCHEMA + 1}")
    with pytest.raises(DataFileError) as caught:
        open_postgres(postgres.address)
    said = str(caught.value)
    assert f"written by a newer mild: schema {SCHEMA + 1}, this one knows {SCHEMA}" in said
    assert postgres.query("SELECT version FROM schema_version") == [(SCHEMA + 1,)]


def test_a_schema_of_something_else_is_refused_and_left_alone(postgres):
    postgres.query("CREATE SCHEMA mild; CREATE TABLE mild.mine (x TEXT)")
    with pytest.raises(DataFileError, match="its schema mild belongs to something else"):
        open_postgres(postgres.address)
    assert postgres.query("SELECT relname FROM pg_class WHERE relname = 'mine'") == [("mine",)]


def test_a_role_that_may_not_make_schemas_can_use_one_that_was_made_for_it(postgres):
    from mild.gateway.database import read_address

    postgres.query("DROP ROLE IF EXISTS guest")
    postgres.query("CREATE ROLE guest LOGIN PASSWORD 'g'")
    try:
        postgres.query("CREATE SCHEMA mild AUTHORIZATION guest")
        url = f"postgresql://guest:g@127.0.0.1:{postgres.server.port}/test"
        open_postgres(read_address(url)).close()
        assert version_of(postgres) == SCHEMA
    finally:
        postgres.query("DROP SCHEMA IF EXISTS mild CASCADE; DROP ROLE guest")


def test_tables_stand_in_a_schema_of_their_own(postgres):
    open_postgres(postgres.address).close()
    schemas = postgres.query(
        "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname NOT LIKE 'pg_%' "
        "AND schemaname <> 'information_schema'"
    )
    assert schemas == [("mild",)]

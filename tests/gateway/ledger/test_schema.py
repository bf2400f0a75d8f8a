"""Which files are ours, and how old ones are brought up to date."""

import os
import sqlite3
import stat

import pytest

from ledger_cases import EXPERTS, Keep, record, write_all, writing
from mild.errors import DataFileError
from mild.gateway.database import DatabaseError
from mild.gateway.ledger import LedgerWriter, read_ledger, schema


def change(path, *statements):
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def refusals(path):
    """What the writer and a reader say to a file."""
    with pytest.raises(DataFileError) as told:
        LedgerWriter(Keep(path), EXPERTS).start()
    yield str(told.value)
    with pytest.raises(DataFileError) as told:
        list(read_ledger(path))
    yield str(told.value)


def test_a_newer_schema_is_refused_in_a_sentence(tmp_path):
    path = write_all(tmp_path / "l.db", [record()])
    change(path, "PRAGMA user_version = 99")
    for sentence in refusals(path):
        assert "written by a newer mild: schema 99, this one knows 1" in sentence


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "l.db"
    change(path, "CREATE TABLE mine (x)", "INSERT INTO mine VALUES (1)")
    before = path.read_bytes()
    for sentence in refusals(path):
        assert "is a database of something else" in sentence
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "l.db"
    path.write_bytes(b"hello, I am a text\n" * 100)
    for sentence in refusals(path):
        assert "file is not a database" in sentence
    assert path.read_bytes() == b"hello, I am a text\n" * 100


def test_a_folder_is_called_one(tmp_path):
    with pytest.raises(DatabaseError, match="is a folder; name a file in it"):
        schema.open_to_write(tmp_path, 0.1)


def test_a_file_that_may_only_be_read_is_called_one(tmp_path, monkeypatch):
    path = write_all(tmp_path / "l.db", [record()])
    change(path, "PRAGMA user_version = 0")
    # Root may write everywhere: SQLite and the system answer as for others.
    monkeypatch.setattr(os, "access", lambda place, mode: os.fspath(place) != str(path))

    def fail(*_):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(schema, "_migrate", fail)
    with pytest.raises(DatabaseError, match=r"l\.db and its folder must be writable"):
        schema.open_to_write(path, 0.1)


def test_reading_asks_for_a_file_with_something_in_it(tmp_path):
    with pytest.raises(DataFileError, match="is no file"):
        list(read_ledger(tmp_path / "no.db"))
    (tmp_path / "empty.db").touch()
    with pytest.raises(DataFileError, match="is empty"):
        list(read_ledger(tmp_path / "empty.db"))


def test_an_older_file_is_brought_up_to_date_and_keeps_its_rows(tmp_path, monkeypatch):
    path = write_all(tmp_path / "l.db", [record(0)])
    steps = (*schema.MIGRATIONS, "ALTER TABLE decisions ADD COLUMN mood TEXT")
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    monkeypatch.setattr(schema, "SCHEMA", 2)
    with pytest.raises(DataFileError, match="schema 1, older than 2"):
        list(read_ledger(path))
    with writing(path) as writer:
        writer.write(record(1))
    assert [entry.request_id for entry in read_ledger(path)] == ["r0", "r1"]
    database = sqlite3.connect(path)
    assert database.execute("SELECT mood FROM decisions").fetchall() == [(None,), (None,)]
    assert database.execute("PRAGMA user_version").fetchone() == (2,)
    database.close()


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = write_all(tmp_path / "l.db", [record(0)])
    steps = (
        *schema.MIGRATIONS,
        "ALTER TABLE decisions ADD COLUMN mood TEXT; CREATE TABLE decisions (x)",
    )
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    monkeypatch.setattr(schema, "SCHEMA", 2)
    with pytest.raises(DatabaseError, match="already exists"):
        schema.open_to_write(path, 1.0)
    monkeypatch.undo()
    assert [entry.request_id for entry in read_ledger(path)] == ["r0"]


def test_the_ledger_is_for_its_owners_eyes(tmp_path):
    before = os.umask(0o022)
    try:
        with writing(tmp_path / "l.db") as writer:
            writer.write(record())
            assert writer.flush(5.0)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes["l.db"] == 0o600
    assert set(modes.values()) == {0o600}
    assert "l.db-wal" in modes


def test_the_mode_of_a_ledger_that_is_there_is_left_alone(tmp_path):
    path = write_all(tmp_path / "l.db", [record()])
    os.chmod(path, 0o640)
    write_all(path, [record()])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640

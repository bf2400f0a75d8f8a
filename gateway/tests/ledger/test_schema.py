"""Which files are ours."""

import os
import sqlite3
import stat

import pytest

from ledger_cases import EXPERTS, Keep, record, write_all, writing
from mild.errors import DataFileError
from mild_gateway.ledger import LedgerWriter, read_ledger


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


def test_another_schema_is_refused_in_a_sentence(tmp_path):
    path = write_all(tmp_path / "l.db", [record()])
    change(path, "UPDATE mild_schema SET number = 9999")
    for sentence in refusals(path):
        assert "schema 9999" in sentence


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "l.db"
    change(path, "CREATE TABLE mine (x)", "INSERT INTO mine VALUES (1)")
    before = path.read_bytes()
    for sentence in refusals(path):
        assert "it belongs to another program" in sentence
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "l.db"
    path.write_bytes(b"hello, I am a text\n" * 100)
    for sentence in refusals(path):
        assert "is not an SQLite file" in sentence
    assert path.read_bytes() == b"hello, I am a text\n" * 100


def test_reading_asks_for_a_file_with_something_in_it(tmp_path):
    with pytest.raises(DataFileError, match="is not a file"):
        list(read_ledger(tmp_path / "no.db"))
    (tmp_path / "empty.db").touch()
    with pytest.raises(DataFileError, match="is empty"):
        list(read_ledger(tmp_path / "empty.db"))


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

"""The store's file: made for its owner alone, and refused where it is another's."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading

import pytest

from mild.errors import DataFileError
from mild.gateway.access.keys import Key, digest_of, hint_of, new_key
from mild.gateway.access.owners import new_owner
from mild.gateway.access.sqlite import SqliteStore, schema
from mild.gateway.access.store import AccountKey, Exchange, StoreError

ACCOUNT = AccountKey("*", "2026-11-15")


@pytest.fixture
def store(tmp_path):
    opened = SqliteStore(str(tmp_path / "mild.sqlite"))
    opened.open()
    yield opened
    opened.close()


def key_of(store, name, **more):
    text = new_key()
    return text, Key(name, digest_of(text, store.salt()), hint_of(text), 1.0, **more)


def test_the_file_is_its_owners_alone_and_holds_no_key(tmp_path, store):
    text, key = key_of(store, "a", budget_day=5)
    store.add_key(key)
    assert store.read_keys() == [key]
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert text.encode() not in file.read_bytes()


def test_a_store_that_others_hold_is_trouble_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "_BUSY_SECONDS", 0.05)
    store = SqliteStore(str(tmp_path / "mild.sqlite"))
    store.open()
    other = sqlite3.connect(tmp_path / "mild.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.exchange(Exchange(new_owner(), 1.0))
    other.execute("ROLLBACK")
    other.close()
    assert store.exchange(Exchange(new_owner(), 1.0)).keys == []
    store.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: file.write_bytes(b"no database at all" * 100), "not an SQLite file"),
        (lambda file: _database(file, "CREATE TABLE a (b)"), "a database of something else"),
        (
            lambda file: _database(
                file, f"PRAGMA application_id = {schema._APPLICATION}", "PRAGMA user_version = 99"
            ),
            "written by a newer mild",
        ),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, make, said):
    file = tmp_path / "x.sqlite"
    make(file)
    before = file.read_bytes()
    with pytest.raises(DataFileError, match=said):
        SqliteStore(str(file)).open()
    if said != "a database of something else":
        assert file.read_bytes() == before


def _database(file, *statements):
    connection = sqlite3.connect(file)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("path", "said"), [("none/x.sqlite", r"no folder .*none; make it"), (".", "it is a folder")]
)
def test_a_place_where_no_file_can_be_is_trouble(tmp_path, path, said):
    with pytest.raises(StoreError, match=said):
        SqliteStore(str(tmp_path / path)).open()


@pytest.mark.parametrize("closed", ["mild.sqlite", "."])
def test_a_file_that_may_only_be_read_is_trouble(tmp_path, monkeypatch, closed):
    path = tmp_path / "mild.sqlite"
    store = SqliteStore(str(path))
    store.open()
    store.close()
    # Root may write everywhere: the system is asked, and answers as for others.
    kept = tmp_path / closed
    monkeypatch.setattr(os, "access", lambda place, mode: os.fspath(place) != str(kept))
    with pytest.raises(StoreError, match="the file and its folder must be writable"):
        store.open()


def test_a_new_file_that_another_worker_is_making_is_waited_for(tmp_path):
    path = str(tmp_path / "mild.sqlite")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.2, lambda: other.execute("ROLLBACK"))
    timer.start()
    store = SqliteStore(path)
    try:
        store.open()
        assert store.read_keys() == []
    finally:
        timer.join()
        other.close()
        store.close()


def test_a_file_of_an_older_mild_is_brought_up_to_date_and_keeps_its_keys(tmp_path, monkeypatch):
    path = str(tmp_path / "mild.sqlite")
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
    monkeypatch.setattr(schema, "SCHEMA", 1)
    old = SqliteStore(path)
    old.open()
    key = key_of(old, "a")[1]
    old.add_key(key)
    salt = old.salt()
    old.close()
    monkeypatch.undo()
    store = SqliteStore(path)
    store.open()
    assert store.read_keys() == [key]
    assert store.salt() == salt
    assert store.exchange(Exchange(new_owner(), 1.0, number=1)).lost
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA,)
    connection.close()

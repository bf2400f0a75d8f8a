"""The store's file: made for its owner alone, and refused where it is another's."""

from __future__ import annotations

import sqlite3
import stat
import threading
import time

import pytest

from mild.exceptions import DataFileError, InvalidInputError
from mild.gateway.access.keys import Key, digest_of, hint_of, new_key
from mild.gateway.access.owners import new_owner
from mild.gateway.access.sqlite import SqliteStore, schema
from mild.gateway.access.store import AccountKey, Draw, Exchange, Report, StoreError

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


def test_a_name_is_used_once_until_it_is_revoked(store):
    store.add_key(key_of(store, "a")[1])
    with pytest.raises(InvalidInputError, match="'a' has one"):
        store.add_key(key_of(store, "a")[1])
    store.revoke_key("a", 7.0)
    assert store.read_keys()[0].revoked == 7.0
    with pytest.raises(InvalidInputError, match=r"that of a key \(none\); got 'a'"):
        store.revoke_key("a", 8.0)
    store.add_key(key_of(store, "a")[1])
    assert [key.revoked for key in store.read_keys()] == [None]


def test_keys_come_with_an_exchange_when_they_have_changed(store):
    owner = new_owner()
    first = store.exchange(Exchange(owner, 1.0))
    assert first.keys == []
    assert first.salt == store.salt()
    assert store.exchange(Exchange(owner, 1.0, keys_version=first.keys_version)).keys is None
    store.add_key(key_of(store, "a")[1])
    again = store.exchange(Exchange(owner, 1.0, keys_version=first.keys_version))
    assert [key.name for key in again.keys] == ["a"]


def test_an_exchange_happens_as_a_whole_or_not_at_all(store, monkeypatch):
    owner = new_owner()
    store.exchange(Exchange(owner, 1.0))

    def fail(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("mild.gateway.access.sqlite.store.grant", fail)
    with pytest.raises(StoreError, match="disk is full"):
        store.exchange(
            Exchange(owner, 1.0, reports=[Report(ACCOUNT, 5, 0, 5)], draws=[Draw(ACCOUNT, 9, 1, 0)])
        )
    monkeypatch.undo()
    assert store.totals([ACCOUNT.period]) == {}


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


def test_workers_that_start_at_once_make_one_store(tmp_path):
    salts, errors = [], []

    def begin():
        store = SqliteStore(str(tmp_path / "mild.sqlite"))
        try:
            store.open()
            salts.append(store.salt())
            store.close()
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(salts) == 8
    assert len(set(salts)) == 1


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


@pytest.mark.parametrize("path", ["none/x.sqlite", "."])
def test_a_place_where_no_file_can_be_is_trouble(tmp_path, path):
    with pytest.raises(StoreError):
        SqliteStore(str(tmp_path / path)).open()


def test_a_closed_store_says_so(tmp_path):
    with pytest.raises(StoreError, match="not open"):
        SqliteStore(str(tmp_path / "a")).read_keys()


def test_an_exchange_costs_little(store):
    owner = new_owner()
    draw = Draw(ACCOUNT, 10**12, 1, 0)
    start = time.perf_counter()
    for _ in range(100):
        store.exchange(Exchange(owner, 1.0, reports=[Report(ACCOUNT, 1, 1, 0)], draws=[draw]))
    # Far above what it takes: a plan without an index would show.
    assert (time.perf_counter() - start) / 100 < 0.1


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

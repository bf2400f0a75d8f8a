"""Old rows go, in bites, by days and by bytes."""

import sqlite3

import pytest
import sqlalchemy as sa

from ledger_cases import record, write_all, writing
from mild_gateway.ledger import LedgerWriter, read_ledger
from mild_gateway.ledger.records import decisions
from mild_gateway.ledger.retention import DAY, PAUSE, PORTION, Retention
from mild_gateway.ledger.store import LedgerStore, key_bytes
from waiting import PATIENCE, wait_until

NOW = 2_000_000_000.0


def count(path):
    database = sqlite3.connect(path)
    try:
        return database.execute("SELECT COUNT(*), MIN(time) FROM decisions").fetchone()
    finally:
        database.close()


def test_rows_older_than_the_days_go_and_the_others_stay(tmp_path):
    ages = [40.0, 31.0, 29.0, 1.0, 0.0]
    path = write_all(
        tmp_path / "l.db", [record(i, time=NOW - age * DAY) for i, age in enumerate(ages)]
    )
    with writing(path, keep_days=30, clock=lambda: NOW) as writer:
        writer.write(record(9, time=NOW))
        assert writer.flush()
    assert [entry.request_id for entry in read_ledger(path)] == ["r2", "r3", "r4", "r9"]
    database = sqlite3.connect(path)
    assert database.execute("SELECT SUM(requests) FROM minutes").fetchone() == (4,)
    database.close()


def test_a_bite_is_small_and_the_next_look_comes_later(tmp_path):
    rows = [record(i, time=0.0) for i in range(3 * PORTION)]
    path = write_all(tmp_path / "l.db", [*rows, record("new", time=NOW)])
    store = LedgerStore(path, 1.0)
    keep = Retention(days=1, bytes=None)
    left = []
    while keep.sweep(store, NOW, 0):
        left.append(count(path)[0])
    assert left[:3] == [2 * PORTION + 1, PORTION + 1, 1]
    assert len(left) <= 4
    store.append([record("late", time=0.0)], {})
    assert not keep.sweep(store, NOW + PAUSE / 2, 0)
    assert keep.sweep(store, NOW + PAUSE, 0)
    assert keep.sweep(store, NOW + PAUSE, 0) is False
    store.close()


@pytest.mark.parametrize("limit", [1_000_000, 1_500_000])
def test_the_file_stays_within_its_bytes_and_loses_the_oldest(tmp_path, limit, monkeypatch):
    looks = []
    work = LedgerWriter._work

    def noted(writer):
        work(writer)
        looks.append(writer.written)

    monkeypatch.setattr(LedgerWriter, "_work", noted)
    path = tmp_path / "l.db"
    with writing(path, max_bytes=limit, keep_text=True) as writer:
        for number in range(6000):
            writer.write(record(number, time=NOW + number, text="x" * 500))
        assert writer.flush(PATIENCE)
        # A whole look, which takes away what is too much.
        known = len(looks)
        wait_until(lambda: len(looks) >= known + 2)
        writer.write(record(6000, time=NOW + 6000))
        assert writer.flush()
    # The log beside it was taken over when the last process left.
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size <= limit
    left = list(read_ledger(path))
    assert len(left) * 500 > 0.3 * limit
    assert left[-1].request_id == "r6000"
    assert left[0].time > NOW + 1000


def test_taking_rows_away_does_not_stall_the_writer(tmp_path, monkeypatch):
    rows = [record(i, time=0.0) for i in range(10_000)]
    path = write_all(tmp_path / "l.db", [*rows, record("last", time=NOW)])
    drop, append = LedgerStore.drop_before, LedgerStore.append
    bites, came, written = [], [], []

    def bite(store, before, rows):
        bites.append(drop(store, before, rows))
        if bites[-1] and len(bites) % 10 == 0:
            came.append(len(bites))
            writer.write(record(f"new{len(bites)}", time=NOW))
        return bites[-1]

    def write(store, records, experts):
        append(store, records, experts)
        written.append(len(bites))

    monkeypatch.setattr(LedgerStore, "drop_before", bite)
    monkeypatch.setattr(LedgerStore, "append", write)
    with writing(path, keep_days=1, clock=lambda: NOW) as writer:
        writer.write(record("new", time=NOW))
        wait_until(lambda: sum(bites) >= 10_000 and len(written) > len(came))
    # What comes during a bite, which is small, is in the file before the next.
    assert max(bites) == PORTION
    assert written == [0, *came]
    assert count(path)[0] == 2 + len(came)


def sweep_all(keep, place, now=NOW):
    """Delete everything that is due; ids of the rows that are left."""
    store = LedgerStore(place)
    while keep.sweep(store, now, 0):
        pass
    store.close()
    return {entry.request_id for entry in read_ledger(place)}


@pytest.mark.parametrize(
    ("outcome", "count", "limit"), [("ok", 400, 1_000_000), ("refused", 2000, 600_000)]
)
def test_a_key_pushes_out_its_own_rows_and_nobody_elses(ledger_place, outcome, count, limit):
    alice = [record(f"a{i}", time=NOW + i, key="alice", text="x" * 5000) for i in range(40)]
    status = 200 if outcome == "ok" else 402
    bob = [
        record(
            f"b{i}", time=NOW + i / 100, key="bob", text="x" * 5000, outcome=outcome, status=status
        )
        for i in range(count)
    ]
    # The rows of the other are older, in between and newer.
    rows = [*alice[:15], *bob[: count // 2], *alice[15:30], *bob[count // 2 :], *alice[30:]]
    write_all(ledger_place, rows, keep_text=True)
    left = sweep_all(Retention(days=None, bytes=limit), ledger_place)
    assert left >= {entry.request_id for entry in alice}
    # Of the key that holds most, the newest stay.
    assert f"rb{count - 1}" in left
    assert "rb0" not in left
    assert len(left) > 60


def test_two_keys_share_a_full_ledger(ledger_place, monkeypatch):
    monkeypatch.setattr("mild_gateway.ledger.retention.PORTION", 20)
    rows = []
    for i in range(400):
        rows.append(record(f"a{i}", time=NOW + i, key="alice", text="x" * 5000))
        rows.append(record(f"b{i}", time=NOW + i, key="bob", text="x" * 2500))
    write_all(ledger_place, rows, keep_text=True)
    sweep_all(Retention(days=None, bytes=1_000_000), ledger_place)
    store = LedgerStore(ledger_place)
    with store.database.transaction() as connection:
        sizes = dict(map(tuple, connection.execute(sa.select(key_bytes))))
    store.close()
    # Alice has lost rows until she held no more than Bob.
    assert 0.8 < sizes["alice"] / sizes["bob"] < 1.2


def test_rows_that_somebody_else_deleted_do_not_stop_retention(ledger_place):
    rows = [
        record(f"{key}{i}", time=NOW + i, key=key, text="x" * 5000)
        for key in "ab"
        for i in range(300)
    ]
    write_all(ledger_place, rows, keep_text=True)
    store = LedgerStore(ledger_place)
    with store.database.transaction() as connection:
        connection.execute(decisions.delete().where(decisions.c.key == "a"))
        connection.execute(key_bytes.update().where(key_bytes.c.key == "a").values(bytes=10**9))
    keep = Retention(days=None, bytes=1_000_000)
    for look in range(5):
        while keep.sweep(store, NOW + look * PAUSE, 0):
            pass
    store.close()
    left = {entry.request_id for entry in read_ledger(ledger_place)}
    assert 50 < len(left) < 250
    assert "rb299" in left


def test_texts_are_measured_in_bytes(ledger_place):
    rows = [record(i, time=NOW + i, text="\U0001f600" * 8000) for i in range(100)]
    write_all(ledger_place, rows, keep_text=True)
    assert len(sweep_all(Retention(days=None, bytes=2_000_000), ledger_place)) > 30

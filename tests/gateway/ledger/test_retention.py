"""Old rows go, in bites, by days and by bytes."""

import sqlite3
import time

import pytest

from ledger_cases import record, write_all, writing
from mild.gateway.ledger import read_ledger
from mild.gateway.ledger.store import DAY, PAUSE, PORTION, LedgerStore, Retention

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
    path = write_all(tmp_path / "l.db", [record(i, time=0.0) for i in range(3 * PORTION)])
    store = LedgerStore(path, False, 1.0)
    keep = Retention(days=1, bytes=None)
    left = []
    while keep.sweep(store, NOW, 0):
        left.append(count(path)[0])
    assert left[:3] == [2 * PORTION, PORTION, 0]
    assert len(left) <= 4
    store.append([record("late", time=0.0)], {})
    assert not keep.sweep(store, NOW + PAUSE / 2, 0)
    assert keep.sweep(store, NOW + PAUSE, 0)
    # A clock that was set back does not put retention off for ever.
    assert keep.sweep(store, NOW + PAUSE, 0) is False
    store.append([record("later", time=-9 * DAY)], {})
    assert keep.sweep(store, NOW - 9 * PAUSE, 0)
    store.close()


@pytest.mark.parametrize("limit", [400_000, 1_000_000])
def test_the_file_stays_within_its_bytes_and_loses_the_oldest(tmp_path, limit):
    path = tmp_path / "l.db"
    with writing(path, max_bytes=limit, keep_text=True) as writer:
        for number in range(6000):
            writer.write(record(number, time=NOW + number, text="x" * 500))
        assert writer.flush(20)
        time.sleep(1.0)
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
    path = write_all(tmp_path / "l.db", [record(i, time=0.0) for i in range(30_000)])
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
        end = time.monotonic() + 60
        while (sum(bites) < 30_000 or len(written) <= len(came)) and time.monotonic() < end:
            time.sleep(0.02)
    # What comes during a bite, which is small, is in the file before the next.
    assert max(bites) == PORTION
    assert written == [0, *came]
    assert count(path) == (1 + len(came), NOW)

"""Old rows go, in bites, by days and by bytes."""

import random
import sqlite3

import pytest

from ledger_cases import record, write_all, writing
from mild_gateway.ledger import LedgerWriter, read_ledger
from mild_gateway.ledger.store import (
    DAY,
    PAUSE,
    PORTION,
    REFUSED_BYTES,
    REFUSED_SHARE,
    SETTLED_SECONDS,
    LedgerStore,
    Retention,
)
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
    path = write_all(tmp_path / "l.db", [*rows, record("new", time=NOW - 2 * SETTLED_SECONDS)])
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
    # A clock that was set back does not put retention off for ever.
    assert keep.sweep(store, NOW + PAUSE, 0) is False
    store.append([record("later", time=-9 * DAY)], {})
    assert keep.sweep(store, NOW - 9 * PAUSE, 0)
    store.close()


@pytest.mark.parametrize("limit", [400_000, 1_000_000])
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
    rows = [record(i, time=0.0) for i in range(30_000)]
    path = write_all(tmp_path / "l.db", [*rows, record("last", time=NOW - 2 * SETTLED_SECONDS)])
    drop, append = LedgerStore.drop_before, LedgerStore.append
    bites, came, written = [], [], []

    def bite(store, before, now, rows):
        bites.append(drop(store, before, now, rows))
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
        wait_until(lambda: sum(bites) >= 30_000 and len(written) > len(came))
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


@pytest.mark.parametrize("outcome", ["refused", "failed", "cancelled"])
def test_rows_without_an_answer_push_out_no_answered_ones(ledger_place, outcome):
    limit = 1_000_000
    answered = [record(i, time=NOW - 9 + i / 100, text="x" * 5000) for i in range(60)]
    refused = [
        record(
            f"no{i}", time=NOW + i / 1000, outcome=outcome, status=499, asked="m" * 9000, text="x"
        )
        for i in range(3000)
    ]
    # Another key's rows come before, between and after.
    rows = [*answered[:20], *refused[:1500], *answered[20:40], *refused[1500:], *answered[40:]]
    write_all(ledger_place, rows, keep_text=True)
    left = sweep_all(Retention(days=None, bytes=limit), ledger_place)
    assert left >= {entry.request_id for entry in answered}
    # The newest of them stay, at least as far as their share goes.
    share = int(limit * REFUSED_SHARE / REFUSED_BYTES)
    assert left >= {f"rno{i}" for i in range(3000 - share, 3000)}
    assert "rno0" not in left
    # Of answered rows too many, the oldest go as ever, and not more than it takes.
    texts = [random.Random(i).randbytes(2500).hex() for i in range(250)]
    late = [record(f"late{i}", time=NOW + 9, text=text) for i, text in enumerate(texts)]
    write_all(ledger_place, late, keep_text=True)
    left = sweep_all(Retention(days=None, bytes=limit), ledger_place)
    assert "r0" not in left
    assert "rlate249" in left
    assert sum(name.startswith("rlate") for name in left) > 80


def test_texts_are_measured_in_bytes(ledger_place):
    rows = [record(i, time=NOW + i, text="\U0001f600" * 8000) for i in range(100)]
    write_all(ledger_place, rows, keep_text=True)
    assert len(sweep_all(Retention(days=None, bytes=2_000_000), ledger_place)) > 30


def test_refused_rows_are_found_by_their_index(tmp_path):
    path = write_all(tmp_path / "l.db", [record()])
    found = []
    store = LedgerStore(path)
    store.database._raw.set_trace_callback(found.append)
    store.drop_excess(0, 0, 10, 10)
    statement = next(text for text in found if text.startswith("DELETE"))
    plan = store.database._raw.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    store.close()
    assert any("decisions_refused" in line[3] for line in plan)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_jumps_a_year_and_back_deletes_no_row(ledger_place, restarted):
    write_all(ledger_place, [record(i, time=NOW - i * DAY) for i in range(5)])
    keep = Retention(days=30, bytes=None)
    if not restarted:
        assert len(sweep_all(keep, ledger_place)) == 5
    store = LedgerStore(ledger_place)
    for later in (0.0, 60.0, SETTLED_SECONDS - PAUSE):
        now = NOW + 365 * DAY + later
        # As the writer does: the first look comes before the first row of the new time.
        keep.watch(store, now)
        store.append([record(f"future{later:g}", time=now)], {})
        assert not keep.sweep(store, now, 1)
    # Back again: retention goes on, also for the rows from the future.
    store.append([record("back", time=NOW + 20 * DAY)], {})
    for step in range(80):
        while keep.sweep(store, NOW + step * DAY / 2, 0):
            pass
        if step == 50:
            assert len(list(read_ledger(ledger_place))) == 9
    store.close()
    assert [entry.request_id for entry in read_ledger(ledger_place)] == ["rback"]


def test_a_clock_that_stays_where_it_jumped_is_believed_after_an_hour(ledger_place):
    write_all(ledger_place, [record(i, time=NOW - i * DAY) for i in range(5)])
    keep = Retention(days=3.5, bytes=None)
    later = NOW + 2 * DAY
    assert len(sweep_all(keep, ledger_place, later)) == 5
    assert len(sweep_all(keep, ledger_place, later + SETTLED_SECONDS - 1)) == 5
    left = sweep_all(keep, ledger_place, later + SETTLED_SECONDS + PAUSE)
    assert left == {"r0", "r1"}


def test_the_writer_believes_no_clock_that_is_wrong_when_it_starts(tmp_path):
    path = write_all(tmp_path / "l.db", [record(0, time=NOW)])
    future = NOW + 365 * DAY
    with writing(path, keep_days=30, clock=lambda: future) as writer:
        writer.write(record(1, time=future))
        assert writer.flush()
    assert [entry.request_id for entry in read_ledger(path)] == ["r0", "r1"]


def test_a_restart_soon_after_a_jump_of_the_clock_deletes_no_row(ledger_place):
    future = NOW + 365 * DAY
    write_all(ledger_place, [record(i, time=NOW - i * DAY) for i in range(5)])
    write_all(ledger_place, [record("future", time=future)])
    keep = Retention(days=30, bytes=None)
    assert len(sweep_all(keep, ledger_place, future + 60.0)) == 6

"""Records go in without waiting, and come out whatever happens to the file."""

import sqlite3
import threading
import tracemalloc

import pytest

from ledger_cases import EXPERTS, Keep, record, write_all, writing
from mild.errors import DataFileError
from mild_gateway.ledger import LedgerWriter, read_ledger
from mild_gateway.ledger.reading import read_experts
from mild_gateway.ledger.writer import INTERVAL, RECORD_BYTES, WAITING_BYTES
from waiting import wait_until


def ids(path):
    return sorted(int(entry.request_id[1:]) for entry in read_ledger(path))


def test_what_is_written_is_in_the_file_at_the_next_look_within_half_a_second(tmp_path):
    assert INTERVAL <= 0.5
    with writing(tmp_path / "l.db") as writer:
        writer.write(record(0))
        assert writer.flush()
        # Also if nobody asks for it.
        writer.write(record(1))
        wait_until(lambda: ids(tmp_path / "l.db") == [0, 1])
        wait_until(lambda: writer.waiting == 0)
        assert (writer.written, writer.waiting, writer.dropped, writer.trouble) == (2, 0, 0, None)


def test_closing_writes_what_waits_and_later_records_are_dropped(ledger_place):
    with writing(ledger_place) as writer:
        for number in range(3000):
            writer.write(record(number))
    assert ids(ledger_place) == list(range(3000))
    writer.write(record(3000))
    assert writer.dropped == 1


def test_without_a_path_nothing_is_written(tmp_path):
    with writing(None) as writer:
        writer.write(record())
        assert writer.flush()
    assert (writer.written, writer.dropped) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_full_queue_drops_and_counts_and_never_waits(ledger_place):
    writer = LedgerWriter(Keep(ledger_place), EXPERTS, max_waiting_bytes=100 * RECORD_BYTES)
    # Nobody takes records yet: who waited for that would wait for ever.
    for number in range(20_000):
        writer.write(record(number))
    assert (writer.waiting, writer.dropped) == (100, 19_900)
    writer.start()
    assert writer.flush()
    writer.close()
    assert ids(ledger_place) == list(range(100))


def test_a_locked_file_is_told_and_waited_for(tmp_path, caplog):
    path = tmp_path / "l.db"
    with writing(path) as writer:
        writer.write(record(0))
        assert writer.flush()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writer.write(record(1))
        assert writer.waiting == 1
        wait_until(lambda: writer.trouble == "database is locked")
        assert not writer.flush(0.1)
        other.execute("ROLLBACK")
        other.close()
        assert writer.flush()
        wait_until(lambda: writer.trouble is None)
    assert ids(path) == [0, 1]
    assert [entry.getMessage() for entry in caplog.records] == [
        "the ledger cannot be written: database is locked; rows wait in memory.",
        "the ledger can be written again.",
    ]


def test_what_waits_for_a_locked_file_is_bounded_in_bytes(tmp_path):
    path, bound = tmp_path / "l.db", 2_000_000
    write_all(path, [record(0)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with writing(path, max_waiting_bytes=bound, keep_text=True) as writer:
        tracemalloc.start()
        try:
            for number in range(1, 1001):
                writer.write(record(number, text="\U0001f642" * 100_000))
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert 0.9 * bound < writer.waiting_bytes <= bound
        assert held < 1.2 * bound
        waiting = writer.waiting
        assert 10 < waiting < 1000
        assert writer.dropped == 1000 - waiting
        assert writer.state()["waiting_bytes"] == writer.waiting_bytes
        other.execute("ROLLBACK")
        other.close()
        assert writer.flush()
        assert writer.waiting_bytes == 0
        # There is room again.
        writer.write(record(1001))
        assert writer.flush()
    assert ids(path) == [0, *range(1, waiting + 1), 1001]


def test_64_megabytes_wait_at_most():
    assert WAITING_BYTES == 64_000_000


def test_a_file_locked_at_the_start_does_not_stop_the_start(tmp_path):
    path = tmp_path / "l.db"
    write_all(path, [record(0)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with writing(path) as writer:
        assert writer.trouble == "database is locked"
        writer.write(record(1))
        other.execute("ROLLBACK")
        other.close()
        assert writer.flush()
    assert ids(path) == [0, 1]


@pytest.mark.parametrize(("count", "said"), [(1, "1 row was not"), (1200, "1,200 rows were not")])
def test_rows_that_are_lost_at_the_end_are_counted_in_the_log(tmp_path, caplog, count, said):
    path = tmp_path / "l.db"
    write_all(path, [record(0)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writer = LedgerWriter(Keep(path), EXPERTS)
    writer.start()
    for number in range(1, count + 1):
        writer.write(record(number))
    writer.close(0.1)
    other.close()
    assert f"{said} written to the ledger: database is locked." in caplog.text
    assert writer.dropped == count


def test_a_value_that_does_not_fit_costs_only_its_own_record(ledger_place):
    strange = [
        record(2, tokens_in=2**80),
        record(4, expert=object()),
        record(6, probabilities=["x"]),
        record(8, outcome=None),
    ]
    path = ledger_place
    with writing(path) as writer:
        for number in range(10):
            writer.write(record(number) if number not in (2, 4, 6, 8) else strange[number // 2 - 1])
        assert writer.flush()
        assert (writer.written, writer.dropped) == (6, 4)
    assert ids(path) == [0, 1, 3, 5, 7, 9]


def test_an_error_that_nobody_has_thought_of_does_not_end_the_thread(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("mild_gateway.ledger.writer.REST", 0.01)

    def fail(*_):
        raise OverflowError("too large")

    with writing(tmp_path / "l.db") as writer:
        with monkeypatch.context() as patch:
            patch.setattr(type(writer._retention), "sweep", fail)
            # The log follows the state.
            wait_until(lambda: writer.trouble == "too large" and "too large" in caplog.text)
        writer.write(record(1))
        assert writer.flush()
        assert ids(tmp_path / "l.db") == [1]


def test_the_folder_must_exist(tmp_path):
    writer = LedgerWriter(Keep(tmp_path / "no" / "l.db"), EXPERTS)
    with pytest.raises(DataFileError, match="there is no folder"):
        writer.start()


def test_names_behind_the_probabilities_are_kept_for_each_router(ledger_place):
    path = ledger_place
    with writing(path) as writer:
        writer.write(record(0, router="one"))
        assert writer.flush()
        writer.register("two", ["a", "b"])
        writer.write(record(1, router="two", probabilities=[0.5, 0.5]))
        writer.write(record(2, router="three", probabilities=None))
        assert writer.flush()
    assert read_experts(path) == {"one": EXPERTS, "two": ["a", "b"]}


def test_threads_may_write_at_once(ledger_place):
    path = ledger_place
    with writing(path) as writer:

        def some(first):
            for number in range(first, first + 500):
                writer.write(record(number))

        threads = [threading.Thread(target=some, args=(first,)) for first in range(0, 2000, 500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.flush()
    assert ids(path) == list(range(2000))


def test_a_worker_speaks_and_leaves(tmp_path):
    path = tmp_path / "l.db"

    def said():
        database = sqlite3.connect(path)
        rows = database.execute("SELECT document FROM workers").fetchall()
        database.close()
        return [row[0] for row in rows]

    with writing(path) as writer:
        assert said() == []
        writer.published = {"in_flight": 3}
        wait_until(lambda: any('"in_flight": 3' in text for text in said()))
        assert '"dropped": 0' in said()[0]
    assert said() == []

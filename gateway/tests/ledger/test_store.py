"""The ledger in PostgreSQL: once each, whatever happens to the server."""

import os
import threading
import time

import pytest

from ledger_cases import EXPERTS, Keep, record, write_all, writing
from mild.errors import DataFileError
from mild_gateway.database import CommitUnknownError, InvalidRowError
from mild_gateway.ledger import LedgerWriter, read_ledger
from mild_gateway.ledger.retention import DAY, Retention
from mild_gateway.ledger.store import LedgerStore
from mild_gateway.ledger.writer import RECORD_BYTES
from store_cases import commits_in_doubt
from waiting import PATIENCE, wait_until


@pytest.fixture
def server(postgres):
    """The server, which runs again when the test is over."""
    yield postgres.server
    if not postgres.server.is_running():
        postgres.server.start()


@pytest.fixture
def store(postgres):
    opened = LedgerStore(postgres.address)
    yield opened
    opened.close()


def ids(place):
    return sorted(int(entry.request_id[1:]) for entry in read_ledger(place))


def used(store):
    with store.database.transaction() as connection:
        return store.bytes_used(connection)


def test_a_batch_that_is_written_again_is_there_once_with_its_sums(postgres, store):
    batch = [record(number) for number in range(5)]
    store.append(batch, {})
    store.append([*batch, record(5)], {})
    assert ids(postgres.address) == list(range(6))
    assert postgres.query("SELECT requests, price FROM minutes") == [(6, pytest.approx(0.006))]


@pytest.mark.parametrize("kept", [True, False])
def test_a_batch_in_doubt_is_written_once(postgres, store, monkeypatch, kept):
    batch = [record(number) for number in range(4)]
    with commits_in_doubt(monkeypatch, kept), pytest.raises(CommitUnknownError):
        store.append(batch, {})
    store.append(batch, {})
    assert ids(postgres.address) == [0, 1, 2, 3]
    assert postgres.query("SELECT sum(requests) FROM minutes") == [(4,)]


def test_rows_wait_while_the_server_is_away_and_too_many_are_dropped_and_counted(postgres, server):
    with writing(postgres.address, max_waiting_bytes=50 * RECORD_BYTES) as writer:
        writer.write(record(0))
        assert writer.flush()
        server.stop("immediate")
        wait_until(lambda: writer.write(record(1)) or writer.trouble)
        written = writer.waiting
        dropped = writer.dropped
        for number in range(100, 200):
            writer.write(record(number))
        # Some may have moved from the queue into the batch that is tried.
        assert writer.waiting + writer.dropped - written - dropped == 100
        assert writer.dropped > 0
        kept = writer.waiting
        server.start()
        assert writer.flush(PATIENCE)
        wait_until(lambda: writer.trouble is None)
    # Record 1 was written many times under one name.
    assert writer.written == 1 + kept
    found = ids(postgres.address)
    assert found[:2] == [0, 1]
    assert len(found) == len(set(found))


def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(postgres, server):
    count = 3000
    with writing(postgres.address) as writer:

        def write():
            for number in range(count):
                writer.write(record(number, time=time.time()))
                time.sleep(0.0007)

        thread = threading.Thread(target=write)
        thread.start()
        for _ in range(2):
            # Once more of it is written.
            known = writer.written
            wait_until(lambda known=known: writer.written > known or not thread.is_alive())
            server.restart(0.2)
        thread.join()
        assert writer.flush(PATIENCE), writer.trouble
        assert (writer.dropped, writer.written) == (0, count)
    assert ids(postgres.address) == list(range(count))
    assert postgres.query("SELECT sum(requests) FROM minutes") == [(count,)]


def test_writers_at_once_add_up(postgres):
    def write(first):
        with writing(postgres.address) as writer:
            for number in range(first, first + 1000):
                experts = ("small", "middle", "large")
                writer.write(record(number, expert=experts[number % 3]))
            assert writer.flush(PATIENCE), writer.trouble

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(postgres.address) == list(range(3000))
    assert postgres.query("SELECT sum(requests) FROM minutes") == [(3000,)]


def test_texts_that_the_server_cannot_keep_are_kept_without_that_sign(postgres, store):
    store.append([record(0, text="a\0b", error="\0")], {})
    kept = next(iter(read_ledger(postgres.address)))
    assert (kept.text, kept.error) == ("a\ufffdb", "\ufffd")


def test_a_number_beyond_its_column_is_the_records_own_fault(postgres, store):
    with pytest.raises(InvalidRowError):
        store.append([record(0, tokens_in=2**80)], {})
    store.append([record(1)], {})
    assert [entry.request_id for entry in read_ledger(postgres.address)] == ["r1"]


def test_workers_of_several_machines_do_not_take_each_others_place(postgres, monkeypatch):
    for host in ("one", "two"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        store = LedgerStore(postgres.address)
        store.publish(1.0, {"in_flight": 1})
        store.close()
    names = postgres.query("SELECT pid FROM workers ORDER BY pid")
    assert names == [(f"one:{os.getpid()}",), (f"two:{os.getpid()}",)]


def test_old_rows_go_by_days_and_by_bytes(postgres, store):
    now = 2_000_000_000.0
    ages = (40.0, 31.0, 29.0, 1.0)
    store.append([record(i, time=now - age * DAY) for i, age in enumerate(ages)], {})
    keep = Retention(days=30, bytes=None)
    while keep.sweep(store, now, 0):
        pass
    assert ids(postgres.address) == [2, 3]
    rows = [record(i, time=now + i, text="x" * 500) for i in range(10, 2010)]
    store.append(rows, {})
    assert 1_000_000 < used(store) < 3_000_000
    small = Retention(days=None, bytes=500_000)
    while small.sweep(store, now, 0):
        pass
    assert used(store) <= 500_000
    left = ids(postgres.address)
    assert left == list(range(2010 - len(left), 2010))
    assert len(left) > 300


def test_another_schema_is_refused_by_who_writes_and_who_reads(postgres):
    write_all(postgres.address, [record()])
    postgres.query("UPDATE mild_schema SET number = 9999")
    said = "written by another version of mild"
    with pytest.raises(DataFileError, match=said):
        LedgerWriter(Keep(postgres.address), EXPERTS).start()
    with pytest.raises(DataFileError, match=said):
        list(read_ledger(postgres.address))


def test_a_database_without_a_ledger_says_so_to_who_reads(postgres):
    with pytest.raises(DataFileError, match="is empty: `mild serve` has not written to it yet"):
        list(read_ledger(postgres.address))
    assert postgres.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'mild'") == [(0,)]

"""Rows come out in the order of time, in blocks, while others write."""

import pytest

from ledger_cases import record, write_all, writing
from mild.errors import InvalidInputError
from mild_gateway.ledger import read_blocks, read_ledger


@pytest.fixture
def path(ledger_place):
    # Out of order, and several at one moment, over the border of a block.
    times = [50, 10, 30, 30, 30, 20, 40, 30, 30, 60]
    records = [record(i, time=float(time)) for i, time in enumerate(times)]
    return write_all(ledger_place, records)


def names(path, *bounds):
    return [entry.request_id for entry in read_ledger(path, *bounds)]


def test_rows_come_in_the_order_of_time(path):
    assert names(path) == ["r1", "r5", "r2", "r3", "r4", "r7", "r8", "r6", "r0", "r9"]


def test_since_belongs_to_the_span_and_until_does_not(path):
    assert names(path, 30.0, 50.0) == ["r2", "r3", "r4", "r7", "r8", "r6"]
    assert names(path, 30.1, 50.1) == ["r6", "r0"]
    assert names(path, 61.0) == []
    assert names(path, None, 20.0) == ["r1"]


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 11])
def test_blocks_of_any_size_hold_every_row_once(path, rows):
    blocks = list(read_blocks(path, columns=["request_id"], rows=rows))
    assert [name for block in blocks for (name,) in block] == names(path)
    assert all(len(block) <= rows for block in blocks)


def test_an_unknown_column_is_refused(path):
    with pytest.raises(
        InvalidInputError, match=r"a ledger has the columns request_id, .*'x; DROP'"
    ):
        next(read_blocks(path, columns=["x; DROP"]))


def test_a_reader_in_the_middle_holds_up_nobody(ledger_place):
    path = ledger_place
    with writing(path) as writer:
        for number in range(10):
            writer.write(record(number, time=float(number)))
        assert writer.flush()
        reading = read_blocks(path, columns=["request_id"], rows=4)
        first = next(reading)
        for number in range(10, 20):
            writer.write(record(number, time=float(number)))
        assert writer.flush(2)
        assert writer.trouble is None
        rest = [row for block in reading for row in block]
    assert [*first, *rest] == [(f"r{number}",) for number in range(20)]


def test_a_ledger_in_a_folder_that_is_read_only_can_be_read(tmp_path):
    path = write_all(tmp_path / "l.db", [record()])
    tmp_path.chmod(0o555)
    try:
        assert names(path) == ["r0"]
    finally:
        tmp_path.chmod(0o755)

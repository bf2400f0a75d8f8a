"""A dataset cut into partitions, and read again."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_cases import make_vectors, write_file
from mild.distributed.partitions import (
    check_same_columns,
    cut,
    find_files,
    read_batches,
    read_footers,
)
from mild.errors import DataFileError


def parts_of(source, columns, **limit):
    files = find_files(str(source))
    footers = read_footers(str(source), files, lambda file, metadata, schema: metadata)
    return cut(str(source), files, footers, set(columns), **limit)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four files of 100 rows, in row groups of 25."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(4):
        write_file(folder / f"{number}.parquet", make_vectors(100, number), 100 * number)
    return folder


@settings(deadline=None, max_examples=30)
@given(limit=st.one_of(st.tuples(st.just("most_bytes"), st.integers(1, 6000)),
                       st.tuples(st.just("most_rows"), st.integers(1, 150))))  # fmt: skip
def test_partitions_cover_every_row_once_in_order(folder, limit):
    name, most = limit
    parts = parts_of(folder, ["embedding"], **{name: most})
    assert [part.number for part in parts] == list(range(len(parts)))
    for path in sorted({part.path for part in parts}):
        own = [part for part in parts if part.path == path]
        assert own[0].groups[0] == 0
        assert own[-1].groups[1] == 4
        for one, following in pairwise(own):
            assert one.groups[1] == following.groups[0]
            assert one.first_row + one.rows == following.first_row
        assert sum(part.rows for part in own) == 100
        for part in own:
            size = part.size if name == "most_bytes" else part.rows
            assert size <= most or part.groups[1] - part.groups[0] == 1


def test_batches_are_the_rows_of_the_partition_with_their_position(folder):
    part = parts_of(folder, ["id"], most_rows=50)[3]
    found = list(read_batches(str(folder), part, ["id"], 20))
    assert [first for first, _ in found] == [50, 70, 90]
    rows = [row for _, batch in found for row in batch.column("id").to_pylist()]
    assert rows == list(range(150, 200))


def test_only_columns_that_are_read_count(tmp_path):
    texts = ["x" * 1000 + str(i) for i in range(100)]
    file = write_file(tmp_path / "x.parquet", make_vectors(100), text=texts)
    without = parts_of(file, ["id", "embedding"], most_bytes=10_000)
    assert len(without) == 1
    assert len(parts_of(file, ["embedding", "text"], most_bytes=10_000)) == 4
    assert without[0].size < 10_000


def test_a_batch_of_wide_rows_has_fewer_of_them(tmp_path):
    table = pa.table({"text": ["x" * 2**22] * 16})
    parquet.write_table(table, tmp_path / "x.parquet", use_dictionary=False)
    (part,) = parts_of(tmp_path / "x.parquet", ["text"], most_bytes=2**30)
    assert 1 <= part.batch_rows <= 4


def test_files_without_rows_have_no_partition(folder, tmp_path):
    write_file(tmp_path / "00.parquet", make_vectors(0))
    write_file(tmp_path / "01.parquet", make_vectors(100))
    parts = parts_of(tmp_path, ["embedding"], most_bytes=2**30)
    assert [part.rows for part in parts] == [100]
    with pytest.raises(DataFileError, match=r"at least one row; got none in 1 file\."):
        parts_of(tmp_path / "00.parquet", ["embedding"], most_bytes=1)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({}, "b: its columns must be those of a; 'x' is missing"),
        ({"x": "numbers", "y": "text"}, "b: .* 'y' is not among those"),
        ({"x": "text"}, "b: column 'x' must hold numbers, as in a; it holds text"),
    ],
)
def test_columns_that_differ_are_named_with_both_files(other, message):
    with pytest.raises(DataFileError, match=message):
        check_same_columns("a", {"x": "numbers"}, "b", other)
    check_same_columns("a", {"x": "numbers"}, "b", {"x": "nothing"})

"""Footers are read in order, and those that cannot be are named."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.distributed.partitions import find_files, read_footers, runs
from mild.errors import DataFileError


@given(sizes=st.lists(st.integers(0, 50)), most=st.integers(0, 100))
def test_runs_cover_everything_once_and_are_as_long_as_they_may_be(sizes, most):
    found = list(runs(sizes, most))
    assert [place for start, stop in found for place in range(start, stop)] == list(
        range(len(sizes))
    )
    for start, stop in found:
        assert stop - start == 1 or sum(sizes[start:stop]) <= most
        assert stop == len(sizes) or sum(sizes[start : stop + 1]) > most


@pytest.fixture
def folder(tmp_path):
    for number in range(20):
        table = pa.table({"a": pa.array(["x"] * (number + 1)).dictionary_encode()})
        parquet.write_table(table, tmp_path / f"{number:02d}.parquet")
    return tmp_path


def test_files_are_looked_at_in_order(folder):
    files = find_files(str(folder))
    found = read_footers(str(folder), files, lambda file, metadata, _: (file, metadata.num_rows))
    assert found == [(file, number + 1) for number, file in enumerate(files)]
    # Categories are what they stand for.
    kinds = read_footers(str(folder), files[:1], lambda file, metadata, schema: schema.types)
    assert kinds == [[pa.string()]]


def test_a_file_that_is_cut_off_or_has_a_column_twice_is_named(folder):
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    parquet.write_table(table, folder / "07.parquet")
    with pytest.raises(DataFileError, match=r"07\.parquet: columns must have different names"):
        read_footers(str(folder), find_files(str(folder)), lambda *seen: None)
    (folder / "07.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataFileError, match=r"07\.parquet: it is not a readable \.parquet file"):
        read_footers(str(folder), find_files(str(folder)), lambda *seen: None)

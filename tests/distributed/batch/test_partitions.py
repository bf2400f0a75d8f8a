"""A dataset cut into partitions."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batch_cases import make_vectors, write_file
from mild.distributed.batch.partitions import cut, open_dataset
from mild.errors import DataFileError


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)
@given(size=st.integers(1, 6000))
def test_partitions_cover_every_row_once_in_order(dataset, size):
    found = open_dataset(str(dataset))
    parts = cut(found, ["embedding"], size)
    assert [part.number for part in parts] == list(range(len(parts)))
    for file in found.files:
        own = [part for part in parts if part.path == file.path]
        assert own[0].groups[0] == 0
        assert own[-1].groups[1] == 4
        for one, following in pairwise(own):
            assert one.groups[1] == following.groups[0]
            assert one.first_row + one.rows == following.first_row
        assert sum(part.rows for part in own) == 100
        assert all(part.size <= size or part.groups[1] - part.groups[0] == 1 for part in own)


def test_only_columns_that_are_read_count(tmp_path):
    texts = ["x" * 1000 + str(i) for i in range(100)]
    write_file(tmp_path / "x.parquet", make_vectors(100), text=texts)
    found = open_dataset(str(tmp_path / "x.parquet"))
    without = cut(found, ["id", "embedding"], 10_000)
    assert len(without) == 1
    assert len(cut(found, ["embedding", "text"], 10_000)) == 4
    assert without[0].size < 10_000


def test_a_batch_of_wide_rows_has_fewer_of_them(tmp_path):
    parquet.write_table(
        pa.table({"text": ["x" * 2**22] * 16}), tmp_path / "x.parquet", use_dictionary=False
    )
    (part,) = cut(open_dataset(str(tmp_path / "x.parquet")), ["text"])
    assert 1 <= part.batch_rows <= 4


def test_files_without_rows_have_no_partition(dataset):
    write_file(dataset / "00.parquet", make_vectors(0))
    parts = cut(open_dataset(str(dataset)), ["embedding"], 2**30)
    assert [part.rows for part in parts] == [100] * 4


def test_a_file_with_a_column_twice_is_refused(tmp_path):
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataFileError, match=r"x\.parquet: columns must have different names; 'id'"):
        open_dataset(str(tmp_path / "x.parquet"))

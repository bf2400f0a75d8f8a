"""Choices are written completely or not at all."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from mild.data import write_batches, write_columns, write_csv, writing
from mild.errors import DataFileError, OutputExistsError

COLUMNS = {"expert": np.array([0, 1]), "name": ["a, b", 'c "d"'], "p__x": np.array([0.25, 1.0])}


def test_every_format_holds_the_same(tmp_path):
    for suffix in ("csv", "parquet", "jsonl"):
        write_columns(COLUMNS, tmp_path / f"out.{suffix}")
    expected = {"expert": [0, 1], "name": ["a, b", 'c "d"'], "p__x": [0.25, 1.0]}
    assert arrow_csv.read_csv(tmp_path / "out.csv").to_pydict() == expected
    assert parquet.read_table(tmp_path / "out.parquet").to_pydict() == expected
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {key: [line[key] for line in lines] for key in expected} == expected
    assert len(list(tmp_path.iterdir())) == 3
    stream = io.BytesIO()
    write_csv(COLUMNS, stream)
    assert stream.getvalue() == (tmp_path / "out.csv").read_bytes()


def test_a_file_that_exists_is_kept_unless_overwriting(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="exists; choose another file"):
        write_columns(COLUMNS, path)
    assert path.read_text() == "mine"
    write_columns(COLUMNS, path, overwrite=True)
    assert path.read_text() != "mine"
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OutputExistsError, match="must be a file; a folder is there"):
        write_columns(COLUMNS, tmp_path / "folder.csv", overwrite=True)
    for name in ("out.xls", "none/out.csv"):
        with pytest.raises(DataFileError):
            write_columns(COLUMNS, tmp_path / name)


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    path.write_text("mine")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    with pytest.raises(DataFileError, match="No space left on device"):
        write_columns(COLUMNS, path, overwrite=True)
    assert path.read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.csv"]


def make_batches():
    """Two batches, and their schema."""
    first = pa.record_batch({"expert": ["a, b", "c"], "draws": [[0.5, 0.5], None]})
    second = pa.record_batch({"expert": ["d"], "draws": [[1.0]]}, schema=first.schema)
    return first.schema, [first, second]


def test_batches_are_written_one_after_the_other_in_every_format(tmp_path):
    schema, batches = make_batches()
    for name in ("log.csv", "log.jsonl", "log.parquet", "log.other"):
        assert write_batches(tmp_path / name, schema, iter(batches)) == 3
    expected = pa.Table.from_batches(batches)
    assert parquet.read_table(tmp_path / "log.parquet").equals(expected)
    assert parquet.read_table(tmp_path / "log.other").equals(expected)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected.to_pylist()
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert list(csv.reader(lines)) == [
        ["expert", "draws"],
        ["a, b", "[0.5, 0.5]"],
        ["c", ""],
        ["d", "[1.0]"],
    ]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_no_batches_make_a_file_without_rows(tmp_path, suffix):
    schema, _ = make_batches()
    assert write_batches(tmp_path / f"log.{suffix}", schema, []) == 0
    content = (tmp_path / f"log.{suffix}").read_bytes()
    if suffix == "csv":
        assert content == b'"expert","draws"\n'
    elif suffix == "jsonl":
        assert content == b""
    else:
        assert parquet.read_table(tmp_path / "log.parquet").schema == schema


def test_batches_are_not_read_if_the_file_cannot_be_written(tmp_path):
    schema, _ = make_batches()
    path = tmp_path / "log.csv"
    path.write_text("mine")

    def batches():
        raise AssertionError("read")
        yield

    with pytest.raises(OutputExistsError, match="exists; choose another file"):
        write_batches(path, schema, batches())
    with pytest.raises(DataFileError, match="is not a writable folder"):
        write_batches(tmp_path / "none" / "log.csv", schema, batches())
    assert path.read_text() == "mine"


def test_batches_that_fail_leave_the_old_file(tmp_path):
    schema, (first, _) = make_batches()
    path = tmp_path / "log.parquet"
    path.write_text("mine")

    def batches():
        yield first
        raise OSError("the disk is gone")

    with pytest.raises(DataFileError, match=r"cannot write .*log\.parquet: the disk is gone"):
        write_batches(path, schema, batches(), overwrite=True)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]

"""Choices are written completely or not at all."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from mild.data import write_columns, write_csv, writing
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

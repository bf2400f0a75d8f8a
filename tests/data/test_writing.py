"""Choices are written completely or not at all."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from mild.data import check_output, write_columns, write_csv, writing
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


def test_csv_goes_to_an_open_file_too():
    stream = io.BytesIO()
    write_csv(COLUMNS, stream)
    assert stream.getvalue().decode().splitlines()[0].replace('"', "") == "expert,name,p__x"


def test_a_file_that_exists_is_kept_unless_overwriting(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="exists; choose another file"):
        write_columns(COLUMNS, path)
    assert path.read_text() == "mine"
    write_columns(COLUMNS, path, overwrite=True)
    assert path.read_text() != "mine"


def test_a_folder_in_the_way_is_refused(tmp_path):
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(OutputExistsError, match="must be a file; a folder is there"):
        write_columns(COLUMNS, tmp_path / "out.csv", overwrite=True)


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(DataFileError, match=r"must end in \.csv, \.parquet, \.jsonl; got '\.xls'"):
        check_output(tmp_path / "out.xls")


def test_a_missing_parent_is_one_clear_sentence(tmp_path):
    with pytest.raises(DataFileError, match="is not a writable folder"):
        write_columns(COLUMNS, tmp_path / "none" / "out.csv")


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

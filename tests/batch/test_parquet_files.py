"""Files of a data set by path, folder, pattern or address, and the pieces of it."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.batch import parquet_files
from mild.batch.parquet_files import find_files, open_dataset
from mild.errors import DataFileError

FILES = [
    "a.parquet",
    "b.parquet",
    "x/c.parquet",
    "x/y/d.pq",
    "_tmp/e.parquet",
    ".f.parquet",
    "g.csv",
]


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("", ["a.parquet", "b.parquet", "x/c.parquet", "x/y/d.pq"]),
        ("x", ["x/c.parquet", "x/y/d.pq"]),
        ("*.parquet", ["a.parquet", "b.parquet"]),
        ("[b-z].parquet", ["b.parquet"]),
        ("?.csv", ["g.csv"]),
        ("**/*.parquet", ["_tmp/e.parquet", "a.parquet", "b.parquet", "x/c.parquet"]),
        ("g.csv", ["g.csv"]),
        ("_tmp/e.parquet", ["_tmp/e.parquet"]),
    ],
)
def test_what_a_source_finds(folder, source, wanted):
    _, paths = find_files(f"{folder}/{source}")
    assert [path.removeprefix(f"{folder}/") for path in paths] == wanted
    if not set(source) & set("*?["):
        assert find_files(f"file://{folder}/{source}")[1] == paths


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    (tmp_path / "a[1].parquet").write_text("a")
    (tmp_path / "a1.parquet").write_text("b")
    assert find_files(str(tmp_path / "a[1].parquet"))[1] == [str(tmp_path / "a[1].parquet")]


def test_relative_paths_are_of_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert find_files("*.csv")[1] == [f"{folder}/g.csv"]
    assert find_files("x/y")[1] == [f"{folder}/x/y/d.pq"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (" ", "must be a file, a folder or a pattern"),
        ("nowhere", "no such file or folder"),
        ("*.json", "no file matches the pattern"),
        (".", "the folder must hold files that end in .parquet"),
        ("nobody://x", "cannot open nobody://x"),
        ("nobody://me:secret@x", "cannot open nobody://x: [^@]*$"),
    ],
)
def test_missing_files_are_an_error_of_one_sentence(tmp_path, monkeypatch, source, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataFileError, match=sentence):
        find_files(source)


def test_pieces_are_all_rows_in_their_order_also_after_they_were_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "PIECE_ROWS", 30)
    for number in range(3):
        ids = np.arange(100 * number, 100 * number + 100)
        parquet.write_table(pa.table({"id": ids}), tmp_path / f"{number}.parquet", row_group_size=9)
    pieces = pickle.loads(pickle.dumps(open_dataset(str(tmp_path)).pieces()))
    assert max(piece.rows for piece in pieces) == 27
    ids = []
    for piece in pieces:
        for first_row, batch in piece.batches(["id"]):
            assert batch.column(0)[0].as_py() % 100 == first_row
            ids += batch.column(0).to_pylist()
    assert ids == list(range(300))

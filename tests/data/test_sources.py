"""Where tables come from: lists of JSON objects, folders, patterns, pipes, the standard input."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.data import read_outcomes
from mild.data.tables import SOURCE_FILE, find_tables, read_table, table_suffix
from mild.errors import DataFileError

ROWS = [{"prompt": "a", "correct__x": 1}, {"prompt": "b", "correct__x": 0}]
CSV = "prompt,correct__x\na,1\nb,0\n"


@pytest.fixture
def stdin(monkeypatch):
    """Make some bytes the standard input."""

    def use(content):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    return use


# JSON


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(ROWS),
        json.dumps({"data": ROWS}),
        json.dumps({"prompt": ["a", "b"], "correct__x": [1, 0]}),
        json.dumps({"prompt": {"0": "a", "1": "b"}, "correct__x": {"0": 1, "1": 0}}),
        "\n".join(map(json.dumps, ROWS)),
        "\ufeff" + json.dumps(ROWS, indent=2),
    ],
)
def test_json_is_rows_or_columns(tmp_path, content):
    file = tmp_path / "log.json"
    file.write_text(content)
    assert read_table(file).to_pylist() == ROWS


@pytest.mark.parametrize(
    "content", ["[1, 2]", '"a"', '{"a": [1], "b": [1, 2]}', "[{]", "[]", "[" * 9999]
)
def test_json_that_is_not_a_table_is_refused(tmp_path, content):
    file = tmp_path / "log.json"
    file.write_text(content)
    with pytest.raises(DataFileError):
        read_table(file)


def test_values_of_several_types_in_a_list_are_kept(tmp_path):
    file = tmp_path / "log.json"
    file.write_text(json.dumps([{"a": True, "b": 1}, {"a": 0.5, "b": "x"}]))
    assert read_table(file).to_pylist() == [{"a": 1.0, "b": "1"}, {"a": 0.5, "b": "x"}]


# Suffixes


def test_tabs_and_compression_are_read(tmp_path):
    (tmp_path / "a.tsv").write_text(CSV.replace(",", "\t"))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.pq")
    for name in ("a.tsv", "a.csv.gz", "a.pq"):
        assert read_table(tmp_path / name).to_pylist() == ROWS
    assert table_suffix("A.PARQ") == ".parquet"


def test_a_broken_archive_is_refused(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV.encode())[:-9])
    with pytest.raises(DataFileError, match=r"\.gz"):
        read_table(tmp_path / "a.csv.gz")


# Several files


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.csv").write_text(CSV)
    (tmp_path / "a.json").write_text(json.dumps([{"prompt": "c", "correct__y": 0.5}]))
    (tmp_path / "notes.txt").write_text("no table")
    (tmp_path / ".hidden.csv").write_text("no table")
    return tmp_path


def test_a_folder_a_pattern_and_a_list_are_one_table(folder):
    names = [str(folder / "a.json"), str(folder / "b.csv")]
    sources = (folder, folder / "*.[cj]s*", ",".join(names), names)
    for source in sources:
        table = read_table(source if isinstance(source, list) else str(source))
        assert table["prompt"].to_pylist() == ["c", "a", "b"]
        assert table["correct__x"].to_pylist() == [None, 1, 0]
        assert table["correct__y"].to_pylist() == [0.5, None, None]
        assert table[SOURCE_FILE].to_pylist() == ["a", "b", "b"]


def test_a_file_of_several_that_cannot_be_read_is_named(folder):
    for row, words in (("a,1,2", r"c\.csv: line 2"), ("a,yes", "differs in its type")):
        (folder / "c.csv").write_text(f"prompt,correct__x\n{row}\n")
        with pytest.raises(DataFileError, match=words):
            read_table(folder)


def test_an_empty_folder_and_an_unmatched_pattern_are_refused(tmp_path):
    with pytest.raises(DataFileError, match="no file fits"):
        find_tables(str(tmp_path / "*.csv"))
    with pytest.raises(DataFileError, match="the folder must hold"):
        find_tables(tmp_path)


# Pipes


@pytest.mark.parametrize(
    "content",
    [CSV.encode(), CSV.replace(",", "\t").encode(), json.dumps(ROWS).encode(),
     b"\n".join(json.dumps(row).encode() for row in ROWS), gzip.compress(CSV.encode())],
    ids=["csv", "tsv", "json", "jsonl", "gz"],
)  # fmt: skip
def test_the_standard_input_is_read_by_its_content(stdin, content):
    stdin(content)
    assert read_table("-").to_pylist() == ROWS


def test_parquet_comes_through_a_pipe_too_and_nothing_is_an_empty_file(stdin):
    written = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(ROWS), written)
    stdin(written.getvalue())
    assert read_table("-").to_pylist() == ROWS
    with pytest.raises(DataFileError, match="the file is empty"):
        read_table("/dev/null")


def test_a_pipe_is_not_taken_for_a_folder(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(CSV,))
    writer.start()
    assert read_table(pipe).to_pylist() == ROWS
    writer.join()


@pytest.mark.parametrize("column", ["correct__a", "cost__a"])
def test_a_word_among_the_numbers_of_a_frame_is_named(column):
    frame = pd.DataFrame({"prompt": ["x", "y"], "correct__a": [1, 0], "correct__b": [0, 1]})
    frame["cost__a"] = [0.1, 0.2]
    frame["cost__b"] = [0.1, 0.2]
    frame = frame.astype({column: object})
    frame.loc[1, column] = "banana"
    with pytest.raises(DataFileError) as caught:
        read_outcomes(frame)
    said = f"column {column!r} must hold numbers; it holds text such as 'banana'."
    assert str(caught.value).startswith(said)


def test_a_column_of_mixed_values_in_a_frame_is_text():
    frame = pd.DataFrame({"prompt": ["x", "y", "z"], "correct__a": [1, 0, 1]})
    frame["note"] = [1, "b", None]
    assert read_outcomes(frame).column("note") == ["1", "b", None]

"""``split_file``: two files with the rows of one, equal queries on one side."""

from __future__ import annotations

import csv
import gzip
import io
import json
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.artifact.files import replacing
from mild.data import read_outcomes, split_file, writing
from mild.errors import DataFileError, InvalidInputError, OutputExistsError

CSV = (
    'id,prompt,note,correct__a,correct__b,cost__a\r\n007,"one, two",1.50,1,0,0.10\r\n'
    '008,"a line\nbreak",,0,1,1e-3\r\n\r\n009,"one,  two",x,1,1,\r\n'
    "010,four,2026-01-31,0,0,5\r\n011,five,N/A,1,0,6\r\n012,six,,0,1,7"
)
ROWS = [
    {
        "prompt": f"question {i // 2}\u2028 end",
        "subject": f"s{i % 5}",
        "day": i,
        "extra": {"kept": [i]},
        "correct__a": i % 2,
        "correct__b": 1.0,
    }
    for i in range(40)
]


def test_a_csv_keeps_every_character(tmp_path):
    (tmp_path / "log.csv").write_bytes(CSV.encode())
    found = split_file(tmp_path / "log.csv", 0.4)
    parts = [found.train, found.test]
    contents = [part.file.read_bytes().decode() for part in parts]
    head = CSV.partition("\r\n")[0] + "\r\n"
    assert all(content.startswith(head) for content in contents)
    records = [content.removeprefix(head) for content in contents]
    # The records of both files, put together, are those of the one.
    assert sorted(len(part) for part in records) != [0, len(CSV)]
    for start in ("007", "008", "009", "010", "011", "012"):
        end = CSV.find("\r\n0", CSV.index(start))
        record = CSV[CSV.index(start) : end if end > 0 else None].strip("\r\n")
        assert sum(record in part for part in records) == 1
    sides = [{row["id"] for row in csv.DictReader(io.StringIO(text))} for text in contents]
    assert any({"007", "009"} <= side for side in sides), "equal queries, whitespace aside"
    assert (found.train.rows, found.test.rows) == tuple(len(side) for side in sides)
    assert found.train.queries + found.test.queries == 5
    assert [part.file.name for part in parts] == ["log.train.csv", "log.test.csv"]


@pytest.mark.parametrize("name", ["log.parquet", "log.jsonl", "log.json", "log.jsonl.gz"])
def test_the_rows_are_those_of_the_split_in_memory(tmp_path, name):
    file = tmp_path / name
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    if name.endswith("parquet"):
        table = pa.Table.from_pylist(ROWS).replace_schema_metadata({"made": "here"})
        place = table.column_names.index("subject")
        table = table.set_column(place, "subject", table["subject"].dictionary_encode())
        parquet.write_table(table, file)
    elif name.endswith("gz"):
        file.write_bytes(gzip.compress(lines.encode()))
    else:
        file.write_text(json.dumps(ROWS) if name == "log.json" else lines)
    found = split_file(file, 0.3, random_state=3)
    expected = read_outcomes(file).split(0.3, random_state=3)
    for part, whole in zip((found.train, found.test), expected, strict=True):
        again = read_outcomes(part.file)
        assert again.queries == whole.queries
        assert again.columns.to_pylist() == whole.columns.to_pylist()
        assert part.rows == len(whole)
        assert part.queries == len(set(whole.queries))
    assert not {*expected[0].queries} & {*expected[1].queries}
    if name.endswith("parquet"):
        schema = parquet.read_schema(found.test.file)
        assert schema.metadata[b"made"] == b"here"
        assert schema.field("subject").type == table.schema.field("subject").type
    assert found.test.file.name == name.replace("log", "log.test", 1)


@pytest.mark.parametrize(
    "shape",
    [
        lambda rows: {"data": rows},
        lambda rows: {key: [row[key] for row in rows] for key in rows[0]},
    ],
    ids=["wrapped", "columns"],
)
def test_json_that_is_not_a_list_of_rows_is_refused(tmp_path, shape):
    rows = [{key: row[key] for key in ("prompt", "correct__a", "correct__b")} for row in ROWS]
    file = tmp_path / "log.json"
    file.write_text(json.dumps(shape(rows), indent=1))
    with pytest.raises(DataFileError, match="Convert it first"):
        split_file(file)
    assert list(tmp_path.iterdir()) == [file]


def test_rows_of_a_query_and_of_a_group_stay_together(tmp_path):
    """Also where a query has a row per model."""
    rows = [
        {"query": f"q{i}", "subject": f"s{i % 6}", "model_name": model, "performance": 1}
        for i in range(30)
        for model in ("a", "b")
    ]
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = split_file(file, 0.4, groups="subject", random_state=1)
    sides = [
        [json.loads(line) for line in part.file.read_text().splitlines()]
        for part in (found.train, found.test)
    ]
    assert sum(map(len, sides)) == 60
    for name in ("query", "subject"):
        first, second = ({row[name] for row in side} for side in sides)
        assert not first & second
    assert found.train.rows == 2 * found.train.queries


def test_with_times_the_latest_rows_are_the_test(tmp_path):
    rows = [{"prompt": f"q{i % 35}", "day": i, "correct__a": 1} for i in range(50)]
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = split_file(file, 0.4, time="day")
    days = [
        [json.loads(line)["day"] for line in part.file.read_text().splitlines()]
        for part in (found.train, found.test)
    ]
    assert days == [list(range(30)), list(range(30, 35))]
    assert found.left_out == 15
    assert any("15 later rows are in neither file" in line for line in found.sentences)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet", ".csv.gz"])
def test_a_table_that_was_split_before_is_split_anew(tmp_path, suffix):
    rows = []
    for i in range(40):
        split = "train" if i < 20 else "test"
        rows.append({"prompt": f"q, {i}", "split": split, "correct__a": i % 2, "correct__b": 1})
    file = tmp_path / f"log{suffix}"
    frame = pd.DataFrame(rows)
    if suffix == ".parquet":
        frame.to_parquet(file)
    elif suffix == ".json":
        file.write_text(json.dumps(rows))
    elif suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        frame.to_csv(file, sep="\t" if suffix == ".tsv" else ",", index=False)
    found = split_file(file)
    assert found.train.rows + found.test.rows == 40
    train = read_outcomes(found.train.file)
    test = read_outcomes(found.test.file)
    assert (len(train), len(test)) == (found.train.rows, found.test.rows)
    assert set(train.column("split")) == {"train", "test"}
    assert sorted(train.queries + test.queries) == sorted(row["prompt"] for row in rows)


def test_vectors_are_compared_where_there_is_no_query(tmp_path):
    vectors = np.repeat(np.eye(8), 2, axis=0)
    table = pa.table({"embedding": list(vectors), "correct__a": [1] * 16, "n": range(16)})
    parquet.write_table(table, tmp_path / "log.parquet")
    found = split_file(tmp_path / "log.parquet")
    sides = [
        {n // 2 for n in parquet.read_table(part.file)["n"].to_pylist()}
        for part in (found.train, found.test)
    ]
    assert not sides[0] & sides[1]
    assert found.test.queries == len(sides[1])


def test_nothing_is_replaced_unasked_and_nothing_is_half_written(tmp_path, monkeypatch):
    file = tmp_path / "log.csv"
    file.write_text(CSV)
    found = split_file(file, out=tmp_path / "parts")
    before = {path.name: path.read_bytes() for path in (tmp_path / "parts").iterdir()}
    assert set(before) == {"log.train.csv", "log.test.csv"}
    with pytest.raises(OutputExistsError):
        split_file(file, out=tmp_path / "parts", random_state=1)
    found.train.file.unlink()
    with pytest.raises(OutputExistsError):
        split_file(file, out=tmp_path / "parts", random_state=1)
    assert not found.train.file.exists()

    class FullDisk:
        def write(self, content):
            raise OSError(28, "No space left on device")

    @contextmanager
    def replacing_on_full_disk(file):
        with replacing(file) as target:
            yield FullDisk() if file.name == "log.test.csv" else target

    monkeypatch.setattr(writing, "replacing", replacing_on_full_disk)
    with pytest.raises(DataFileError, match="No space left"):
        split_file(file, out=tmp_path / "parts", overwrite=True)
    after = {path.name: path.read_bytes() for path in (tmp_path / "parts").iterdir()}
    assert after == {"log.test.csv": before["log.test.csv"]}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"time": "prompt"}, "invalid_data_file"),
        ({"query": "nowhere"}, "invalid_query"),
    ],
)
def test_a_table_that_cannot_be_split_gives_an_error_with_a_code(tmp_path, options, code):
    file = tmp_path / "log.csv"
    file.write_text(CSV)
    with pytest.raises((DataFileError, InvalidInputError)) as caught:
        split_file(file, **options)
    assert caught.value.code == code
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_several_files_are_not_split(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_text(CSV)
    for source in (tmp_path, f"{tmp_path}/*.csv", "-"):
        with pytest.raises(DataFileError, match="only a single file") as caught:
            split_file(source)
        assert caught.value.code == "invalid_file"
    with pytest.raises(DataFileError, match="no such file"):
        split_file(tmp_path / "nowhere.csv")

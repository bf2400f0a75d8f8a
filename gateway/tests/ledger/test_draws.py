"""Queries and judgements from tables."""

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from mild.errors import DataFileError
from mild_gateway.learning.draws import read_judged, read_texts


def test_queries_are_found_by_usual_names_or_the_one_that_is_said(tmp_path):
    path = tmp_path / "q.parquet"
    columns = {
        "request_id": ["a", "b", "c"],
        "prompt": ["x", None, "007"],
        "other": ["1", "2", "3"],
    }
    parquet.write_table(pa.table(columns), path)
    assert read_texts(path, None, "request_id") == {"a": "x", "c": "007"}
    assert read_texts(path, "other", "request_id")["b"] == "2"
    with pytest.raises(
        DataFileError, match="must have the column 'id'; got request_id, prompt, other"
    ):
        read_texts(path, None, "id")
    table = tmp_path / "q.csv"
    table.write_text("request_id,text,prompt\na,x,y\n")
    assert read_texts(table, None, "request_id") == {"a": "y"}


@pytest.mark.parametrize(
    ("column", "values", "scores"),
    [
        ("error", "0.25,1", (0.75, 0)),
        ("score", "0.25,1", (0.25, 1)),
        ("correct", "true,false", (1, 0)),
    ],
)
def test_judgements_become_scores(tmp_path, column, values, scores):
    path = tmp_path / "f.csv"
    first, second = values.split(",")
    path.write_text(f"request_id,{column}\n01,{first}\n02,{second}\n")
    assert list(read_judged(path, "request_id")) == [("01", "", scores[0]), ("02", "", scores[1])]


def test_json_lines_are_read_and_rows_without_a_judgement_left_out(tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_text('{"request_id": "a", "score": 1}\n{"request_id": "b", "score": null}\n')
    assert list(read_judged(path, "request_id")) == [("a", "", 1.0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("request_id,score\na,7\n", r"score must be a number in \[0, 1\]; got 7 in row 1"),
        ("request_id,mood\na,7\n", "must have one of the columns error, score, correct"),
        ("", "the file is empty"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, words):
    path = tmp_path / "f.csv"
    path.write_text(text)
    with pytest.raises(DataFileError, match=words):
        list(read_judged(path, "request_id"))

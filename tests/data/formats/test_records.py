"""Records of answers: lists of them, objects of models, and a field per model."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError
from table_cases import kinds

ANSWERS = [
    {"model": "x", "score": 1, "answer": "p"},
    {"model": "y", "score": 0.5, "answer": "q"},
]


def written(tmp_path, rows, name="log.json"):
    file = tmp_path / name
    file.write_text(json.dumps(rows))
    return file


def test_a_field_of_the_query_and_one_of_the_record_are_both_kept(tmp_path):
    rows = [
        {"id": 7, "query": "a", "answer": "p", "responses": [{**a, "id": "r"} for a in ANSWERS]}
    ]
    table = read_outcomes(written(tmp_path, rows))
    assert table.column("id") == [7]
    assert table.column("answer") == ["p"]
    assert table.column("answer__y") == ["q"]


def test_scores_of_several_types_are_numbers(tmp_path):
    rows = [
        {"query": "a", "responses": [{"model": "x", "score": True}, {"model": "y", "score": 0.5}]},
        {"query": "b", "responses": [{"model": "x", "score": "1"}]},
        {"query": "c", "responses": None},
    ]
    table = read_outcomes(written(tmp_path, rows))
    np.testing.assert_array_equal(table.scores, [[1, 0.5], [1, np.nan]])
    assert kinds(written(tmp_path, rows))["unasked_rows"].count == 1


def test_equal_queries_stay_two_rows_and_a_repeated_model_is_averaged(tmp_path):
    rows = [{"query": "a", "responses": ANSWERS}, {"query": "a", "responses": [ANSWERS[0]] * 2}]
    table = read_outcomes(written(tmp_path, rows))
    assert table.queries == ["a", "a"]
    np.testing.assert_array_equal(table.scores, [[1, 0.5], [1, np.nan]])
    assert kinds(written(tmp_path, rows))["repeats"].count == 1


def test_records_as_text_in_a_csv_file(tmp_path):
    with open(tmp_path / "log.csv", "w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["query", "responses"])
        writer.writerow(["a", json.dumps(ANSWERS)])
    np.testing.assert_array_equal(read_outcomes(tmp_path / "log.csv").scores, [[1, 0.5]])


def test_fields_are_named_where_they_are_unusual(tmp_path):
    rows = [{"query": "a", "runs": [{"llm": "x", "score": 1, "usd": 2, "verdict": 0}]}]
    file = written(tmp_path, rows)
    np.testing.assert_array_equal(read_outcomes(file, prices="usd").prices, [[2]])
    named = read_outcomes(file, form="records", scores="verdict")
    np.testing.assert_array_equal(named.scores, [[0]])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"responses": ANSWERS, "results": ANSWERS}, "responses, results"),
        ({"responses": [{**ANSWERS[0], "score": 7}]}, r"\[0, 1\].*row 1"),
        ({"responses": [{**ANSWERS[0], "correct": 1}]}, "scores=COLUMN"),
    ],
)
def test_ambiguous_records_are_refused(tmp_path, row, words):
    with pytest.raises(DataFileError, match=words):
        read_outcomes(written(tmp_path, [{"query": "a", **row}]))


def test_a_single_object_with_a_score_is_not_a_model():
    with pytest.raises(DataFileError) as caught:
        read_outcomes(pa.table({"query": ["a"], "meta": [{"score": 1, "run": 2}]}))
    assert caught.value.parameter == "form"


def test_text_beside_the_records_is_not_read_as_an_answer(tmp_path):
    models = {"x": {"score": 1}, "y": {"score": 0}, "judge": "strict"}
    table = read_outcomes(written(tmp_path, [{"query": "a", "models": models}]))
    assert table.experts == ["x", "y"]
    np.testing.assert_array_equal(table.scores, [[1, 0]])

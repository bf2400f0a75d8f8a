"""What is written in the wide shape reads as the same outcomes."""

from __future__ import annotations

import datetime
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild.data import Outcomes, read_outcomes, write_outcomes
from mild.errors import DataFileError, OutputExistsError

SUFFIXES = ["parquet", "csv", "jsonl"]
numbers = st.one_of(st.none(), st.floats(0, 1))
texts = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SUFFIXES),
    st.lists(st.tuples(texts, st.floats(0, 1), numbers, numbers, numbers), min_size=1, max_size=5),
)
def test_the_fingerprint_survives_every_format(suffix, rows):
    columns = dict(
        zip(
            ["prompt", "score__a/x", "score__b", "cost__b", "latency_ms__b"],
            map(list, zip(*rows, strict=True)),
            strict=True,
        )
    )
    columns["cost__b"] = pa.array(columns["cost__b"], pa.float64())
    columns["latency_ms__b"] = pa.array(columns["latency_ms__b"], pa.float64())
    columns["score__b"] = pa.array([*columns["score__b"][:-1], 1.0], pa.float64())
    columns["prompt"][0] += "x"
    table = read_outcomes(pa.table(columns))
    with tempfile.TemporaryDirectory() as folder:
        again = read_outcomes(write_outcomes(table, Path(folder) / f"wide.{suffix}"))
    assert again.queries == table.queries
    assert again.fingerprint() == table.fingerprint()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_columns_vectors_and_choices_are_written_too(tmp_path, suffix):
    table = read_outcomes(
        pa.table(
            {
                "question": ["1?", "2?"],
                "options": [["a", "b"], ["c"]],
                "prompt_id": [3, None],
                "seen": [datetime.date(2024, 1, 2), None],
                "weight": [0.5, float("nan")],
                "vector": [[0.5, 1.5], [2.0, 3.0]],
                "correct__m": [1, 0],
            }
        )
    )
    again = read_outcomes(write_outcomes(table, tmp_path / f"wide.{suffix}"))
    assert again.queries == ["1?\nA. a\nB. b", "2?\nA. c"]
    np.testing.assert_array_equal(again.vectors, [[0.5, 1.5], [2, 3]])
    assert again.column("prompt_id") == [3, None]
    assert again.column("question") == ["1?", "2?"]
    assert str(again.column("seen")[0])[:10] == "2024-01-02"
    assert again.column("weight")[0] == 0.5


def test_right_and_wrong_are_written_as_integers_and_soft_scores_are_not(tmp_path):
    table = read_outcomes(
        pa.table({"query": ["a", "b"], "m": [1.0, None], "n": [0.0, 1.0]}), scores="m,n"
    )
    written = parquet.read_table(write_outcomes(table, tmp_path / "a.parquet"))
    assert written.column_names == ["prompt", "correct__m", "correct__n"]
    assert written.to_pydict()["correct__m"] == [1, None]
    soft = read_outcomes(pa.table({"query": ["a"], "m": [0.5]}), scores="m")
    assert parquet.read_table(write_outcomes(soft, tmp_path / "b.parquet")).column_names == [
        "prompt",
        "score__m",
    ]


def test_a_prompt_that_was_not_the_query_steps_aside(tmp_path):
    source = pa.table({"prompt": ["long"], "task": ["short"], "correct__m": [1]})
    written = write_outcomes(read_outcomes(source, query="task"), tmp_path / "a.jsonl")
    assert json.loads(written.read_text()) == {
        "prompt": "short",
        "prompt_of_source": "long",
        "correct__m": 1,
    }


def test_columns_of_right_and_wrong_are_kept_beside_soft_scores(tmp_path):
    source = pa.table({"prompt": ["a", "b"], "correct__m": [1, 1], "score__m": [0.0, 1.0]})
    table = read_outcomes(source)
    again = read_outcomes(write_outcomes(table, tmp_path / "a.parquet"))
    np.testing.assert_array_equal(again.scores, [[0], [1]])
    assert again.column("correct__m") == [1, 1]


def test_names_that_would_collide_are_refused(tmp_path):
    source = pa.table({"prompt": ["a"], "acc": [1.0], "usd": [1.0], "cost__acc": [5.0]})
    table = read_outcomes(source, scores="acc", prices="usd")
    with pytest.raises(DataFileError, match="columns cost__<model> besides"):
        write_outcomes(table, tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_unless_overwriting(tmp_path):
    table = read_outcomes(pa.table({"prompt": ["a"], "correct__m": [1]}))
    path = tmp_path / "a.csv"
    path.write_text("precious")
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        write_outcomes(table, path)
    assert path.read_text() == "precious"
    write_outcomes(table, path, overwrite=True)
    assert isinstance(read_outcomes(path), Outcomes)
    with pytest.raises(DataFileError, match="must end in"):
        write_outcomes(table, tmp_path / "a.xlsx")

"""A table of outcomes: the same from every file, with its rows, columns and fingerprint."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError, InvalidInputError, MildError
from table_cases import kinds, refused, wide

COLUMNS = {
    "id": ["q0", "q1", "q2"],
    "prompt": ["2 + 2?", 'He said:\n"no", twice', "wer schrieb Faust? ß"],
    "correct__a/b-7B": [1, 0, None],
    "correct__c": [1, 1, 0],
    "cost__a/b-7B": [0.25, 0.5, None],
    "cost__c": [0.001, 1e-7, 0.0],
    "latency_ms__c": [100.0, 250.5, 3.0],
}


@pytest.fixture(params=["parquet", "csv", "jsonl", "ndjson", "arrow", "pandas"])
def source(request, tmp_path):
    """The same table in every way that it can come."""
    table = pa.table(COLUMNS)
    path = tmp_path / f"log.{request.param}"
    if request.param == "arrow":
        return table
    if request.param == "pandas":
        return table.to_pandas()
    if request.param == "parquet":
        parquet.write_table(table, path)
    elif request.param == "csv":
        arrow_csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


def test_every_source_gives_the_same_outcomes(source):
    table = read_outcomes(source)
    assert table.queries == COLUMNS["prompt"]
    assert table.experts == ["a/b-7B", "c"]
    np.testing.assert_array_equal(table.scores, [[1, 1], [0, 1], [np.nan, 0]])
    np.testing.assert_array_equal(table.prices, [[0.25, 0.001], [0.5, 1e-7], [np.nan, 0]])
    np.testing.assert_array_equal(
        table.latencies, [[np.nan, 0.1], [np.nan, 0.2505], [np.nan, 0.003]]
    )
    assert table.column("id") == ["q0", "q1", "q2"]
    assert table.columns.column_names == ["id"]
    assert (table.form, len(table), table.vectors) == ("wide", 3, None)
    assert table.fingerprint() == read_outcomes(pa.table(COLUMNS)).fingerprint()


def test_the_reading_is_explained():
    table = read_outcomes(pa.table(COLUMNS))
    assert table.layout == (
        "read as wide: 2 experts, 3 queries with prices and latencies; the query is column 'prompt'."
    )


def test_rows_are_taken_by_number_and_by_mask():
    table = read_outcomes(pa.table(COLUMNS | {"embedding": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]}))
    taken = table[[2, 0]]
    assert taken.queries == [table.queries[2], table.queries[0]]
    np.testing.assert_array_equal(taken.scores, table.scores[[2, 0]])
    np.testing.assert_array_equal(taken.prices, table.prices[[2, 0]])
    np.testing.assert_array_equal(taken.latencies, table.latencies[[2, 0]])
    np.testing.assert_array_equal(taken.vectors, [[4, 5], [0, 1]])
    assert taken.column("id") == ["q2", "q0"]
    masked = table[np.array([True, False, True])]
    assert masked.fingerprint() == table[[0, 2]].fingerprint()
    assert len(table[[]]) == 0
    assert len(read_outcomes(wide(correct__y=[1, 0, 0]))[[1]]) == 1
    with pytest.raises(DataFileError, match=r"there is no column 'subject'\. Found id"):
        table.column("subject")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cost__x": [1.0, 1.0, 1.0, -1.0]}, "-1 in row 4 of column 'cost__x'"),
        (
            {"embedding": [[0.0], [1.0], [1.0], [np.nan]]},
            "in 1 row of column 'embedding', such as row 4",
        ),
        (
            {"embedding": [[0.0], [1.0], [1.0], [1.0, 2.0]]},
            "such as row 4 with 2 where row 1 has 1",
        ),
        ({"embedding": ["[0]", "[1]", "[2]", "[x"]}, "holds '\\[x' in row 4"),
    ],
)
def test_messages_give_row_numbers_of_the_file_even_after_unasked_rows_were_dropped(change, said):
    columns = {"prompt": ["a", "b", "c", "d"], "correct__x": [1, None, 0, 1]}
    with pytest.raises(DataFileError, match=said):
        read_outcomes(pa.table(columns | change))


def test_a_row_keeps_its_number_in_the_file():
    columns = {"prompt": ["a", "b", "c"], "correct__x": [1, None, 0], "cost__x": [1.0, 1.0, None]}
    table = read_outcomes(pa.table(columns))
    assert [table.row_number(row) for row in range(len(table))] == [1, 3]
    assert table[[1]].row_number(0) == 3


def test_the_fingerprint_depends_on_every_outcome():
    def changed(**columns):
        return read_outcomes(pa.table(COLUMNS | columns)).fingerprint()

    same = changed()
    assert changed(id=["x", "y", "z"]) == same
    assert changed(prompt=["2 + 3?", *COLUMNS["prompt"][1:]]) != same
    assert changed(correct__c=[1, 1, 1]) != same
    assert changed(cost__c=[0.001, 1e-7, None]) != same
    assert changed(latency_ms__c=[100.0, 250.5, 4.0]) != same
    assert changed(embedding=[[1.0], [2.0], [3.0]]) != same
    assert changed(prompt=["ab", "c", "d"]) != changed(prompt=["a", "bc", "d"])


def test_experts_are_chosen_by_short_names():
    table = read_outcomes(pa.table(COLUMNS), experts=["c", "7B"])
    assert table.experts == ["a/b-7B", "c"]
    assert table.columns.column_names == ["id"]
    np.testing.assert_array_equal(table.scores, [[1, 1], [0, 1], [np.nan, 0]])
    assert read_outcomes(pa.table(COLUMNS), experts="7b").experts == ["a/b-7B"]
    assert read_outcomes(pa.table(COLUMNS), experts="a*").experts == ["a/b-7B"]


def test_unknown_experts_are_refused_with_a_suggestion(tmp_path):
    parquet.write_table(pa.table(COLUMNS), tmp_path / "log.parquet")
    with pytest.raises(
        DataFileError, match=r"log.parquet: 'a/b-8B' is not one of .* mean 'a/b-7B'\?"
    ):
        read_outcomes(tmp_path / "log.parquet", experts=["a/b-8B"])
    with pytest.raises(InvalidInputError, match="at least one expert"):
        read_outcomes(pa.table(COLUMNS), experts=",")


def test_pandas_without_arrow_streams_is_read(monkeypatch):
    monkeypatch.delattr(pd.DataFrame, "__arrow_c_stream__", raising=False)
    frame = pd.DataFrame({"prompt": pd.Categorical(["a"]), "correct__x": [1]}, index=["row"])
    table = read_outcomes(frame)
    assert table.queries == ["a"]
    assert table.columns.column_names == []
    with pytest.raises(InvalidInputError, match=r"must be a path, or a frame .* got list"):
        read_outcomes([1, 2])


# Validation


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"score__y": [0.5, 55.0, -1.0]},
            "2 cells do not, such as 55 in row 2 of column 'score__y'",
        ),
        ({"score__y": [0.5, float("inf"), None]}, "1 cell does not, such as inf"),
        ({"cost__x": [0.5, -1.0, 0.5]}, "prices must be finite and not negative; 1 cell is not"),
        ({"cost__x": [0.5, float("inf"), 0.5]}, "such as inf"),
        ({"cost__x": [1.0, 1e160, 2.0]}, "row 2"),
        ({"latency_ms__x": [1.0, -1.0, 0.5]}, "latencies must be finite"),
        ({"latency_ms__x": [1.0, 1e160, 2.0]}, "row 2"),
        ({"correct__y": ["1", "good", "0"]}, "must hold numbers; it holds text such as 'good'"),
    ],
)
def test_cells_that_break_their_rule_are_refused_with_an_example(columns, words):
    assert words in refused(wide(**columns))


def test_missing_cells_are_kept_as_not_asked_and_counted():
    table = wide(correct__y=[None, 1.0, float("nan")])
    found = kinds(table)["missing"]
    assert found.count == 2
    assert found.sentence.startswith(
        "2 of 6 cells (33.3 %) are missing and kept as not asked; 1 row"
    )
    np.testing.assert_array_equal(np.isnan(read_outcomes(table).scores[:, 1]), [True, False, True])


def test_rows_in_which_nobody_was_asked_are_dropped_and_counted():
    source = pa.table({"prompt": ["a", "b", "c"], "id": [0, 1, 2], "correct__x": [1, None, 0]})
    table = read_outcomes(source)
    assert table.queries == ["a", "c"]
    assert table.column("id") == [0, 2]
    assert (
        kinds(source)["unasked_rows"].sentence == "1 row in which no expert was asked was dropped."
    )


def test_experts_that_were_never_asked_are_left_out_and_named():
    source = wide(correct__y=pa.nulls(3))
    assert read_outcomes(source).experts == ["x"]
    found = kinds(source)["unasked_experts"]
    assert (found.count, found.sentence) == (1, "1 expert was never asked and left out: y.")
    message = refused(pa.table({"prompt": ["a"], "correct__x": pa.nulls(1)}))
    assert "no score is known" in message


def test_a_table_without_a_query_is_refused_with_the_remedy():
    assert "at least one row" in refused(wide().slice(0, 0))
    message = refused(pa.table({"task": ["a"], "correct__x": [1]}))
    assert "name its column with query=COLUMN, or one of vectors" in message
    assert "mild.read_outcomes(FILE, vectors=COLUMN)`; found task" in message
    assert read_outcomes(pa.table({"task": ["a"], "correct__x": [1]}), query="task").queries == [
        "a"
    ]


# Is it one?


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.parquet", b"no parquet", "it is not a readable .parquet file"),
        ("a.csv", "prompt,correct__a\nx,1\n".encode("utf-16"), "its text is UTF-16"),
        ("b.csv", b"", "the file is empty"),
    ],
)
def test_an_unreadable_file_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataFileError, match=said):
        read_outcomes(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "code"),
    [({"form": "routelm"}, "invalid_form"), ({"scores": "a=x,y"}, "invalid_scores")],
)
def test_options_that_no_table_could_fit_are_refused_before_the_table_is_read(options, code):
    with pytest.raises(MildError) as caught:
        read_outcomes("there is no such file.csv", **options)
    assert caught.value.code == code


def test_its_representation_is_short():
    table = read_outcomes(wide(correct__y=[1, 0, 0], cost__y=[1, 2, 3]))
    assert repr(table) == "Outcomes(3 queries, 2 experts: x, y, with prices)"

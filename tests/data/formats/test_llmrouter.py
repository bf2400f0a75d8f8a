"""A row per query and model becomes a row per query."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild.data import read_outcomes
from mild.errors import DataFileError

NAMES = ("task_name", "query", "model_name", "performance", "cost", "response")
ROWS = [
    dict(zip(NAMES, row, strict=True))
    for row in (
        ("t", "a", "m", 1.0, 0.5, "x"),
        ("u", "b", "n", 0.0, 0.25, "y"),
        ("t", "a", "n", 0.5, 0.125, "z"),
    )
]


def write(tmp_path, rows):
    path = tmp_path / "routing.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_queries_and_models_keep_the_order_of_their_first_row(tmp_path):
    table = read_outcomes(write(tmp_path, ROWS))
    assert table.form == "llmrouter"
    assert table.queries == ["a", "b"]
    assert table.experts == ["m", "n"]
    np.testing.assert_array_equal(table.scores, [[1, 0.5], [np.nan, 0]])
    np.testing.assert_array_equal(table.prices, [[0.5, 0.125], [np.nan, 0.25]])
    assert table.layout.startswith("read as LLMRouter: 2 experts, 2 queries with prices")
    assert table.column("task_name") == ["t", "u"]
    assert table.column("answer__m") == ["x", None]
    assert table.column("answer__n") == ["z", "y"]


def test_a_column_that_rarely_differs_within_queries_stays_one_column_with_a_finding():
    rows = [
        {"query": f"q{i}", "model_name": m, "performance": 1.0, "task_name": f"t{i}", "answer": m}
        for i in range(40)
        for m in "mn"
    ]
    rows[1]["task_name"] = "other"
    table = read_outcomes(pa.Table.from_pylist(rows))
    assert table.columns.column_names == ["task_name", "answer__m", "answer__n"]
    assert table.column("task_name")[0] == "t0"
    found = {finding.kind: finding for finding in table.findings}["differing_column"]
    assert found.count == 1


def test_lists_are_compared_too():
    rows = [row | {"tags": [i % 2], "embedding": [1.0, 2.0]} for i, row in enumerate(ROWS)]
    rows[2]["tags"] = [0]
    table = read_outcomes(pa.Table.from_pylist(rows))
    assert table.column("tags") == [[0], [1]]
    assert table.vectors.shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [("response_time", "in seconds", 2.0), ("latency_ms", "in milliseconds", 0.002)],
)
def test_latencies_know_their_unit(name, words, expected):
    table = read_outcomes(pa.Table.from_pylist([row | {name: 2.0} for row in ROWS]))
    assert np.nanmax(table.latencies) == pytest.approx(expected, rel=1e-12)
    assert f"latencies are column '{name}', {words}" in table.layout


def test_prices_and_latencies_can_be_named():
    source = pa.Table.from_pylist([row | {"usd": 3.0, "wall_ms": 5.0} for row in ROWS])
    table = read_outcomes(source, prices="usd", latencies="wall_ms")
    assert np.nanmax(table.prices) == 3
    assert np.nanmax(table.latencies) == 0.005
    with pytest.raises(DataFileError, match="prices must be one column"):
        read_outcomes(source, prices="usd,cost")
    with pytest.raises(DataFileError, match="scores must be one column"):
        read_outcomes(source, form="llmrouter", scores="usd,cost")


def test_a_repeated_pair_counts_by_its_mean_with_a_finding():
    rows = [*ROWS, ROWS[0] | {"performance": 0.0, "cost": 1.5}, ROWS[1]]
    table = read_outcomes(pa.Table.from_pylist(rows))
    np.testing.assert_array_equal(table.scores, [[0.5, 0.5], [np.nan, 0]])
    np.testing.assert_array_equal(table.prices, [[1, 0.125], [np.nan, 0.25]])
    found = {finding.kind: finding for finding in table.findings}["conflicts"]
    assert found.count == 1
    again = read_outcomes(pa.Table.from_pylist([*ROWS, ROWS[0]])).findings
    kinds = [finding.kind for finding in again]
    assert "repeats" in kinds
    assert "conflicts" not in kinds


def test_rows_without_query_or_model_are_dropped_and_counted():
    rows = [*ROWS, ROWS[0] | {"query": ""}, ROWS[0] | {"model_name": None}]
    table = read_outcomes(pa.Table.from_pylist(rows))
    assert table.queries == ["a", "b"]
    found = {finding.kind: finding for finding in table.findings}["nameless"]
    assert found.count == 2
    with pytest.raises(DataFileError, match="every row lacks 'query' or 'model_name'"):
        read_outcomes(pa.Table.from_pylist([ROWS[0] | {"query": ""}]))


def test_choices_of_a_question_are_set_behind_it():
    rows = [
        {"question": "1?", "options": ["x", "y"], "model_name": m, "performance": 1.0} for m in "ab"
    ]
    assert read_outcomes(pa.Table.from_pylist(rows)).queries == ["1?\nA. x\nB. y"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROWS[0] | {"performance": 1.5}, ROWS[0]], "1 cell does not, such as 1.5 in row 1"),
        ([ROWS[0] | {"query": None}, ROWS[1] | {"performance": 1.5}], "such as 1.5 in row 2"),
        ([row | {"performance": "good"} for row in ROWS], "it holds text such as 'good'"),
        ([row | {"model_name": 3} for row in ROWS], "'model_name' must hold text; it holds int64"),
    ],
)
def test_cells_that_break_their_rule_are_refused(rows, words):
    with pytest.raises(DataFileError, match=words):
        read_outcomes(pa.Table.from_pylist(rows))


def test_the_error_names_what_is_missing():
    with pytest.raises(DataFileError, match="one column of models; found query, performance"):
        read_outcomes(pa.table({"query": ["a"], "performance": [1.0]}), form="llmrouter")
    with pytest.raises(DataFileError, match="must have a column of the query"):
        read_outcomes(pa.table({"model_name": ["a"], "performance": [1.0]}))


row = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from("mno"),
    st.sampled_from([0.0, 0.5, 1.0, None]),
    st.one_of(st.none(), st.floats(0, 9)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(row, min_size=1, max_size=15))
def test_cells_are_the_means_of_their_rows(rows):
    rows.append(("a", "m", 1.0, 0.5))
    source = pa.Table.from_pylist(
        [dict(zip(("query", "model_name", "performance", "cost"), r, strict=True)) for r in rows]
    )
    table = read_outcomes(source)
    for i, query in enumerate(table.queries):
        for k, model in enumerate(table.experts):
            for column, matrix in ((2, table.scores), (3, table.prices)):
                known = [
                    r[column] for r in rows if r[:2] == (query, model) and r[column] is not None
                ]
                expected = np.mean(known) if known else np.nan
                np.testing.assert_allclose(matrix[i, k], expected, rtol=1e-12)
    asked = {r[0] for r in rows if r[2] is not None}
    assert set(table.queries) == asked

"""scores: {model: score}, and llm_name_list with perf_list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError


def test_objects_of_prices_latencies_and_tokens_are_read_too():
    table = read_outcomes(
        pa.table(
            {
                "query": ["a", "b"],
                "scores": [{"s": 1.0, "l": 0.5}, {"s": 0.0, "l": None}],
                "costs": [{"s": 0.1, "l": 0.2}, {"s": 0.1, "l": 0.3}],
                "latency_ms": [{"s": 100.0, "l": 250.0}, {"s": 100.0, "l": 250.0}],
            }
        )
    )
    assert table.experts == ["l", "s"]
    np.testing.assert_array_equal(table.scores, [[0.5, 1], [np.nan, 0]])
    np.testing.assert_array_equal(table.prices, [[0.2, 0.1], [0.3, 0.1]])
    np.testing.assert_array_equal(table.latencies, [[0.25, 0.1], [0.25, 0.1]])
    assert table.columns.column_names == []


def test_objects_as_text_are_json_or_what_pandas_writes():
    texts = ["{'a/b': 0.5, 'c': nan}", '{"a/b": 1.0, "c": 0}', None]
    table = read_outcomes(pa.table({"question": ["x", "y", "z"], "scores": texts}))
    np.testing.assert_array_equal(table.scores, [[0.5, np.nan], [1, 0]])
    assert table.queries == ["x", "y"]


def test_numbers_as_text_are_read_with_a_note():
    table = read_outcomes(
        pa.table(
            {"prompt": ["a", "b", "c"], "correct__x": ["1", "0.5", ""], "correct__y": [1, 0, 0]}
        )
    )
    np.testing.assert_array_equal(table.scores, [[1, 1], [0.5, 0], [np.nan, 0]])
    assert "numbers as text in correct__x" in table.layout


@pytest.mark.parametrize(
    ("columns", "parameter"),
    [
        ({"llm_name_list": [["a", "b"]], "perf_list": [[1.0]]}, None),
        ({"llm_name_list": [["a", "a"]], "perf_list": [[1.0, 0.0]]}, None),
        ({"scores": ['{"a": 1, "a": 0}']}, None),
        ({"scores": ["good"]}, "form"),
    ],
)
def test_values_that_are_not_objects_of_scores_are_refused(columns, parameter):
    with pytest.raises(DataFileError) as caught:
        read_outcomes(pa.table({"query": ["x"], **columns}))
    assert caught.value.parameter == parameter


def test_scores_are_not_named_where_the_table_names_them():
    with pytest.raises(DataFileError) as caught:
        read_outcomes(pa.table({"query": ["x"], "scores": [{"a": 1}]}), form="nested", scores="a")
    assert caught.value.parameter == "scores"

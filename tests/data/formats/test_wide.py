"""correct__, score__, cost__ and latency_ms__ columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes


@pytest.mark.parametrize("values", [[True, False], [1, 0], [1.0, 0.0]])
def test_right_and_wrong_in_any_type(values):
    table = read_outcomes(pa.table({"prompt": ["a", "b"], "correct__m": values}))
    np.testing.assert_array_equal(table.scores, [[1], [0]])


def test_soft_scores_go_before_right_or_wrong_and_it_is_said():
    table = read_outcomes(
        pa.table(
            {
                "prompt": ["a"],
                "correct__m": [1],
                "score__m": [0.5],
                "correct__n": [1],
                "score__o": [0.25],
            }
        )
    )
    assert table.expert_names == ["m", "n", "o"]
    np.testing.assert_array_equal(table.scores, [[0.5, 1, 0.25]])
    assert "score__ is used instead of correct__ for m" in table.explanation
    assert table.columns.column_names == ["correct__m"]


def test_named_scores_decide_otherwise():
    source = pa.table({"prompt": ["a"], "correct__m": [1], "score__m": [0.5], "cost__m": [2.0]})
    table = read_outcomes(source, scores="correct__*")
    assert (table.form, table.expert_names) == ("wide", ["m"])
    np.testing.assert_array_equal(table.scores, [[1]])
    np.testing.assert_array_equal(table.prices, [[2]])


def test_other_columns_about_a_model_are_left_and_said():
    table = read_outcomes(
        pa.table(
            {
                "prompt": ["a"],
                "correct__m/n": [1],
                "correct__o": [1],
                "run__m/n": ["x"],
                "run__o": ["y"],
                "outchars__o": [3],
                "cost__other": [1.0],
                "__index_level_0__": [0],
            }
        )
    )
    assert "kept as plain columns: run__<model> (2), outchars__<model> (1), cost__<model> (1)." in (
        table.explanation
    )
    assert table.prices is None
    assert table.columns.column_names == [
        "run__m/n",
        "run__o",
        "outchars__o",
        "cost__other",
        "__index_level_0__",
    ]


def test_prices_of_some_experts_are_unknown_for_the_others():
    table = read_outcomes(
        pa.table({"prompt": ["a"], "correct__m": [1], "correct__n": [0], "cost__n": [0.5]})
    )
    np.testing.assert_array_equal(table.prices, [[np.nan, 0.5]])
    assert [finding.kind for finding in table.findings if finding.kind == "unknown_prices"]


def test_named_prices_take_the_place_of_the_usual_ones():
    source = pa.table(
        {
            "prompt": ["a"],
            "correct__m": [1],
            "correct__n": [0],
            "cost__m": [1.0],
            "params__n": [7.0],
            "params__m": [3.0],
        }
    )
    table = read_outcomes(source, prices="params__*")
    np.testing.assert_array_equal(table.prices, [[3, 7]])
    assert "prices: params__m for m, params__n for n" in table.explanation

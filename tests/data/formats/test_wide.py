"""correct__, score__, cost__ and latency_ms__ columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError


@pytest.mark.parametrize("values", [[True, False], [1, 0], [1.0, 0.0]])
def test_right_and_wrong_in_any_type(values):
    table = read_outcomes(pa.table({"prompt": ["a", "b"], "correct__m": values}))
    np.testing.assert_array_equal(table.scores, [[1], [0]])


def test_soft_scores_are_preferred_to_right_or_wrong_with_a_note():
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
    assert table.experts == ["m", "n", "o"]
    np.testing.assert_array_equal(table.scores, [[0.5, 1, 0.25]])
    assert "score__ is used instead of correct__ for m" in table.layout
    assert table.columns.column_names == ["correct__m"]


def test_named_scores_decide_otherwise():
    source = pa.table({"prompt": ["a"], "correct__m": [1], "score__m": [0.5], "cost__m": [2.0]})
    table = read_outcomes(source, scores="correct__*")
    assert (table.form, table.experts) == ("wide", ["m"])
    np.testing.assert_array_equal(table.scores, [[1]])
    np.testing.assert_array_equal(table.prices, [[2]])


def test_other_columns_of_a_model_are_kept_with_a_note():
    table = read_outcomes(
        pa.table(
            {
                "prompt": ["a"],
                "correct__m/n": [1],
                "correct__o": [1],
                "run__m/n": ["x"],
                "run__o": ["y"],
                "outchars__o": [3],
                "__index_level_0__": [0],
            }
        )
    )
    assert "kept as plain columns: run__<model> (2), outchars__<model> (1)." in table.layout
    assert table.prices is None
    assert table.columns.column_names == [
        "run__m/n",
        "run__o",
        "outchars__o",
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
    assert "prices: params__m for m, params__n for n" in table.layout


@pytest.mark.parametrize(
    ("column", "nearest"),
    [
        ("corrrect__other", "correct__other"),
        ("cost__other", "scores are known of m, large"),
        ("cost__lrage", "cost__large"),
        ("latency_ms__other", "correct__other"),
        ("tokens_in__other", "correct__other"),
        ("tokens_out__other", "correct__other"),
        ("scores__other", "score__other"),
        ("costs__m", "cost__m"),
        ("latency__m", "latency_ms__m"),
    ],
)
def test_a_column_that_would_be_dropped_is_refused_with_the_nearest(column, nearest):
    source = pa.table({"prompt": ["a"], "correct__m": [1], "correct__large": [0], column: [1]})
    with pytest.raises(DataFileError) as caught:
        read_outcomes(source)
    assert column in str(caught.value)
    assert nearest in str(caught.value)
    # Scores that the caller names are all that is meant.
    table = read_outcomes(source, scores="correct__*")
    assert table.columns.column_names == [column]


def test_the_misspelt_score_is_named_where_only_the_price_is_right():
    source = pa.table(
        {"prompt": ["a"], "correct__m": [1], "cost__m": [1], "cost__n": [1], "corrrect__n": [1]}
    )
    with pytest.raises(DataFileError, match=r"'cost__n' .* did you mean 'corrrect__n'\?"):
        read_outcomes(source)


def test_a_similar_column_beside_the_right_one_is_kept():
    source = pa.table({"prompt": ["a"], "correct__m": [1], "cost__m": [1], "costs__m": [2]})
    assert read_outcomes(source).columns.column_names == ["costs__m"]


# Endings


def test_endings_may_differ_and_scores_go_first():
    source = pa.table(
        {
            "prompt": ["a"],
            "gpt-4.1_correct": [True],
            "gpt-4.1_score": [0.5],
            "x_y_is_correct": [1],
            "x_y_price": [0.2],
            "x_y_latency_ms": [100],
            "total_cost": [9],
            "x_y_response": ["p"],
        }
    )
    table = read_outcomes(source)
    assert table.experts == ["gpt-4.1", "x_y"]
    np.testing.assert_array_equal(table.scores, [[0.5, 1]])
    np.testing.assert_array_equal(table.prices, [[np.nan, 0.2]])
    np.testing.assert_array_equal(table.latencies, [[np.nan, 0.1]])
    assert "gpt-4.1_correct" in table.layout
    assert "total_cost" in table.columns.column_names


def test_a_misspelt_ending_is_named():
    columns = {"prompt": ["a"], "x_correct": [1], "y_correct": [0], "z_cost": [1], "z_corect": [1]}
    with pytest.raises(DataFileError, match=r"'z_cost' .* did you mean 'z_corect'"):
        read_outcomes(pa.table(columns))


def test_endings_beside_columns_of_models_are_a_question():
    columns = {"prompt": ["a"], "gpt": [True], "llama": [False]}
    metrics = {"bleu_score": [0.5], "rouge_score": [0.25]}
    with pytest.raises(DataFileError, match="form='endings' or form='routellm'"):
        read_outcomes(pa.table(columns | metrics))
    assert read_outcomes(pa.table(columns | metrics), form="routellm").experts == [
        "gpt",
        "llama",
    ]
    truths = {"prompt": ["a"], "gpt_correct": [True], "llama_correct": [False]}
    assert read_outcomes(pa.table(truths)).experts == ["gpt", "llama"]


def test_a_flag_is_not_an_expert():
    columns = {"prompt": ["a"], "is_correct": [True], "total_score": [1.0], "x": [1]}
    with pytest.raises(DataFileError) as caught:
        read_outcomes(pa.table(columns))
    assert caught.value.parameter == "form"


def test_a_score_with_another_ending_is_not_a_model():
    columns = {
        "query": ["a", "b"],
        "x_correct": [1, 0],
        "y_correct": [0, 1],
        "toxicity_score": [0.1, 0.2],
    }
    assert read_outcomes(pa.table(columns)).experts == ["x", "y"]

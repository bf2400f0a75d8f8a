"""Columns that the caller names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError

SOURCE = pa.table(
    {
        "task": ["a", "b"],
        "acc_little": [1.0, 0.0],
        "acc_strong": [1.0, 1.0],
        "usd_strong": [0.5, 0.5],
        "usd_little": [0.1, 0.1],
        "ms_little": [10.0, 20.0],
        "ms_strong": [100.0, 200.0],
    }
)


def read(**options):
    return read_outcomes(SOURCE, query="task", **options)


def test_columns_are_named_by_pattern_and_paired_by_name():
    table = read(scores="acc_*", prices="usd_*", latencies="ms_*")
    assert (table.form, table.experts) == ("plain", ["acc_little", "acc_strong"])
    np.testing.assert_array_equal(table.prices, [[0.1, 0.5], [0.1, 0.5]])
    np.testing.assert_array_equal(table.latencies, [[0.01, 0.1], [0.02, 0.2]])
    assert "prices: usd_little for acc_little, usd_strong for acc_strong" in table.layout
    assert "latencies in ms: ms_little for acc_little" in table.layout
    assert table.columns.column_names == []


@pytest.mark.parametrize(
    "scores",
    ["little=acc_little, strong=acc_strong", {"little": "acc_little", "strong": "acc_strong"}],
)
def test_experts_are_named_by_pairs(scores):
    table = read(scores=scores, prices="strong=usd_strong")
    assert table.experts == ["little", "strong"]
    np.testing.assert_array_equal(table.prices, [[np.nan, 0.5], [np.nan, 0.5]])


def test_names_that_do_not_match_are_paired_by_their_order():
    source = pa.table({"query": ["a"], "x": [1.0], "y": [0.0], "p1": [1.0], "p2": [2.0]})
    table = read_outcomes(source, scores=["x", "y"], prices=["p2", "p1"])
    np.testing.assert_array_equal(table.prices, [[2, 1]])
    assert "prices: p2 for x, p1 for y" in table.layout


def test_experts_are_chosen_among_the_named():
    assert read(scores="acc_*", experts="strong").experts == ["acc_strong"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"form": "plain"}, "read_outcomes(FILE, scores=NAMES)`; found task"),
        ({"scores": "acc"}, "scores must name columns of the file; 'acc' is not one"),
        ({"scores": "acc_*", "prices": "usd_little"}, "prices must name one column per expert"),
        ({"scores": "a=acc_little,acc_strong"}, "named as expert=column throughout"),
        (
            {"scores": {"a": "acc_little"}, "prices": {"a": 1}},
            "must name the column of each expert",
        ),
        ({"scores": "acc_*", "prices": "tiny=usd_little"}, "'tiny' is not one of the experts"),
        (
            {"scores": "acc_*", "prices": "little=usd"},
            "prices must name columns of the file; 'usd'",
        ),
    ],
)
def test_what_does_not_name_columns_is_refused(options, sentence):
    with pytest.raises(ValueError) as caught:
        read(**options)
    assert sentence in str(caught.value)


def test_two_columns_of_one_expert_are_refused():
    source = pa.table({"prompt": ["a"], "correct__m": [1], "score__m": [0.5]})
    with pytest.raises(DataFileError, match="each expert must have one score column"):
        read_outcomes(source, scores="correct__m,score__m")

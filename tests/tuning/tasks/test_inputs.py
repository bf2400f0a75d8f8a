"""What routers see."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError, OptionError
from mild.evaluation.comparison import task_rows
from mild.features import HashingFeatures
from mild.tuning.fitting import feature_inputs, make_text_features
from mild.tuning.tasks import make_task
from outcome_cases import make_columns


def task_of(columns):
    return make_task(read_outcomes(pa.table(columns)), CostTerms())


def vector_columns(n=12):
    columns = make_columns(n)
    columns["embedding"] = np.random.default_rng(0).normal(size=(n, 3)).tolist()
    return columns


def test_features_are_learned_from_the_training_rows_alone():
    task = task_of(make_columns(40))
    rows, kind = task_rows(task, HashingFeatures(n_components=4))
    train, test = np.arange(30), np.arange(30, 40)
    features, held = rows.inputs.features(train, test)
    changed = task_of(
        make_columns(40) | {"prompt": [*task.table.queries[:30], *["new words"] * 10]}
    )
    again, _ = task_rows(changed, HashingFeatures(n_components=4))[0].inputs.features(train, test)
    np.testing.assert_array_equal(features, again)
    assert held.shape == (10, features.shape[1])
    assert kind == "hashing"
    assert len(rows.inputs) == 40


def test_vectors_are_used_where_they_are_asked_for_or_alone():
    columns = vector_columns()
    task = task_of(columns)
    assert make_text_features(task.table).kind == "hashing"
    step = make_text_features(task.table, "vectors")
    assert feature_inputs(task.table, step) is task.table.vectors
    assert feature_inputs(task.table, make_text_features(task.table)) is task.table.queries
    del columns["prompt"]
    alone = task_of(columns)
    assert make_text_features(alone.table).kind == "vectors"
    assert task_rows(alone)[1] == "vectors"
    with pytest.raises(InvalidInputError, match="only vectors"):
        make_text_features(alone.table, "hashing")


def test_vectors_that_are_not_there_are_refused():
    with pytest.raises(InvalidInputError, match="column of vectors"):
        make_text_features(task_of(make_columns(5)).table, "vectors")


def test_an_unknown_step_is_refused():
    with pytest.raises(OptionError, match="hashing"):
        make_text_features(task_of(make_columns(5)).table, "hash")


def test_a_table_of_empty_queries_is_refused():
    table = read_outcomes(
        pa.table({"prompt": ["", ""], "correct__s": [1, 0], "correct__l": [0, 1]})
    )
    with pytest.raises(
        InvalidInputError, match="every query is empty: there is nothing to route by"
    ):
        make_text_features(table)

"""The table of outcomes that comes with mild."""

import numpy as np
import pytest

from mild.data import read_outcomes
from mild.datasets import outcomes_file


def test_the_table_is_small_and_complete():
    assert outcomes_file().stat().st_size < 300_000
    table = read_outcomes(outcomes_file())
    assert table.experts == ["gemma3", "rules", "smollm2"]
    assert len(table) == 1500
    for values in (table.scores, table.prices, table.latencies):
        assert values.shape == (1500, 3)
        assert np.isfinite(values).all()
        assert (values >= 0).all()
    assert set(np.unique(table.scores)) == {0.0, 1.0}
    assert (table.latencies > 0).all()


def test_the_questions_are_those_of_the_package():
    questions = pytest.importorskip("scripts.make_questions")
    queries = read_outcomes(outcomes_file(), choices=False).queries
    assert list(queries) == [row["query"] for row in questions.make_questions(1500, 0)]


def test_every_expert_is_alone_right_on_some_row():
    right = read_outcomes(outcomes_file()).scores == 1
    alone = right & (right.sum(axis=1, keepdims=True) == 1)
    assert (alone.sum(axis=0) >= 30).all()


def test_rules_are_right_on_sums_and_wrong_on_facts():
    table = read_outcomes(outcomes_file())
    family = np.array([source.split("/")[0] for source in table.column("source")])
    rules = table.scores[:, table.experts.index("rules")]
    assert (rules[family == "arithmetic"] == 1).all()
    assert (rules[family == "facts"] == 0).all()

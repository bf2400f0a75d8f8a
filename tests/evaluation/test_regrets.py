from dataclasses import replace

import numpy as np
import pytest

from mild.evaluation.sections import regrets, shared_prefix
from report_cases import make_table, routed_rows


def gathered(costs, chosen, queries, probabilities=None):
    return replace(routed_rows(["a", "b", "c"], costs, chosen, probabilities), queries=queries)


COSTS = np.array([[0, 1, 1], [0.5, 0, 1], [1, 0, 1], [1, 0.25, 0], [0, 0, 0]], float)


def test_regret_is_what_the_choice_cost_more_than_the_least():
    found = regrets(gathered(COSTS, [0, 0, 0, 1, 2], list("pqrst")), 10)
    assert [(r["text"], r["regret"], r["chosen"], r["best"]) for r in found["rows"]] == [
        ("r", 1.0, "a", "b"),
        ("q", 0.5, "a", "b"),
        ("s", 0.25, "b", "c"),
    ]
    assert found["regretted"] == 3 / 5
    assert found["mean"] == pytest.approx(1.75 / 5)
    assert found["pairs"] == [
        {"chosen": "a", "best": "b", "rows": 2, "share": pytest.approx(1.5 / 1.75)},
        {"chosen": "b", "best": "c", "rows": 1, "share": pytest.approx(0.25 / 1.75)},
    ]


def test_among_equals_the_surest_comes_first():
    costs = np.array([[1, 0, 1]] * 3, float)
    guess = [[0.4, 0.3, 0.3], [0.8, 0.1, 0.1], [0.6, 0.2, 0.2]]
    found = regrets(gathered(costs, [0, 0, 0], ["mild", "sure", "middle"], guess), 2)
    assert [row["text"] for row in found["rows"]] == ["sure", "middle"]
    assert found["rows"][0]["gave"] == [0.8, 0.1]


def test_a_text_is_shown_once():
    costs = np.array([[1, 0, 1]] * 3, float)
    found = regrets(gathered(costs, [0, 0, 0], ["again", "again", "other"]), 5)
    assert [row["text"] for row in found["rows"]] == ["again", "other"]


def test_rounding_is_no_regret():
    costs = np.array([[0.1 + 0.2, 0.3, 1]], float)
    found = regrets(gathered(costs, [0], ["q"]), 5)
    assert found["rows"] == []
    assert found["pairs"] == []
    assert found["mean"] == 0


def test_no_text_leaves_when_none_is_asked_for():
    found = regrets(gathered(COSTS, [0, 0, 0, 1, 2], ["secret"] * 5), 0)
    assert found["rows"] == []
    assert found["regretted"] == 3 / 5


def test_long_texts_are_cut_and_what_all_begin_with_is_left_out():
    start = "Answer the question with one letter only. "
    queries = [start + "a " * 2000, start + "why?", start + "who?\n  and when?", start + "b", start]
    found = regrets(gathered(COSTS, [1, 0, 0, 1, 2], queries), 10)
    rows = {row["row"]: row for row in found["rows"]}
    assert rows[0]["text"].startswith("a a a")
    assert len(rows[0]["text"]) <= 140
    assert rows[0]["more"].startswith(start + "a a")
    assert rows[0]["more"].endswith("characters)")
    assert len(rows[0]["more"]) < 1300
    assert rows[2]["text"] == "who? and when?"
    assert rows[2]["more"] == start + "who?\n  and when?"


def test_a_choice_that_was_never_asked_has_no_regret():
    table = make_table([[1, None, 0], [0, 1, None]], prices=None)
    evidence = routed_rows(table.experts, table.costs(), [1, 0], None, table)
    found = regrets(evidence, 5)
    assert [row["row"] for row in found["rows"]] == [1]
    assert found["regretted"] == 1


def test_a_shared_start_ends_with_a_word():
    assert shared_prefix(["Tell me about the sun", "Tell me about the stars"]) == 18
    assert shared_prefix(["Tell me about the sun"]) == 0
    assert shared_prefix(["", "Tell me about the sun"]) == 0

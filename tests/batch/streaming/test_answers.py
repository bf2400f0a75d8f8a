"""Decisions as JSON lines."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mild.batch.streaming import Query, decision_lines
from mild.policies import Decisions


def decisions(costs=None):
    shares = np.array([[1 / 3, 2 / 3], [1e-9, 1.0]])
    return Decisions(np.array([1, 0]), shares, costs, shares, "probability")


@pytest.mark.parametrize("names", [["a", "b"], ['100 % "sure"', "ü\n{}"], ["%s", "%(x)d"]])
def test_answers_are_json_whatever_the_names(names):
    queries = [Query("x"), Query("y", 7)]
    costs = np.array([[0.5, 1], [2, 3]])
    lines = decision_lines(names, decisions(costs), queries, probabilities=True)
    first, second = map(json.loads, lines)
    assert first == {
        "expert": names[1],
        "probabilities": {names[0]: 0.333333, names[1]: 0.666667},
        "expected_cost": {names[0]: 0.5, names[1]: 1},
    }
    assert second["id"] == 7
    assert second["probabilities"][names[0]] == 1e-9
    plain, _ = decision_lines(names, decisions(), queries)
    assert json.loads(plain) == {"expert": names[1], "expected_cost": None}


def test_queries_come_back_if_asked_for():
    queries = [Query('"q"'), Query("\ud800")]
    lines = decision_lines(["a", "b"], decisions(), queries, echo=True)
    assert json.loads(lines[0])["query"] == '"q"'
    assert json.loads(lines[0])["expected_cost"] is None
    assert json.loads(lines[1])["query"] == "\ud800"
    # Lone surrogates have no UTF-8.
    assert lines[1].encode()

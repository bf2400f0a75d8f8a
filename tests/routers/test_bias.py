"""A bias per expert on held-out scores: what it minimises, and on which rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mild.core.decisions import argmax_last
from mild.routers import candidates as bias_module
from mild.routers.candidates import BIAS_GRID, cross_fitted_bias, find_bias


def paid(scores: np.ndarray, costs: np.ndarray, bias: np.ndarray) -> float:
    return float(costs[np.arange(len(costs)), argmax_last(scores + bias)].mean())


def problem(n: int = 300, p: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are right up to a bias, and costs."""
    rng = np.random.default_rng(seed)
    costs = rng.random((n, p))
    return -costs + 0.1 * rng.normal(size=(n, p)) + 0.3 * np.arange(p), costs


def test_two_experts_get_the_best_bias_of_the_grid() -> None:
    scores, costs = problem(p=2)
    found = find_bias(scores, costs, None, 1.0)
    tried = [
        paid(scores, costs, np.array(pair)) for pair in itertools.product(BIAS_GRID, BIAS_GRID)
    ]
    assert paid(scores, costs, found) == pytest.approx(min(tried))


@pytest.mark.parametrize("p", [2, 3, 6])
def test_a_known_shift_is_taken_back(p: int) -> None:
    scores, costs = problem(2000, p)
    found = find_bias(scores, costs, None, 1.0)
    assert found.min() == 0
    np.testing.assert_allclose(found, 0.3 * np.arange(p)[::-1], atol=0.2)
    assert paid(scores, costs, found) < paid(scores, costs, np.zeros(p))


def test_scores_that_are_right_keep_no_bias_and_the_margin_is_the_unit() -> None:
    scores, costs = problem()
    np.testing.assert_array_equal(find_bias(-costs, costs, None, 1.0), np.zeros(3))
    np.testing.assert_allclose(
        find_bias(7 * scores, costs, None, 7.0), 7 * find_bias(scores, costs, None, 1.0)
    )


def test_weights_are_copies_and_unknown_costs_take_no_part() -> None:
    scores, costs = problem(100)
    weight = np.random.default_rng(1).integers(0, 4, 100)
    copies = np.repeat(np.arange(100), weight)
    weighted = find_bias(scores, costs, weight.astype(float), 1.0)
    np.testing.assert_array_equal(weighted, find_bias(scores[copies], costs[copies], None, 1.0))
    some = costs.copy()
    some[::3, 1] = np.nan
    known = ~np.isnan(some[:, 1])
    np.testing.assert_array_equal(
        find_bias(scores, some, None, 1.0), find_bias(scores[known], costs[known], None, 1.0)
    )
    np.testing.assert_array_equal(find_bias(scores, costs * np.nan, None, 1.0), np.zeros(3))


def test_a_row_is_judged_with_the_bias_of_the_other_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, costs = problem(90)
    scores[80:] = np.nan
    folds = [(np.arange(40), np.arange(40, 80)), (np.arange(40, 80), np.arange(40))]
    bias, chosen = cross_fitted_bias(scores, costs, None, folds, 1.0)
    for seen, test in folds:
        other = find_bias(scores[seen], costs[seen], None, 1.0)
        np.testing.assert_array_equal(chosen[test], argmax_last(scores[test] + other))
    np.testing.assert_array_equal(bias, find_bias(scores[:80], costs[:80], None, 1.0))
    assert (chosen[80:] == -1).all()
    monkeypatch.setattr(bias_module, "MAX_BIAS_ROWS", 20)
    assert find_bias(scores[:80], costs[:80], None, 1.0).shape == (3,)

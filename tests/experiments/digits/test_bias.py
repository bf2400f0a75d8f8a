"""A bias per expert on held-out scores: what it minimises, and on which rows."""

import itertools

import numpy as np
import pytest

from experiments.digits.long_tail import BIAS_GRID, cross_fitted_bias, find_bias
from mild.core.decisions import argmax_last


def paid(scores, costs, bias):
    return float(costs[np.arange(len(costs)), argmax_last(scores + bias)].mean())


def problem(n=300, p=3, seed=0):
    """Scores that are right up to a bias, and costs."""
    rng = np.random.default_rng(seed)
    costs = rng.random((n, p))
    return -costs + 0.1 * rng.normal(size=(n, p)) + 0.3 * np.arange(p), costs


def test_two_experts_get_the_best_bias_of_the_grid():
    scores, costs = problem(p=2)
    pairs = itertools.product(BIAS_GRID, BIAS_GRID)
    tried = [paid(scores, costs, np.array(pair)) for pair in pairs]
    assert paid(scores, costs, find_bias(scores, costs)) == pytest.approx(min(tried))


@pytest.mark.parametrize("p", [2, 3, 6])
def test_a_known_shift_is_taken_back(p):
    scores, costs = problem(2000, p)
    found = find_bias(scores, costs)
    assert found.min() == 0
    np.testing.assert_allclose(found, 0.3 * np.arange(p)[::-1], atol=0.2)
    assert paid(scores, costs, found) < paid(scores, costs, np.zeros(p))


def test_scores_that_are_right_keep_no_bias():
    _, costs = problem()
    np.testing.assert_array_equal(find_bias(-costs, costs), np.zeros(3))


def test_a_row_is_judged_with_the_bias_of_the_other_folds():
    scores, costs = problem(80)
    folds = [(np.arange(40), np.arange(40, 80)), (np.arange(40, 80), np.arange(40))]
    bias, chosen = cross_fitted_bias(scores, costs, folds)
    for seen, held_out in folds:
        other = find_bias(scores[seen], costs[seen])
        np.testing.assert_array_equal(chosen[held_out], argmax_last(scores[held_out] + other))
    np.testing.assert_array_equal(bias, find_bias(scores, costs))

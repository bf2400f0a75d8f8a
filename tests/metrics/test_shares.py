"""Shares, and recall of the cheapest expert."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mild.core.costs import cheapest
from mild.errors import InvalidInputError
from mild.metrics import (
    balanced_recall,
    expert_recall,
    expert_shares,
    oracle_shares,
)

NAN = float("nan")


@st.composite
def distinct_routings(draw):
    """Costs without ties in any row, choices and whole-number weights."""
    n = draw(st.integers(1, 12))
    p = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    costs = rng.permuted(np.tile(np.arange(p, dtype=float), (n, 1)), axis=1)
    chosen = draw(arrays(np.int64, n, elements=st.integers(0, p - 1)))
    weights = draw(arrays(np.int64, n, elements=st.integers(1, 3)))
    return costs, chosen, weights


@given(distinct_routings())
def test_recall_matches_a_plain_loop(routing):
    costs, chosen, weights = routing
    for k, recall in enumerate(expert_recall(costs, chosen, weights)):
        rows = [i for i in range(len(costs)) if costs[i].argmin() == k]
        if not rows:
            assert np.isnan(recall)
            continue
        hit = sum(weights[i] for i in rows if chosen[i] == k)
        assert recall == pytest.approx(hit / sum(weights[i] for i in rows))


@given(distinct_routings(), st.randoms(use_true_random=False))
def test_permuting_experts_permutes_shares_and_recall(routing, random):
    costs, chosen, weights = routing
    p = costs.shape[1]
    order = list(range(p))
    random.shuffle(order)
    renamed = np.argsort(order)[chosen]
    moved = costs[:, order]
    shares = expert_shares(chosen, p, weights)
    np.testing.assert_allclose(expert_shares(renamed, p, weights), shares[order])
    np.testing.assert_allclose(oracle_shares(moved, weights), oracle_shares(costs, weights)[order])
    np.testing.assert_allclose(
        expert_recall(moved, renamed, weights), expert_recall(costs, chosen, weights)[order]
    )


@given(distinct_routings())
def test_weights_are_duplicated_rows(routing):
    costs, chosen, weights = routing
    many, sent = np.repeat(costs, weights, axis=0), np.repeat(chosen, weights)
    p = costs.shape[1]
    np.testing.assert_allclose(expert_shares(chosen, p, weights), expert_shares(sent, p))
    np.testing.assert_allclose(oracle_shares(costs, weights), oracle_shares(many))
    np.testing.assert_allclose(expert_recall(costs, chosen, weights), expert_recall(many, sent))


@given(distinct_routings())
def test_the_oracles_own_choices_have_its_shares_and_full_recall(routing):
    costs, _, weights = routing
    best = cheapest(costs)
    np.testing.assert_array_equal(
        oracle_shares(costs, weights), expert_shares(best, costs.shape[1], weights)
    )
    assert balanced_recall(costs, best, weights) == pytest.approx(1)


def test_ties_go_to_the_lowest_index():
    costs = [[1.0, 1.0, 1.0], [2.0, 1.0, 1.0]]
    np.testing.assert_array_equal(oracle_shares(costs), [0.5, 0.5, 0])
    np.testing.assert_array_equal(expert_recall(costs, [2, 2]), [0, 0, NAN])


def test_an_expert_never_asked_on_a_row_is_not_its_cheapest():
    np.testing.assert_array_equal(oracle_shares([[NAN, 5.0, NAN], [1.0, 5.0, NAN]]), [0.5, 0.5, 0])


def test_always_asking_the_majority_has_balanced_recall_one_over_the_number_of_experts():
    costs = np.ones((100, 3))
    costs[:98, 0] = costs[98, 1] = costs[99, 2] = 0
    assert balanced_recall(costs, np.zeros(100, int)) == pytest.approx(1 / 3)


def test_no_rows_are_refused():
    with pytest.raises(InvalidInputError, match="at least one row"):
        expert_shares([], 2)


def test_recall_counts_the_cheapest_expert_that_is_given():
    costs = [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [NAN, 2.0, 2.0]]
    recall = expert_recall(costs, [2, 0, 2], best=np.array([2, 1, 2]))
    np.testing.assert_array_equal(recall, [NAN, 0.0, 1.0])

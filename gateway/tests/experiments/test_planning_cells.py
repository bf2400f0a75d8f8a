"""Which outcomes to buy, on arrays: what labels remove, and the cells of a plan."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.planning.cells import (
    DIRECTIONS,
    head_features,
    plan_cells,
    random_cells,
    removed_regret,
    row_cells,
)
from mild_gateway.learning.pooled_heads import SparseOutcomes, pooled_heads


def fit(X, known):
    """Expected errors, and the heads."""
    heads = pooled_heads(X, SparseOutcomes.of_matrix(known), known.shape[1])
    return heads.expected(X), heads


@pytest.fixture
def case():
    """Two kinds of queries, an expert for each, one that is always wrong; 60 rows of 400 are known."""
    rng = np.random.default_rng(0)
    X = head_features(rng.normal(size=(400, 5)))
    kind = X[:, 0] > 0
    right = np.column_stack(
        [np.where(kind, 0.9, 0.3), np.where(kind, 0.3, 0.9), np.full(400, 0.02)]
    )
    errors = (rng.random((400, 3)) > right).astype(float)
    known = np.where(np.arange(400)[:, None] < 60, errors, np.nan)
    return X, known


def test_labels_never_remove_more_than_the_regret_and_more_labels_remove_more(case):
    X, known = case
    costs, heads = fit(X, known)
    everything = np.argwhere(np.isnan(known))
    some = removed_regret(costs, heads, everything[::20])
    assert 0 < some < removed_regret(costs, heads, everything) < removed_regret(costs, heads, None)
    assert removed_regret(costs, heads, everything[:0]) == pytest.approx(0)


def test_the_regret_of_two_experts_that_seem_equal_is_that_of_the_formula():
    known = np.full((100, 2), np.nan)
    known[:40] = (np.arange(40) % 2)[:, None]
    costs, heads = fit(np.zeros((100, 1)), known)
    # E[min(Z1, Z2)] = -sd / sqrt(pi) for independent normals of the same deviation.
    expected = heads.standard_errors[0] / np.sqrt(np.pi)
    assert removed_regret(costs, heads, None) == pytest.approx(expected, rel=0.3)


def test_a_plan_asks_the_experts_in_question_and_not_the_dominated_one(case):
    X, known = case
    unknown, dollars = np.isnan(known), np.full(known.shape, 0.01)
    cells = plan_cells(*fit(X, known), unknown, dollars, 1.0, np.random.default_rng(1))
    assert unknown[cells[:, 0], cells[:, 1]].all()
    assert len({tuple(cell) for cell in cells.tolist()}) == len(cells) <= 100
    counts = np.bincount(cells[:, 1], minlength=3)
    assert counts[2] < 0.1 * counts[:2].min()
    # Experts are compared on the same query; only the last one may be cut off by the sum.
    assert (np.bincount(cells[:, 0])[np.unique(cells[:, 0])] >= 2).mean() > 0.95


def test_an_expert_without_labels_is_asked(case):
    X, known = case
    known = np.column_stack([known, np.full(len(known), np.nan)])
    dollars = np.full(known.shape, 0.01)
    cells = plan_cells(*fit(X, known), np.isnan(known), dollars, 1.0, np.random.default_rng(1))
    assert (cells[:, 1] == 3).sum() > 10


def test_of_two_experts_that_are_known_alike_the_cheaper_one_is_asked_more_often():
    X = head_features(np.random.default_rng(0).normal(size=(2000, 3)))
    known = np.full((2000, 3), np.nan)
    known[:40, 0] = np.arange(40) % 10 == 0
    known[:40, 1:] = (np.arange(40) % 4 == 0)[:, None]
    dollars = np.tile([0.01, 0.001, 0.1], (2000, 1))
    found = fit(X, known)
    counts = sum(
        np.bincount(plan_cells(*found, np.isnan(known), dollars, 1e6, rng)[:, 1], minlength=3)
        for rng in map(np.random.default_rng, range(10))
    )
    assert counts[1] > 1.2 * counts[2] > 0


def test_nothing_is_asked_where_the_draws_agree():
    known = np.full((50, 2), np.nan)
    known[:40] = [0.0, 1.0]
    costs, heads = fit(np.zeros((50, 1)), known)
    cells = plan_cells(
        costs, heads, np.isnan(known), np.ones((50, 2)), 9.0, np.random.default_rng(0)
    )
    assert cells.shape == (0, 2)


@pytest.mark.parametrize("pick", [random_cells, row_cells])
def test_the_baselines_ask_unknown_cells_for_the_sum(pick):
    unknown = np.random.default_rng(0).random((100, 3)) < 0.7
    dollars = np.tile([0.1, 0.2, 0.3], (100, 1))
    cells = pick(unknown, dollars, 5.0, np.random.default_rng(1))
    paid = dollars[cells[:, 0], cells[:, 1]].sum()
    assert 4.7 < paid <= 5.0 + 1e-9
    assert unknown[cells[:, 0], cells[:, 1]].all()
    assert len(np.unique(cells, axis=0)) == len(cells)


def test_features_keep_their_leading_directions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 100)) * np.linspace(5, 1, 100)
    wide = head_features(X)
    assert wide.shape == (300, DIRECTIONS)
    assert wide.var(axis=0).sum() > 0.5 * X.var(axis=0).sum()
    assert (head_features(np.zeros((4, 2))) == 0).all()

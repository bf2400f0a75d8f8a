"""Which outcomes to buy, on arrays: the posterior of the heads, and the cells of a plan."""

from __future__ import annotations

import numpy as np
import pytest

from mild.tuning.planning import (
    DIRECTIONS,
    SLOPES,
    expected_saving,
    fit_posterior,
    head_features,
    plan_cells,
    random_cells,
    removed_regret,
    row_cells,
)


@pytest.fixture
def case():
    """Two kinds of queries, an expert for each, one that is always wrong; 60 rows of 400 are known."""
    rng = np.random.default_rng(0)
    X = head_features(rng.normal(size=(400, 5)))
    kind = X[:, 1] > 0
    right = np.column_stack(
        [np.where(kind, 0.9, 0.3), np.where(kind, 0.3, 0.9), np.full(400, 0.02)]
    )
    errors = (rng.random((400, 3)) > right).astype(float)
    known = np.where(np.arange(400)[:, None] < 60, errors, np.nan)
    return X, errors, known


def test_the_posterior_is_that_of_a_ridge_regression(case):
    X, _, known = case
    found = fit_posterior(X, known)
    rows = X[:60]
    slope = 1 / np.diag(np.linalg.inv(found.covariance[0]) - rows.T @ rows / found.noise)
    assert slope[0] == pytest.approx(0.05)
    assert min(abs(slope[1] / one - 1) for one in SLOPES) < 1e-6
    precision = np.diag(1 / slope) + rows.T @ rows / found.noise
    target = rows.T @ (known[:60, 0] - found.offset) / found.noise
    np.testing.assert_allclose(found.mean[0], np.linalg.solve(precision, target), rtol=1e-6)


def test_an_expert_without_labels_has_the_mean_of_the_others_and_the_widest_head(case):
    X, _, known = case
    known = np.column_stack([known, np.full(len(known), np.nan)])
    found = fit_posterior(X, known)
    np.testing.assert_allclose(found.errors(X)[:, 3], np.nanmean(known[:, :3], axis=0).mean())
    assert (found.variances(X)[:, 3] > found.variances(X)[:, :3].max(axis=1)).all()


@pytest.mark.parametrize("count", [1, 3, 80])
def test_what_labels_remove_is_the_variance_before_less_that_after(case, count):
    X, _, known = case
    found = fit_posterior(X, known)
    cells = np.column_stack([np.arange(100, 100 + count), np.ones(count, int)])
    asked = X[cells[:, 0]]
    after = np.linalg.inv(np.linalg.inv(found.covariance[1]) + asked.T @ asked / found.noise)
    expected = found.variances(X)[:, 1] - ((X @ after) * X).sum(axis=1)
    removed = found.removable(X, X, cells)
    np.testing.assert_allclose(removed[:, 1], expected, atol=1e-9)
    assert not removed[:, [0, 2]].any()


def test_labels_never_remove_more_than_the_regret_and_more_labels_remove_more(case):
    X, _, known = case
    found, asking = fit_posterior(X, known), np.zeros(known.shape)
    everything = np.argwhere(np.isnan(known))
    regret = removed_regret(found, X, asking, None)
    some = removed_regret(found, X, asking, everything[::20])
    most = removed_regret(found, X, asking, everything)
    assert 0 < some < most < regret


def test_the_saving_of_two_equal_experts_is_that_of_the_formula():
    # E[min(Z1, Z2)] = -sd * sqrt(1 / pi) for independent normals of the same deviation.
    found = expected_saving(np.zeros((4000, 2)), np.full((4000, 2), 0.04), np.random.default_rng(0))
    assert found == pytest.approx(0.2 / np.sqrt(np.pi), rel=0.02)


def test_a_plan_asks_the_experts_in_question_and_not_the_dominated_one(case):
    X, _, known = case
    unknown, dollars = np.isnan(known), np.full(known.shape, 0.01)
    found, rng = fit_posterior(X, known), np.random.default_rng(1)
    cells = plan_cells(found, X, np.zeros(known.shape), unknown, dollars, 1.0, rng)
    assert unknown[cells[:, 0], cells[:, 1]].all()
    assert len({tuple(cell) for cell in cells.tolist()}) == len(cells) <= 100
    counts = np.bincount(cells[:, 1], minlength=3)
    assert counts[2] < 0.1 * counts[:2].min()
    # Experts are compared on the same query; only the last one may be cut off by the sum.
    assert (np.bincount(cells[:, 0])[np.unique(cells[:, 0])] >= 2).mean() > 0.95


def test_of_two_experts_that_are_known_alike_the_cheaper_one_is_asked_more_often():
    X = head_features(np.random.default_rng(0).normal(size=(2000, 3)))
    known = np.full((2000, 3), np.nan)
    known[:40, 0] = np.arange(40) % 10 == 0
    known[:40, 1:] = (np.arange(40) % 4 == 0)[:, None]
    dollars = np.tile([0.01, 0.001, 0.1], (2000, 1))
    asking, rng = np.zeros(known.shape), np.random.default_rng(1)
    cells = plan_cells(fit_posterior(X, known), X, asking, np.isnan(known), dollars, 1e6, rng)
    counts = np.bincount(cells[:, 1], minlength=3)
    assert counts[1] > 1.2 * counts[2] > 0


def test_nothing_is_asked_where_the_draws_agree():
    X = np.ones((50, 1))
    known = np.full((50, 2), np.nan)
    known[:40] = [0.0, 1.0]
    found = fit_posterior(X, known)
    dollars = np.ones((50, 2))
    cells = plan_cells(
        found, X, np.zeros((50, 2)), np.isnan(known), dollars, 9.0, np.random.default_rng(0)
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


def test_features_keep_their_leading_directions_and_have_one_scale():
    rng = np.random.default_rng(0)
    wide = head_features(rng.normal(size=(300, 100)) * np.linspace(5, 1, 100))
    assert wide.shape == (300, DIRECTIONS + 1)
    assert (wide[:, 1:] ** 2).sum(axis=1).mean() == pytest.approx(1)
    assert (head_features(np.zeros((4, 2))) == [1, 0, 0]).all()

"""Heads from outcomes that are mostly unknown: what they recover, and what they shrink."""

import numpy as np
import pytest

from mild_gateway.learning.pooled_heads import SparseOutcomes, pooled_heads


def world(rng, n, d=4, p=3, common=1.0, own=0.5, noise=0.1):
    X = rng.normal(size=(n, d)) + 3.0
    coef = common * rng.normal(size=d) + own * rng.normal(size=(p, d))
    intercept = rng.normal(size=p)
    return X, coef, intercept, X @ coef.T + intercept + noise * rng.normal(size=(n, p))


def one_per_row(rng, values, shares=None):
    expert = rng.choice(values.shape[1], len(values), p=shares)
    rows = np.arange(len(values))
    return SparseOutcomes(rows, expert, values[rows, expert], np.ones(len(values)))


def test_known_heads_are_recovered_from_one_outcome_per_row():
    rng = np.random.default_rng(0)
    X, coef, intercept, values = world(rng, 6000)
    found = pooled_heads(X, one_per_row(rng, values), 3)
    np.testing.assert_allclose(found.coef, coef, atol=0.02)
    np.testing.assert_allclose(found.expected(X), X @ coef.T + intercept, atol=0.1)


def test_what_experts_have_in_common_is_learned_for_the_rare_ones():
    rng = np.random.default_rng(1)
    X, coef, intercept, values = world(rng, 1000, d=20, own=0.0)
    cells = one_per_row(rng, values, [0.495, 0.495, 0.01])
    assert (cells.expert == 2).sum() < 20
    found = pooled_heads(X, cells, 3)
    truth = X @ coef.T + intercept
    wrong = ((found.expected(X) - truth)[:, 2] ** 2).mean()
    assert wrong < 0.05 * truth[:, 2].var()


def test_a_lucky_expert_is_not_taken_for_the_best():
    rng = np.random.default_rng(2)
    picked = by_means = 0
    for _ in range(50):
        # Expert 0 is the best and well known; the others had ten answers each.
        counts = [500] + [10] * 20
        expert = np.repeat(np.arange(21), counts)
        value = (rng.random(expert.size) < np.where(expert == 0, 0.2, 0.4)).astype(float)
        X = rng.normal(size=(expert.size, 2))
        cells = SparseOutcomes(np.arange(expert.size), expert, value, np.ones(expert.size))
        level = pooled_heads(X, cells, 21).expected(X).mean(axis=0)
        means = np.bincount(expert, value) / np.array(counts)
        by_means += means.argmin() == 0
        picked += level.argmin() == 0
    assert by_means <= 25
    assert picked >= 42


def test_standard_errors_fall_with_the_number_of_outcomes():
    rng = np.random.default_rng(3)
    expert = np.repeat([0, 1, 2], [1000, 100, 10])
    value = (rng.random(expert.size) < 0.5).astype(float)
    cells = SparseOutcomes(np.arange(expert.size), expert, value, np.ones(expert.size))
    found = pooled_heads(rng.normal(size=(expert.size, 2)), cells, 4).standard_errors
    assert (found > 0).all()
    assert found[0] < found[1] < found[2]
    assert found[0] == pytest.approx(0.5 / np.sqrt(1000), rel=0.2)


@pytest.mark.parametrize("shrink", [True, False])
def test_an_expert_without_outcomes_is_like_the_others(shrink):
    rng = np.random.default_rng(4)
    X, _, _, values = world(rng, 2000, own=0.0)
    found = pooled_heads(X, one_per_row(rng, values), 4, shrink_levels=shrink)
    level = found.expected(X).mean(axis=0)
    assert level[:3].min() <= level[3] <= level[:3].max()
    assert found.standard_errors[3] > 2 * found.standard_errors[:3].max()
    np.testing.assert_allclose(found.coef[3], found.coef[:3].mean(axis=0), atol=0.1)


def test_a_weight_is_so_many_rows():
    rng = np.random.default_rng(5)
    X, _, _, values = world(rng, 600)
    cells = one_per_row(rng, values)
    twice = SparseOutcomes(
        *(np.repeat(one, 2) for one in (cells.row, cells.expert, cells.value)), np.ones(1200)
    )
    weighted = SparseOutcomes(cells.row, cells.expert, cells.value, np.full(600, 7.0))
    plain = pooled_heads(X, cells, 3)
    # All weights alike say nothing; the same outcome twice makes it surer.
    np.testing.assert_allclose(pooled_heads(X, weighted, 3).coef, plain.coef, rtol=1e-9)
    assert (pooled_heads(X, twice, 3).standard_errors < plain.standard_errors).all()


def test_weights_correct_for_rows_that_were_drawn_rarely():
    rng = np.random.default_rng(6)
    hard = rng.random(20_000) < 0.5
    # Expert 0 was asked mostly about easy queries, of which the features say nothing.
    chance = np.where(hard, 0.1, 0.9)
    asked = rng.random(hard.size) < chance
    error = (rng.random(hard.size) < np.where(hard, 0.8, 0.1)).astype(float)
    X, rows = np.zeros((hard.size, 1)), np.flatnonzero(asked)
    none = np.zeros(rows.size, int)
    plain = pooled_heads(X, SparseOutcomes(rows, none, error[rows], np.ones(rows.size)), 1)
    weighted = pooled_heads(X, SparseOutcomes(rows, none, error[rows], 1 / chance[rows]), 1)
    assert plain.intercept[0] == pytest.approx(0.17, abs=0.02)
    assert weighted.intercept[0] == pytest.approx(0.45, abs=0.03)


def test_cells_of_a_matrix_are_its_known_entries():
    values = np.array([[0.0, np.nan], [np.nan, np.nan], [1.0, 0.5]])
    cells = SparseOutcomes.of_matrix(values)
    assert list(zip(cells.row, cells.expert, cells.value, strict=True)) == [
        (0, 0, 0.0), (2, 0, 1.0), (2, 1, 0.5),
    ]  # fmt: skip
    both = cells.joined(cells, 3)
    assert both.row.tolist() == [0, 2, 2, 3, 5, 5]
    assert cells.scaled(np.array([2.0, 0.5])).value.tolist() == [0.0, 0.5, 1.0]


def test_constant_features_and_few_outcomes_give_finite_heads():
    cells = SparseOutcomes(np.array([0, 1]), np.array([0, 1]), np.array([0.0, 1.0]), np.ones(2))
    found = pooled_heads(np.ones((2, 3)), cells, 2)
    for values in (found.coef, found.intercept, found.standard_errors):
        assert np.isfinite(values).all()

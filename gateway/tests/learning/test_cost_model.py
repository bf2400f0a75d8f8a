"""The cost model learns what there is, and never from the rows that it judges."""

import numpy as np
import pytest

from mild_gateway.learning.cost_model import expected_costs


def test_a_linear_cost_is_found_for_each_expert():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    slopes = rng.normal(size=(4, 3))
    truth = X @ slopes + [5.0, 6.0, 7.0]
    drawn = rng.integers(0, 3, 900)
    costs = truth[np.arange(900), drawn] + 0.1 * rng.normal(size=900)
    found = expected_costs(X, drawn, costs, np.arange(900), 3)
    assert np.abs(found - truth).max() < 0.15


def test_pure_noise_is_shrunk_to_the_mean():
    rng = np.random.default_rng(0)
    X, costs = rng.normal(size=(300, 40)), rng.normal(size=300) + 3
    found = expected_costs(X, np.zeros(300, int), costs, np.arange(300), 1)
    assert np.abs(found - 3).max() < 0.5


def test_a_row_does_not_see_its_own_cost_nor_those_of_its_episode():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 3))
    drawn, costs = rng.integers(0, 2, 120), rng.random(120)
    groups = np.repeat(np.arange(40), 3)
    before = expected_costs(X, drawn, costs, groups, 2)
    changed = costs.copy()
    changed[:3] = 1e6
    after = expected_costs(X, drawn, changed, groups, 2)
    assert np.array_equal(before[:3], after[:3])
    assert not np.array_equal(before[3:], after[3:])


@pytest.mark.parametrize("width", [1, 5])
def test_rare_and_absent_experts_and_constant_features_have_finite_expectations(width):
    X = np.ones((30, width))
    drawn = np.array([0] * 27 + [1] * 2 + [-1])
    costs = np.where(drawn == 1, 4.0, 2.0)
    found = expected_costs(X, drawn, costs, np.arange(30), 3)
    assert np.isfinite(found).all()
    assert np.allclose(found[:, 0], 2.0)
    assert ((found[:, 2] >= 2.0) & (found[:, 2] <= 2.2)).all()

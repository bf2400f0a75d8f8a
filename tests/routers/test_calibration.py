"""Calibration on held-out rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

from mild.policies import BlendPolicy
from mild.routers.baselines import ConstantRouter
from mild.routers.calibration import LEAST_ROWS, fit_calibration
from mild.routers.cost_models import KNNRouter, PricedRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.search import RouterCV
from mild.routers.stack import BlendRouter

N = 400


@pytest.fixture(scope="module")
def data():
    """Two experts whose errors depend on the first feature, and much noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 6))
    chance = 1 / (1 + np.exp(-np.column_stack([X[:, 0], -X[:, 0]])))
    return X, (rng.random((N, 2)) < chance).astype(float)


@pytest.fixture(scope="module")
def folds():
    return list(KFold(3, shuffle=True, random_state=0).split(np.zeros(N)))


def test_overconfident_estimates_get_a_small_slope(data, folds):
    X, costs = data
    # One neighbour is always sure.
    found = fit_calibration(KNNRouter(n_neighbors=1).fit(X, costs), X, costs, folds)
    assert all(0 < slope < 0.6 for slope in found.slopes)
    before, after = found.squared_error
    assert after < 0.7 * before
    assert found.decides == (found.loss[1] <= found.loss[0])
    assert found.rows == N
    assert not found.logistic


def test_calibrated_estimates_have_the_held_out_mean(data, folds):
    X, costs = data
    router = KNNRouter(n_neighbors=1).fit(X, costs)
    found = fit_calibration(router, X, costs, folds)
    held = np.empty_like(costs)
    for train, test in folds:
        held[test] = clone(router).fit(X[train], costs[train]).expected_costs(X[test])
    slopes, offsets = found.slopes_and_offsets
    np.testing.assert_allclose((slopes * held + offsets).mean(axis=0), costs.mean(axis=0))


def test_platt_scaling_of_an_error_head(data, folds):
    X, errors = data
    wide = np.random.default_rng(1).normal(size=(N, 60))
    X = np.hstack([X, wide])  # enough features to be sure of what is noise
    prices = np.array([0.0, 0.1])
    router = PricedRouter(alpha=1e-6).fit(X, errors, prices=prices)
    found = fit_calibration(router, X, errors + prices, folds, errors, prices)
    assert found.logistic
    assert all(0 < slope < 0.9 for slope in found.slopes)
    assert found.squared_error[1] < found.squared_error[0]


def test_an_expert_with_few_rows_keeps_its_estimates(data, folds):
    X, costs = data
    few = costs.copy()
    few[LEAST_ROWS - 5 :, 1] = np.nan
    found = fit_calibration(KNNRouter(n_neighbors=1).fit(X, few), X, few, folds)
    assert (found.slopes[1], found.offsets[1]) == (1.0, 0.0)
    assert found.slopes[0] < 1


def test_estimates_of_the_wrong_sign_become_the_mean(data, folds):
    X, costs = data

    class Opposite(RidgeRouter):
        def _fit(self, X, costs, sample_weight):
            return super()._fit(X, 1 - costs, sample_weight)

    found = fit_calibration(Opposite().fit(X, costs), X, costs, folds)
    assert found.slopes == [0.0, 0.0]
    assert found.offsets == pytest.approx(costs.mean(axis=0).tolist())


@pytest.mark.parametrize("router", [LinearRouter(), ConstantRouter(), RouterCV(safe=True, cv=2)])
def test_without_expected_costs_there_is_nothing_to_calibrate(folds, router):
    rng = np.random.default_rng(2)
    X, costs = rng.normal(size=(N, 2)), rng.integers(0, 2, (N, 2)).astype(float)
    assert fit_calibration(router.fit(X, costs), X, costs, folds) is None


def test_an_expert_that_is_asked_in_one_fold_only_is_no_error(data, folds):
    X, costs = data
    rare = costs.copy()
    rare[:, 1] = np.nan
    rare[folds[0][1][:2], 1] = 1.0
    assert fit_calibration(RidgeRouter().fit(X, rare), X, rare, folds) is None


def test_a_stack_is_calibrated_by_the_estimates_that_it_made(data, folds):
    X, costs = data
    members = [("near", KNNRouter(5)), ("linear", RidgeRouter())]
    router = BlendRouter(members, cv=folds).fit(X, costs)
    assert isinstance(router.policy_, BlendPolicy)
    train, test = folds[1]
    parts = [clone(member).fit(X[train], costs[train]).policy_ for _, member in members]
    policy = BlendPolicy(
        [*parts, router.policy_.members[-1]], router.policy_.weights, router.policy_.levels
    )
    np.testing.assert_allclose(
        router.held_out_costs_[test], policy.expected_costs(X[test]), atol=1e-9
    )
    found = fit_calibration(router, X, costs, folds)
    assert found is None or found.rows == N


def test_of_many_rows_the_estimates_of_a_stack_are_judged_on_those_that_are_looked_at(
    data, folds, monkeypatch
):
    X, costs = data
    router = BlendRouter([("knn", KNNRouter(n_neighbors=1))], cv=folds).fit(X, costs)
    everything = fit_calibration(router, X, costs, folds)
    monkeypatch.setattr("mild.routers.calibration.MAX_ROWS", N - 1)
    half = fit_calibration(router, X, costs, folds)
    assert half.rows == sum(len(test[::2]) for _, test in folds) < everything.rows
    np.testing.assert_allclose(half.loss, everything.loss, atol=0.1)

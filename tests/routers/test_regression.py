import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.linear_model import Ridge

from mild.errors import InvalidInputError
from mild.routers.cost_models import RidgeRouter


def problem(n=60, d=5, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 1
    return X, np.abs(X @ rng.normal(size=(d, p)) + rng.normal(size=(n, p)))


@pytest.mark.parametrize("shape", [(60, 5), (12, 30)])
def test_satisfies_the_normal_equations(shape):
    X, costs = problem(*shape)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(X))
    router = RidgeRouter(alpha=0.7).fit(X, costs, weight)
    residual = X @ router.coef_.T + router.intercept_ - costs
    slope = (weight[:, None] * residual).T @ X + 0.7 * router.coef_
    assert_allclose(slope, 0, atol=1e-9)
    assert_allclose(weight @ residual, 0, atol=1e-9)


def test_each_expert_is_fitted_on_the_rows_that_asked_it():
    X, costs = problem()
    costs[::2, 1] = np.nan
    costs[5:20, 2] = np.nan
    router = RidgeRouter(alpha=2.0).fit(X, costs)
    for k in range(3):
        asked = ~np.isnan(costs[:, k])
        alone = Ridge(alpha=2.0).fit(X[asked], costs[asked, k])
        assert_allclose(router.coef_[k], alone.coef_, atol=1e-10)
        assert_allclose(router.intercept_[k], alone.intercept_, atol=1e-10)


def test_sparse_rows_with_missing_costs_give_the_dense_solution():
    X, costs = problem()
    X[X < 0.5] = 0
    costs[::3, 0] = np.nan
    dense = RidgeRouter().fit(X, costs)
    thin = RidgeRouter().fit(sparse.csr_array(X), costs)
    assert_allclose(thin.coef_, dense.coef_, atol=1e-7)
    assert_allclose(thin.intercept_, dense.intercept_, atol=1e-7)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_without_penalty_collinear_features_do_no_harm(container):
    X, costs = problem()
    doubled = container(np.hstack([X, X]))
    router = RidgeRouter(alpha=0.0).fit(doubled, costs)
    plain = RidgeRouter(alpha=0.0).fit(X, costs)
    assert_allclose(router.expected_costs(doubled), plain.expected_costs(X), atol=1e-5)


def test_the_intercept_is_not_penalised():
    X, costs = problem()
    router = RidgeRouter(alpha=1e12).fit(X, costs)
    assert_allclose(router.expected_costs(X), np.tile(costs.mean(axis=0), (len(X), 1)), atol=1e-6)


def test_decides_for_the_least_expected_cost():
    X, costs = problem()
    router = RidgeRouter().fit(X, costs)
    assert (router.predict(X) == router.expected_costs(X).argmin(axis=1)).all()


def test_refuses_an_expert_whose_rows_all_weigh_nothing():
    X, costs = problem()
    costs[1:, 1] = np.nan
    weight = np.ones(len(X))
    weight[0] = 0
    with pytest.raises(InvalidInputError, match=r"row of positive weight .* expert 1 has none"):
        RidgeRouter().fit(X, costs, weight)

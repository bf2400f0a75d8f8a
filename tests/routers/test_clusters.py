"""ClusterRouter: memberships by linear discriminants, and shrunken mean costs of clusters."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from mild.routers.clusters import ClusterRouter
from mild.routers.search import RouterCV


def blobs(n=120, seed=0):
    """Inputs of three kinds, far from each other; expert k is cheap for kind k."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(n) % 3
    X = 3 * np.eye(3)[kinds] + 0.5 * rng.normal(size=(n, 3))
    return X, 1 - np.eye(3)[kinds] + 0.1 * rng.random((n, 3)), kinds


def in_order_of_kinds(router, X, kinds):
    """Index of the cluster that the inputs of each kind belong to."""
    members = router.policy_.memberships(X).argmax(axis=1)
    return [int(np.bincount(members[kinds == kind]).argmax()) for kind in range(3)]


def test_memberships_are_those_of_linear_discriminant_analysis():
    X, costs, kinds = blobs()
    router = ClusterRouter(3, diagonal=0.0, temperature=1.0).fit(X, costs)
    peer = LinearDiscriminantAnalysis(solver="lsqr").fit(X, kinds)
    memberships = router.policy_.memberships(X)[:, in_order_of_kinds(router, X, kinds)]
    assert_allclose(memberships, peer.predict_proba(X), atol=1e-6)


def test_expected_costs_are_shrunken_means_weighed_by_membership():
    X, costs, kinds = blobs()
    router = ClusterRouter(3, shrinkage=5.0).fit(X, costs)
    means = np.stack([(costs[kinds == g].sum(0) + 5 * costs.mean(0)) / (40 + 5) for g in range(3)])
    memberships = router.policy_.memberships(X)[:, in_order_of_kinds(router, X, kinds)]
    assert_allclose(router.expected_costs(X), memberships @ means)
    assert router.n_clusters_ == 3


def test_a_higher_temperature_is_less_certain():
    X, costs, _ = blobs()
    sure = ClusterRouter(3, temperature=1.0).fit(X, costs).policy_.memberships(X)
    unsure = ClusterRouter(3, temperature=8.0).fit(X, costs).policy_.memberships(X)
    assert (unsure.max(axis=1) < sure.max(axis=1)).all()


def test_clusters_are_the_kinds_of_the_inputs():
    X, costs, kinds = blobs()
    assert_array_equal(ClusterRouter(3).fit(X, costs).predict(X), kinds)


def test_a_missing_cost_is_left_out_of_the_means():
    X, costs, kinds = blobs()
    costs[0, 0] = np.nan
    router = ClusterRouter(3, shrinkage=0.0).fit(X, costs)
    first = in_order_of_kinds(router, X, kinds)[0]
    assert_allclose(router.policy_.costs[first], np.nanmean(costs[kinds == 0], axis=0))


def test_a_search_tries_three_numbers_of_clusters():
    X, costs, kinds = blobs()
    search = RouterCV(families="clusters", cv=3).fit(X, costs)
    assert [params["n_clusters"] for params in search.cv_results_["params"]] == [6, 12, 16]
    assert_array_equal(search.predict(X), kinds)

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from mild.policies.costs import nearest
from mild.routers.cost_models import KNNRouter


def problem(n=50, d=3, p=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.uniform(size=(n, p))


def slow_costs(X, costs, weight, query, k):
    """Neighbours one by one, each taking what is left of the k places."""
    result = np.empty((len(query), costs.shape[1]))
    for i, x in enumerate(query):
        left = float(k)
        total, mass = np.zeros(costs.shape[1]), np.zeros(costs.shape[1])
        for j in np.argsort(((X - x) ** 2).sum(axis=1), kind="stable"):
            part = min(left, weight[j])
            left -= part
            for e, cost in enumerate(costs[j]):
                if not np.isnan(cost):
                    total[e] += part * cost
                    mass[e] += part
        for e in range(costs.shape[1]):
            known = ~np.isnan(costs[:, e])
            mean = np.average(costs[known, e], weights=weight[known])
            result[i, e] = total[e] / mass[e] if mass[e] > 0 else mean
    return result


@pytest.mark.parametrize("n_neighbors", [1, 4, 50])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_expected_costs_are_means_over_the_nearest_rows(n_neighbors, container):
    X, costs = problem()
    costs[np.random.default_rng(1).uniform(size=costs.shape) < 0.4] = np.nan
    costs[np.isnan(costs).all(axis=1), 0] = 0.5
    query = np.random.default_rng(2).normal(size=(20, 3))
    router = KNNRouter(n_neighbors).fit(container(X), costs)
    expected = slow_costs(X, costs, np.ones(50), query, n_neighbors)
    assert_allclose(router.expected_costs(query), expected)
    assert_allclose(router.expected_costs(sparse.csr_array(query)), expected)


def test_neighbours_are_taken_until_their_weights_reach_the_number():
    X, costs = problem()
    weight = np.random.default_rng(3).uniform(0, 2.5, 50)
    query = np.random.default_rng(2).normal(size=(20, 3))
    router = KNNRouter(6).fit(X, costs, weight)
    assert_allclose(router.expected_costs(query), slow_costs(X, costs, weight, query, 6))


def test_neighbours_are_clipped_to_the_rows():
    X, costs = problem(n=5)
    router = KNNRouter(20).fit(X, costs)
    assert router.n_neighbors_ == 5
    assert_allclose(router.expected_costs(X), np.tile(costs.mean(axis=0), (5, 1)))


def test_features_far_from_the_origin_keep_their_digits_in_float32():
    X, costs = problem(n=300)
    far = (X + 1000).astype(np.float32)
    chosen = KNNRouter(1).fit(far, costs).expected_costs(far)
    assert_allclose(chosen, costs, rtol=1e-6)


def test_rows_of_weight_zero_are_no_neighbours():
    X, costs = problem()
    weight = np.ones(50)
    weight[:10] = 0
    expected = KNNRouter(4).fit(X[10:], costs[10:]).expected_costs(X)
    assert_array_equal(KNNRouter(4).fit(X, costs, weight).expected_costs(X), expected)


def test_rows_that_tie_for_the_last_places_share_what_is_left():
    X = [[0.0], [1.0], [-1.0], [1.0], [5.0]]
    costs = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [9.0, 9.0]]
    # Of two places one is taken by the row at 0; three rows at the distance 1 have a third of the other.
    found = KNNRouter(n_neighbors=2).fit(X, costs).expected_costs([[0.0]])
    assert_allclose(found, [[(2 / 3) / 2, (1 + 1 / 3) / 2]])
    # The same with weights: 1 of three is taken at 0, and ties of weights 2, 4 and 2 share the other 2.
    weight = [1.0, 2.0, 4.0, 2.0, 2.0]
    found = KNNRouter(n_neighbors=3).fit(X, costs, weight).expected_costs([[0.0]])
    assert_allclose(found, [[2 * (6 / 8) / 3, (1 + 2 * (4 / 8)) / 3]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_neither_rounding_nor_the_order_of_the_rows_decides_between_copies(
    dtype, container, weighted
):
    rng = np.random.default_rng(4)
    kinds = rng.normal(3.0, 1.0, size=(7, 40))
    X = kinds[rng.integers(7, size=300)].astype(dtype)
    costs = rng.uniform(size=(300, 3))
    weight = rng.uniform(0.5, 1.5, 300) if weighted else None
    expected = (
        KNNRouter(10)
        .fit(container(X), costs, weight)
        .policy_.costs_by_neighbours(container(X[:50]), [3, 10, 70])
    )
    order = rng.permutation(300)
    if weighted:
        weight = weight[order]
    units = rng.integers(-4, 5, size=X.shape)
    rounded = (X * (1 + units * np.finfo(dtype).eps)).astype(dtype)
    policy = KNNRouter(10).fit(container(rounded[order]), costs[order], weight).policy_
    found = policy.costs_by_neighbours(container(rounded[:50]), [3, 10, 70])
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize("count", [1, 7, 60])
def test_a_bound_from_a_sample_finds_the_same_neighbours(count):
    distances = np.random.default_rng(0).normal(size=(40, 3000))
    # Sorted, alike and spiked rows are where a sample might mislead.
    distances[0].sort()
    distances[1] = 0.0
    distances[2, 1::16] = -9.0
    distances[3, ::16] = 9.0
    found = nearest(distances, count)
    assert all(len(set(row)) == count for row in found.tolist())
    values = np.sort(np.take_along_axis(distances, found, axis=1), axis=1)
    assert_array_equal(values, np.sort(distances, axis=1)[:, :count])


@pytest.mark.parametrize("scale", [1e3, 1e9, 1e12])
def test_a_row_far_away_or_large_features_make_no_others_tie(scale):
    X, costs = problem(n=300, d=20)
    X = X.astype(np.float32)
    query = X[:50] + np.float32(0.1)
    expected = KNNRouter(5).fit(X, costs).expected_costs(query)
    far = np.vstack([X, scale * np.ones((1, 20), np.float32)])
    found = KNNRouter(5).fit(sparse.csr_array(far), np.vstack([costs, costs[:1]]))
    assert_allclose(found.expected_costs(sparse.csr_array(query)), expected, rtol=1e-4)
    large = KNNRouter(5).fit(X * np.float32(scale), costs)
    assert_allclose(large.expected_costs(query * np.float32(scale)), expected, rtol=1e-4)


def test_other_numbers_of_neighbours_share_the_distances():
    X, costs = problem(400, 5)
    costs[::3, 1] = np.nan
    queries = problem(30, 5, seed=2)[0]
    found = KNNRouter(n_neighbors=50).fit(X, costs).policy_.costs_by_neighbours(queries, [1, 8, 50])
    for count, part in zip((1, 8, 50), found, strict=True):
        assert_array_equal(part, KNNRouter(n_neighbors=count).fit(X, costs).expected_costs(queries))

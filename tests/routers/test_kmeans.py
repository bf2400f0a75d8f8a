import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from mild.routers.kmeans import distinct_rows, fit_centres, nearest_centres


def test_copies_and_their_order_make_no_difference():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 6))
    weight = rng.uniform(0.5, 2.0, 30)
    copies = np.concatenate([rows, rows])
    order = rng.permutation(60)
    units = rng.integers(-4, 5, copies.shape) * np.finfo(float).eps
    expected_rows, expected_mass = distinct_rows(rows, 2 * weight)
    found_rows, found_mass = distinct_rows(
        (copies * (1 + units))[order], np.concatenate([weight, weight])[order]
    )
    assert_allclose(found_rows, expected_rows, rtol=1e-12)
    assert_allclose(found_mass, expected_mass)
    assert len(expected_rows) == 30


def test_rows_that_are_equally_far_apart_are_divided_in_one_way():
    rows = np.eye(8)
    weight = np.ones(8)
    centres = fit_centres(rows, weight, 3, 0, n_init=4)
    expected = nearest_centres(rows, centres)
    for seed in range(5):
        units = np.random.default_rng(seed).integers(-4, 5, rows.shape)
        other = rows * (1 + units * np.finfo(float).eps)
        found = fit_centres(other, weight, 3, 0, n_init=4)
        assert_allclose(found, centres, atol=1e-12)
        assert_array_equal(nearest_centres(other, found), expected)


def test_clusters_that_stand_apart_are_found():
    rng = np.random.default_rng(1)
    places = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    labels = np.arange(90) % 3
    X = places[labels] + rng.normal(size=(90, 2))
    rows, mass = distinct_rows(X, np.ones(90))
    found = nearest_centres(X, fit_centres(rows, mass, 3, 0, n_init=4))
    assert len(set(zip(found.tolist(), labels.tolist(), strict=True))) == 3

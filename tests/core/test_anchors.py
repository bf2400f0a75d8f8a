import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mild.core.margins import FEWEST, WIDEST, find_anchors, group_sums, margin_groups

ACCURACY = {np.float32: 1e-7, np.float64: 1e-13}


def margins_of(ratio, size, seed=0):
    return np.exp(np.random.default_rng(seed).uniform(0, np.log(ratio), size)) * 0.3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ratio", [1.5, 4.0, 30.0, 1000.0, 9000.0])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_powers_of_all_margins_are_weighted_sums_of_the_anchors_powers(dtype, ratio, scale):
    groups = margin_groups(margins_of(ratio, 200) * scale)
    anchors = find_anchors(groups, dtype)
    assert anchors.inverse.size <= 0.6 * 200
    gaps = np.append(0, np.geomspace(1e-6, 1e7, 4001)) * scale
    exact = np.exp(-np.outer(gaps, [1 / group.margin for group in groups]))
    guess = np.exp(-np.outer(gaps, anchors.inverse)) @ anchors.weights.T
    assert_allclose(guess, exact, rtol=0, atol=ACCURACY[dtype])


def test_anchors_are_margins_and_stand_for_themselves():
    groups = margin_groups(margins_of(5.0, 60))
    anchors = find_anchors(groups, np.float32)
    assert_allclose(1 / anchors.inverse, [groups[g].margin for g in anchors.members])
    assert_array_equal(anchors.weights[anchors.members], np.eye(anchors.inverse.size))


def test_the_number_of_anchors_hardly_grows_with_that_of_margins():
    sizes = [
        find_anchors(margin_groups(margins_of(20.0, n)), np.float32).inverse.size for n in (60, 600)
    ]
    assert sizes[1] <= sizes[0] + 2


def test_single_precision_takes_fewer_than_double():
    groups = margin_groups(margins_of(4.0, 100))
    single = find_anchors(groups, np.float32)
    double = find_anchors(groups, np.float64)
    assert single.inverse.size < double.inverse.size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_there_are_no_anchors_where_they_would_not_save_work(dtype):
    assert find_anchors(margin_groups(np.linspace(1, 1.1, FEWEST - 1)), dtype) is None
    assert find_anchors(margin_groups(np.geomspace(1, 900, FEWEST + 2)), dtype) is None
    assert find_anchors(margin_groups(np.geomspace(1, 1.01 * WIDEST, 500)), dtype) is None
    assert find_anchors(margin_groups(np.geomspace(1e-300, 1e300, 500)), dtype) is None


def test_group_sums_add_the_experts_of_each_group():
    rng = np.random.default_rng(1)
    for margins in (np.array([2.0, 1.0, 3.0]), np.array([2.0, 1.0, 2.0, 3.0, 1.0])):
        groups = margin_groups(margins)
        values = rng.normal(size=(4, margins.size, 6))
        expected = [values[:, group.members].sum(axis=1) for group in groups]
        assert_allclose(group_sums(values, groups), np.stack(expected, axis=1))
        assert_allclose(group_sums(values[0], groups), np.stack(expected, axis=1)[0])

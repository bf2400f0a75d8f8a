"""Orders of which every stretch is stratified."""

from __future__ import annotations

import numpy as np
import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.experts.splits import check_seed, halves, stratified_order


def test_the_order_is_a_permutation_that_depends_on_the_generator():
    labels = np.random.default_rng(0).integers(0, 7, size=500)
    first, again, other = (stratified_order(labels, np.random.default_rng(s)) for s in (1, 1, 2))
    assert np.sort(first).tolist() == list(range(500))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(("start", "stop"), [(0, 100), (100, 350), (350, 500)])
def test_every_stretch_holds_the_classes_in_their_shares(start, stop):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [250, 150, 90, 10]))
    order = stratified_order(labels, np.random.default_rng(3))
    counts = np.bincount(labels[order[start:stop]], minlength=4)
    expected = np.array([250, 150, 90, 10]) * (stop - start) / 500
    assert np.abs(counts - expected).max() <= 1.5


def test_rows_of_a_class_come_in_random_order():
    labels = np.repeat([0, 1], 200)
    order = stratified_order(labels, np.random.default_rng(0))
    zeros = order[labels[order] == 0]
    assert abs(np.corrcoef(np.arange(200), zeros)[0, 1]) < 0.3


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", None])
def test_a_seed_must_be_a_non_negative_integer(seed):
    with pytest.raises(InvalidInputError, match="seed must be a non-negative integer; got"):
        check_seed(seed)


def test_numpy_integers_are_seeds():
    assert check_seed(np.int64(3)) == 3


def test_halves_share_no_row_and_hold_the_classes_in_their_shares():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(3), [50, 30, 11]))
    first, second = halves(labels, seed=4)
    assert sorted([*first, *second]) == list(range(91))
    assert (first == np.sort(first)).all()
    for half in (first, second):
        assert np.abs(np.bincount(labels[half]) - [25, 15, 5.5]).max() <= 1.5
    assert (halves(labels, seed=4)[0] == first).all()
    assert not np.array_equal(halves(labels, seed=5)[0], first)

"""The digits that scikit-learn carries."""

import numpy as np
from sklearn.datasets import load_digits

from mild.reproduce.data import load_images


def test_the_halves_are_all_the_digits_once_in_bytes():
    data = load_images("digits")
    both = np.concatenate([data.train_images, data.test_images]).reshape(1797, 64)
    original = np.rint(load_digits().data * 255 / 16)
    np.testing.assert_array_equal(
        both[np.lexsort(both.T)], original[np.lexsort(original.T)].astype(np.uint8)
    )
    assert {int(both.min()), int(both.max())} == {0, 255}


def test_the_split_is_stratified_and_always_the_same():
    data = load_images("digits")
    counts = [np.bincount(labels) for labels in (data.train_labels, data.test_labels)]
    assert np.abs(counts[0] - counts[1]).max() <= 1
    assert data.digest() == load_images("digits").digest()


def test_a_digit_in_the_mirror_is_another_and_the_note_says_it_is_for_trying_out():
    data = load_images("digits", None)
    assert not data.flip
    assert "not in the paper" in data.note

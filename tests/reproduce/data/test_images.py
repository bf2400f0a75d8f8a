"""A labelled set of images."""

import dataclasses

import numpy as np
import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.data import ImageData


def pixels(n, side=4):
    return np.arange(n * side * side * 3, dtype=np.uint8).reshape(n, side, side, 3)


def dots(**changed):
    fields = {
        "name": "dots",
        "train_images": pixels(3),
        "train_labels": np.array([0, 1, 1]),
        "test_images": pixels(2),
        "test_labels": np.array([1, 0]),
        "class_names": ("none", "some"),
        "flip": True,
    }
    return ImageData(**{**fields, **changed})


def test_labels_become_int64_and_class_names_a_tuple():
    data = dots(
        train_labels=[0, 1, 1], test_labels=np.array([1, 0], np.uint8), class_names=["a", "b"]
    )
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64
    assert data.class_names == ("a", "b")
    assert data.n_classes == 2
    assert data.note == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"train_images": pixels(3).astype(float)}, "train_images must be a uint8 array"),
        ({"train_images": pixels(3).tolist()}, "got list"),
        ({"test_images": pixels(2)[0]}, "test_images must be a uint8 array"),
        ({"test_images": pixels(0), "test_labels": []}, "at least one image"),
        ({"test_images": pixels(2, side=5)}, "one shape"),
        ({"train_labels": [0, 1]}, "train_labels must have shape"),
        ({"train_labels": [0, 1, 2]}, r"train_labels must lie in \[0, 2\); got 2"),
        ({"test_labels": [0, -1]}, r"test_labels must lie in \[0, 2\); got -1"),
        ({"test_labels": [0.0, 1.0]}, "test_labels must be integers"),
    ],
)
def test_what_breaks_a_rule_is_refused(changed, said):
    with pytest.raises(InvalidInputError, match=said):
        dots(**changed)


def test_digest_is_16_hex_digits_and_the_same_for_the_same_content():
    assert dots().digest() == dots().digest()
    assert len(dots().digest()) == 16
    assert int(dots().digest(), 16) >= 0


def test_digest_does_not_depend_on_how_arrays_lie_in_memory():
    scattered = np.asfortranarray(pixels(3))
    assert dots(train_images=scattered).digest() == dots().digest()


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "dashes"},
        {"train_images": pixels(3) + np.uint8(1)},
        {"train_labels": [1, 1, 1]},
        {"test_images": pixels(2)[::-1]},
        {"test_labels": [0, 1]},
        {"class_names": ("none", "many")},
    ],
)
def test_digest_changes_with_any_pixel_label_or_name(changed):
    assert dots(**changed).digest() != dots().digest()


def test_digest_is_not_changed_by_a_note():
    data = dots()
    assert dataclasses.replace(data, note="a part").digest() == data.digest()

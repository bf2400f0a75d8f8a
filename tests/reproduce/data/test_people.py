"""Answers of human annotators."""

import numpy as np
import pytest

from mild.exceptions import DataFileError, InvalidInputError, OptionError
from mild.reproduce.data import ImageData, check_people, read_people

ARRAYS = {
    "c10_clean_label": [1, 2, 9],
    "c10_aggre_label": [1, 2, 8],
    "c10_random_label1": [1, 0, 9],
    "c10_random_label2": [0, 0, 9],
    "c100_clean_label": [10, 20, 99],
    "c100_noisy_label": [10, 0, 99],
    "c100_clean_coarse_label": [1, 2, 3],
    "c100_noisy_coarse_label": [1, 2, 3],
}


@pytest.fixture
def make(tmp_path):
    def make_file(**changed):
        arrays = {name: np.array(values, np.uint8) for name, values in ARRAYS.items()}
        arrays.update(changed)
        np.savez(tmp_path / "people.npz", **{k: v for k, v in arrays.items() if v is not None})
        return tmp_path / "people.npz"

    return make_file


def images(labels, name="cifar10"):
    pixels = np.zeros((len(labels), 2, 2, 1), np.uint8)
    names = tuple(map(str, range(100)))
    return ImageData(name, pixels, labels, pixels, labels, names, flip=True)


def test_columns_of_cifar10_are_all_but_the_truth(make):
    people = read_people(make(), "cifar10")
    assert people.dataset == "cifar10"
    assert people.truth.tolist() == [1, 2, 9]
    assert set(people.columns) == {"aggre_label", "random_label1", "random_label2"}
    assert people.columns["random_label1"].tolist() == [1, 0, 9]
    assert people.columns["random_label1"].dtype == people.truth.dtype == np.int64


def test_coarse_labels_of_cifar100_are_left_out(make):
    people = read_people(make(), "cifar100")
    assert people.truth.tolist() == [10, 20, 99]
    assert list(people.columns) == ["noisy_label"]


def test_arrays_of_the_other_data_set_are_not_looked_at(make):
    file = make(c100_noisy_label=np.array(["not", "a", "number"]))
    assert set(read_people(file, "cifar10").columns) >= {"aggre_label"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"c10_clean_label": None}, "must hold c10_clean_label and at least one other"),
        ({"c10_aggre_label": np.array([1, 2])}, r"c10_aggre_label is int64 of shape \(2,\)"),
        ({"c10_aggre_label": np.array([1, 2, 10])}, r"\[0, 10\); c10_aggre_label holds 10"),
        ({"c10_clean_label": np.array([1, 2, -1])}, r"\[0, 10\); c10_clean_label holds -1"),
        ({"c10_random_label1": np.array([1.0, 2, 3])}, "integers.*c10_random_label1 is float64"),
        ({"c10_random_label1": np.array([None] * 3)}, "Python objects"),
        ({"c10_clean_label": np.array(1)}, "integers, one per image"),
    ],
)
def test_files_that_break_a_rule_are_refused(make, changed, said):
    with pytest.raises(DataFileError, match=rf"people\.npz .*{said}"):
        read_people(make(**changed))


def test_a_file_without_answers_is_refused(tmp_path):
    np.savez(tmp_path / "people.npz", c10_clean_label=[1])
    with pytest.raises(DataFileError, match=r"at least one other c10_\.\.\._label"):
        read_people(tmp_path / "people.npz")


def test_a_missing_and_a_cut_off_file_are_named(tmp_path, make):
    with pytest.raises(DataFileError, match=r"nobody\.npz is not there"):
        read_people(tmp_path / "nobody.npz")
    file = make()
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(
        DataFileError, match=r"people\.npz is not a \.npz archive, or it is cut off"
    ):
        read_people(file)


def test_a_data_set_without_annotators_is_refused(make):
    with pytest.raises(OptionError, match="'cifar10', 'cifar100'"):
        read_people(make(), "svhn")


def test_annotations_of_the_same_images_in_the_same_order_pass(make):
    check_people(read_people(make()), images([1, 2, 9]))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (images([1, 9, 2]), "labels do not match images: order differs at row 1"),
        (images([1, 2]), "3 labels and 2 training images"),
        (images([1, 2, 9], "cifar100"), "they are of cifar10, the images are of cifar100"),
    ],
)
def test_annotations_of_other_images_are_refused(make, data, said):
    with pytest.raises(InvalidInputError) as caught:
        check_people(read_people(make()), data)
    sentence = str(caught.value)
    assert said in sentence
    # Which file it is, and what to do.
    assert sentence.startswith(f"{make()}: ")
    assert sentence.endswith(
        "Name the annotations of these images (--people), or the images (--data-dir)."
    )

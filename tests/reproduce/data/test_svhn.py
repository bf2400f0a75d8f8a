"""SVHN from its .mat files, and the small stand-in."""

import numpy as np
import pytest
from scipy.io import savemat

from mild.exceptions import DataFileError
from mild.reproduce.data import load_images

STAND_IN = "svhn_test_first5000.npz"


def make(folder, name, digits, **changed):
    n = len(digits)
    X = np.random.default_rng(n).integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
    content = {"X": X, "y": np.array(digits, np.uint8)[:, None], **changed}
    folder.mkdir(exist_ok=True)
    kept = {key: value for key, value in content.items() if value is not None}
    savemat(folder / name, kept, do_compression=True)
    return X


@pytest.mark.parametrize("folder", ["", "svhn"])
def test_images_come_first_and_ten_means_zero(tmp_path, folder):
    X = make(tmp_path / folder, "train_32x32.mat", [1, 10, 9])
    make(tmp_path / folder, "test_32x32.mat", [10, 2])
    data = load_images("svhn", tmp_path)
    assert data.train_labels.tolist() == [1, 0, 9]
    assert data.test_labels.tolist() == [0, 2]
    np.testing.assert_array_equal(data.train_images[1], X[:, :, :, 1])
    assert data.class_names == tuple("0123456789")
    assert not data.flip
    assert data.note.endswith("SVHN has 73,257 and 26,032")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"X": None}, "must hold the arrays X and y; found y"),
        ({"X": np.zeros((2, 32, 32, 3), np.uint8)}, r"uint8 X of shape \(32, 32, 3, n\)"),
        ({"X": np.zeros((32, 32, 3, 2))}, "uint8 X of shape.*got float64"),
        (
            {"y": np.array([[1], [2], [3]], np.uint8)},
            r"shape \(2, 1\); got uint8 of shape \(3, 1\)",
        ),
        ({"y": np.array([[1], [11]], np.uint8)}, "digits 1 to 10.*got 11"),
        ({"y": np.array([[0], [1]], np.uint8)}, "digits 1 to 10.*got 0"),
        ({"y": np.array([[1.5], [1]])}, r"digits 1 to 10.*got 1\.5"),
        ({"y": "text"}, "one digit in y per image"),
    ],
)
def test_content_that_is_not_svhn_is_refused(tmp_path, changed, said):
    make(tmp_path, "train_32x32.mat", [1, 2])
    make(tmp_path, "test_32x32.mat", [1, 2], **changed)
    with pytest.raises(DataFileError, match=rf"test_32x32\.mat .*{said}.*md5 eb5a983be6a3154"):
        load_images("svhn", tmp_path)


@pytest.mark.parametrize("kept", [0, 60, 200, 2000])
def test_a_truncated_file_is_named_with_what_was_expected(tmp_path, kept):
    make(tmp_path, "train_32x32.mat", [1, 2])
    make(tmp_path, "test_32x32.mat", [1, 2])
    file = tmp_path / "train_32x32.mat"
    file.write_bytes(file.read_bytes()[:kept])
    said = r"train_32x32\.mat .*182,040,794 bytes, md5 e26dedcc.*mild reproduce fetch svhn"
    with pytest.raises(DataFileError, match=said):
        load_images("svhn", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    make(tmp_path, "train_32x32.mat", [1, 2])
    with pytest.raises(DataFileError, match=r"needs the file test_32x32\.mat"):
        load_images("svhn", tmp_path)


def stand_in(folder, **changed):
    arrays = {
        "x": np.zeros((5000, 32, 32, 3), np.uint8),
        "y": (np.arange(5000) % 10).astype(np.uint8),
        "all_y_test": np.zeros(7, np.uint8),
    }
    arrays["x"][:, 0, 0, 0] = np.arange(5000) // 20
    np.savez(folder / STAND_IN, **{**arrays, **changed})


def test_the_stand_in_is_split_in_order_and_says_what_it_is(tmp_path):
    stand_in(tmp_path)
    data = load_images("svhn5000", tmp_path)
    assert len(data.train_labels) == len(data.train_images) == 4000
    assert len(data.test_labels) == len(data.test_images) == 1000
    assert data.test_images[0, 0, 0, 0] == 200
    assert data.train_labels[:3].tolist() == [0, 1, 2]
    assert data.note == (
        "first 5,000 official test digits, split 4,000/1,000: a small stand-in for SVHN"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x": np.zeros((4999, 32, 32, 3), np.uint8)}, r"shape \(5000, 32, 32, 3\)"),
        ({"x": np.zeros((5000, 32, 32, 3), bool)}, "got bool"),
        ({"y": np.full(5000, 10)}, r"labels must lie in \[0, 10\); got 10"),
        ({"y": np.zeros(4999, int)}, "labels must have shape"),
        ({"y": np.array([None] * 5000)}, "y holds Python objects"),
    ],
)
def test_content_that_is_not_the_stand_in_is_refused(tmp_path, changed, said):
    stand_in(tmp_path, **changed)
    with pytest.raises(DataFileError, match=f"{said}.*place it there by hand"):
        load_images("svhn5000", tmp_path)


def test_a_stand_in_without_labels_is_refused(tmp_path):
    np.savez(tmp_path / STAND_IN, x=np.zeros(3))
    with pytest.raises(DataFileError, match="must hold the arrays x and y; y is not there"):
        load_images("svhn5000", tmp_path)


def test_a_missing_stand_in_is_said_to_have_no_source(tmp_path):
    with pytest.raises(DataFileError, match=f"needs the file {STAND_IN}.*no official source"):
        load_images("svhn5000", tmp_path)

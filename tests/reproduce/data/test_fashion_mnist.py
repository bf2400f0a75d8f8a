"""Fashion-MNIST."""

import numpy as np
import pytest

from mild.exceptions import DataFileError
from mild.reproduce.data import load_images
from mild.reproduce.data.fashion_mnist import MNIST_COUNTS


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("folder", ["", "fashion-mnist", "FashionMNIST/raw"])
def test_files_are_found_where_others_put_them(tmp_path, make_fashion, folder, zipped):
    arrays = make_fashion(tmp_path / folder, zipped)
    data = load_images("fashion-mnist", tmp_path)
    np.testing.assert_array_equal(data.train_images[..., 0], arrays["train-images-idx3-ubyte"])
    assert data.test_images.shape == (2, 28, 28, 1)
    assert data.train_labels.tolist() == [0, 1, 2, 3]
    assert data.class_names[0] == "t-shirt/top"
    assert data.flip


def test_a_folder_of_its_own_comes_before_files_that_may_be_of_mnist(tmp_path, make_fashion):
    make_fashion(tmp_path, n_train=9)
    make_fashion(tmp_path / "fashion-mnist", n_train=4)
    assert len(load_images("fashion-mnist", tmp_path).train_labels) == 4


def test_an_incomplete_folder_does_not_hide_a_complete_one(tmp_path, make_fashion):
    make_fashion(tmp_path, n_train=9)
    make_fashion(tmp_path / "fashion-mnist", n_train=4)
    (tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert len(load_images("fashion-mnist", tmp_path).train_labels) == 9


def test_labels_out_of_range_and_in_another_number_are_refused(tmp_path, make_fashion, idx):
    make_fashion(tmp_path, zipped=False)
    file = tmp_path / "train-labels-idx1-ubyte"
    file.write_bytes(idx(np.array([0, 1, 2, 10], np.uint8)))
    with pytest.raises(DataFileError, match=r"labels-idx1-ubyte .*lie in \[0, 10\); got 10"):
        load_images("fashion-mnist", tmp_path)
    file.write_bytes(idx(np.array([0, 1, 2], np.uint8)))
    with pytest.raises(DataFileError, match="does not fit its 4 images"):
        load_images("fashion-mnist", tmp_path)


def test_images_of_another_size_are_refused(tmp_path, make_fashion, idx):
    make_fashion(tmp_path, zipped=False)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((2, 32, 32), np.uint8)))
    with pytest.raises(DataFileError, match=r"images of shape \(28, 28\); got shape \(2, 32, 32\)"):
        load_images("fashion-mnist", tmp_path)


def test_a_truncated_file_is_named_with_what_was_expected(tmp_path, make_fashion):
    make_fashion(tmp_path)
    file = tmp_path / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-20])
    said = r"t10k-images-idx3-ubyte\.gz is not a complete .*4,422,102 bytes, md5 bef4ecab"
    with pytest.raises(DataFileError, match=said):
        load_images("fashion-mnist", tmp_path)


def test_mnist_under_the_same_names_is_refused(tmp_path, make_fashion, idx):
    make_fashion(tmp_path, zipped=False)
    labels = np.repeat(np.arange(10, dtype=np.uint8), MNIST_COUNTS)
    assert len(labels) == 60_000
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    images = idx(np.zeros((60_000, 28, 28), np.uint8))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(images)
    with pytest.raises(DataFileError, match="those of MNIST, the digits"):
        load_images("fashion-mnist", tmp_path)

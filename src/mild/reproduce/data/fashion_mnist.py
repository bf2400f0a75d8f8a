"""Fashion-MNIST from the official IDX files, gzipped or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mild.exceptions import DataFileError
from mild.reproduce.data.idx import read_idx
from mild.reproduce.data.images import ImageData, Labels, Pixels
from mild.reproduce.data.places import Place

__all__ = ["load_fashion_mnist"]

SIDE = 28
CLASS_NAMES = (
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# How often each digit occurs in the training half of MNIST, whose files have the same names.
MNIST_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)


def load_fashion_mnist(place: Place) -> ImageData:
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28 x 28 grey pixels."""
    files = place.find(
        ["fashion-mnist", "FashionMNIST/raw", ""], [(f"{name}.gz", name) for name in FILES]
    )
    train_images, train_labels = _read(place, *files[:2])
    test_images, test_labels = _read(place, *files[2:])
    if np.bincount(train_labels, minlength=len(CLASS_NAMES)).tolist() == list(MNIST_COUNTS):
        raise place.broken(
            files[1], "must hold the labels of Fashion-MNIST; it holds those of MNIST, the digits"
        )
    return ImageData(
        place.dataset, train_images, train_labels, test_images, test_labels, CLASS_NAMES, flip=True
    )


def _read(place: Place, images_file: Path, labels_file: Path) -> tuple[Pixels, Labels]:
    arrays = []
    for file, n_dimensions in ((images_file, 3), (labels_file, 1)):
        try:
            arrays.append(read_idx(file, n_dimensions))
        except DataFileError as error:
            raise place.broken(file, str(error)) from error
    images, labels = arrays
    if images.shape[1:] != (SIDE, SIDE) or not len(images):
        raise place.broken(
            images_file, f"must hold images of shape ({SIDE}, {SIDE}); got shape {images.shape}"
        )
    return images[..., None], place.labels(labels_file, labels, len(images), len(CLASS_NAMES))

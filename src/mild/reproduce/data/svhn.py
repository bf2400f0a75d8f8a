"""Street View House Numbers: the official .mat files, and a small stand-in."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from mild.exceptions import DataFileError
from mild.reproduce.data.images import ImageData, Labels, Pixels
from mild.reproduce.data.npz import read_npz
from mild.reproduce.data.places import Place
from mild.tables.columns import listed

__all__ = ["load_svhn", "load_svhn5000"]

SHAPE = (32, 32, 3)
N_CLASSES = 10
DIGITS = tuple(str(digit) for digit in range(N_CLASSES))
STAND_IN = "svhn_test_first5000.npz"
N_STAND_IN = 5000
N_STAND_IN_TRAIN = 4000


def load_svhn(place: Place) -> ImageData:
    """SVHN, cropped digits: 73,257 training and 26,032 test images of 32 x 32 pixels."""
    train_file, test_file = place.find(["", "svhn"], ["train_32x32.mat", "test_32x32.mat"])
    train_images, train_labels = _read_mat(place, train_file)
    test_images, test_labels = _read_mat(place, test_file)
    return ImageData(
        place.dataset, train_images, train_labels, test_images, test_labels, DIGITS, flip=False
    )


def load_svhn5000(place: Place) -> ImageData:
    """A small stand-in for SVHN: 5,000 of its test digits, the first 4,000 to train on."""
    (file,) = place.find(["", "svhn"], [STAND_IN])
    try:
        arrays = read_npz(file, lambda name: name in ("x", "y"))
    except DataFileError as error:
        raise place.broken(file, str(error)) from error
    for name in ("x", "y"):
        if name not in arrays:
            raise place.broken(file, f"must hold the arrays x and y; {name} is not there")
    images = arrays["x"]
    if images.dtype != np.uint8 or images.shape != (N_STAND_IN, *SHAPE):
        raise place.broken(
            file,
            f"must have uint8 x of shape {(N_STAND_IN, *SHAPE)}; got {images.dtype} of shape "
            f"{images.shape}",
        )
    labels = place.labels(file, arrays["y"], len(images), N_CLASSES)
    train, test = slice(None, N_STAND_IN_TRAIN), slice(N_STAND_IN_TRAIN, None)
    return ImageData(
        place.dataset,
        images[train],
        labels[train],
        images[test],
        labels[test],
        DIGITS,
        flip=False,
        note="first 5,000 official test digits, split 4,000/1,000: a small stand-in for SVHN",
    )


def _read_mat(place: Place, file: Path) -> tuple[Pixels, Labels]:
    """X (32, 32, 3, n) with the images last, y (n, 1) with 10 for the digit 0."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(file, variable_names=["X", "y"])
    except OSError as error:
        raise place.broken(file, f"cannot be read ({error.strerror or error})") from error
    except (
        MatReadError,
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        NotImplementedError,
        OverflowError,
        TypeError,
        ValueError,
        struct.error,
        zlib.error,
    ) as error:
        raise place.broken(
            file,
            f"is not a readable .mat file, or it is cut off (it has {file.stat().st_size:,} bytes: "
            f"{error})",
        ) from error
    names = sorted(name for name in content if not name.startswith("__"))
    if names != ["X", "y"]:
        raise place.broken(
            file, f"must hold the arrays X and y; found {listed(names) or 'neither'}"
        )
    images, digits = content["X"], content["y"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != SHAPE:
        raise place.broken(
            file, f"must have uint8 X of shape (32, 32, 3, n); got {images.dtype} of {images.shape}"
        )
    n_images = images.shape[3]
    if digits.shape != (n_images, 1) or digits.dtype.kind not in "iuf" or not n_images:
        raise place.broken(
            file,
            f"must have one digit in y per image, shape ({n_images}, 1); got {digits.dtype} of "
            f"shape {digits.shape}",
        )
    whole = digits[:, 0].astype(np.int64)
    if (whole != digits[:, 0]).any() or whole.min() < 1 or whole.max() > N_CLASSES:
        bad = digits[:, 0][(whole != digits[:, 0]) | (whole < 1) | (whole > N_CLASSES)][0]
        raise place.broken(file, f"must have digits 1 to 10 in y (10 for the digit 0); got {bad}")
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), whole % N_CLASSES

"""A labelled set of images: what every loader gives and every experiment takes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.arrays import check_labels
from mild.exceptions import InvalidInputError

__all__ = ["ImageData", "Labels", "Pixels", "check_images"]

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images with their classes.

    Attributes
    ----------
    name : name in the registry, such as "cifar10"
    train_images : (n_train, height, width, channels) uint8 array, channels last
    train_labels : (n_train,) int64 array, classes in [0, n_classes)
    test_images, test_labels : the same for the test images
    class_names : one name per class
    flip : whether a mirror image means the same (of a shoe it does, of a digit it does not)
    note : what a reader of results must know, such as that this is a small stand-in; else empty

    Examples
    --------
    >>> pixels = np.zeros((2, 8, 8, 1), np.uint8)
    >>> data = ImageData("dots", pixels, [0, 1], pixels, [1, 1], ("none", "some"), flip=True)
    >>> data.n_classes, data.train_labels.dtype, len(data.digest())
    (2, dtype('int64'), 16)
    """

    name: str
    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels
    class_names: tuple[str, ...]
    flip: bool
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        for part in ("train", "test"):
            images = check_images(f"{part}_images", getattr(self, f"{part}_images"))
            try:
                labels = check_labels(
                    getattr(self, f"{part}_labels"), len(images), len(self.class_names)
                )
            except InvalidInputError as error:
                raise InvalidInputError(f"{part}_{error}") from error
            object.__setattr__(self, f"{part}_labels", labels.astype(np.int64, copy=False))
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise InvalidInputError(
                f"training and test images must have one shape; got {self.train_images.shape[1:]} "
                f"and {self.test_images.shape[1:]}."
            )

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def digest(self) -> str:
        """16 hexadecimal digits that change with any pixel, label or name (SHA-256, cut)."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        arrays = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        head = [self.name, self.class_names, [array.shape for array in arrays]]
        hashed = hashlib.sha256(json.dumps(head).encode())
        for array in arrays:
            # Little-endian whatever the machine, so that results from two machines can meet.
            hashed.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
        return hashed.hexdigest()[:16]


def check_images(name: str, images: Any) -> Pixels:
    """Refuse what is not a uint8 array (n, height, width, channels) of at least one image."""
    array = isinstance(images, np.ndarray)
    if not array or images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        got = f"{images.dtype} of shape {images.shape}" if array else type(images).__name__
        raise InvalidInputError(
            f"{name} must be a uint8 array of shape (n, height, width, channels) with at least one "
            f"image; got {got}."
        )
    return images

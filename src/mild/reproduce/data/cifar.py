"""CIFAR-10 and CIFAR-100 from the official python files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mild.exceptions import DataFileError
from mild.reproduce.data.images import ImageData, Labels, Pixels
from mild.reproduce.data.pickles import read_pickle
from mild.reproduce.data.places import Place
from mild.tables.columns import listed

__all__ = ["load_cifar10", "load_cifar100"]

SIDE = 32
COLOURS = 3


@dataclass(frozen=True)
class _Layout:
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels_key: str
    names_key: str
    n_classes: int


CIFAR10 = _Layout(
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
    n_classes=10,
)
CIFAR100 = _Layout(
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    n_classes=100,
)


def load_cifar10(place: Place) -> ImageData:
    """CIFAR-10: five training batches and a test batch of 10,000 images, ten classes."""
    return _load(place, CIFAR10)


def load_cifar100(place: Place) -> ImageData:
    """CIFAR-100 with its fine labels: 50,000 training and 10,000 test images, 100 classes."""
    return _load(place, CIFAR100)


def _load(place: Place, layout: _Layout) -> ImageData:
    *train_files, test_file, meta_file = place.find(
        [layout.folder, ""], [*layout.train, layout.test, layout.meta]
    )
    names = _class_names(place, layout, meta_file)
    train = [_read(place, layout, file) for file in train_files]
    test_images, test_labels = _read(place, layout, test_file)
    return ImageData(
        place.dataset,
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        test_images,
        test_labels,
        names,
        flip=True,
    )


def _content(place: Place, file: Path, *keys: str) -> list[Any]:
    """Entries ``keys`` of a file's dictionary."""
    try:
        content = read_pickle(file)
    except DataFileError as error:
        raise place.broken(file, str(error)) from error
    for key in keys:
        if key not in content:
            raise place.broken(file, f"must have the key {key!r}; it has {listed(sorted(content))}")
    return [content[key] for key in keys]


def _class_names(place: Place, layout: _Layout, file: Path) -> tuple[str, ...]:
    (names,) = _content(place, file, layout.names_key)
    if not (
        isinstance(names, list)
        and len(names) == layout.n_classes
        and all(isinstance(name, (str, bytes)) for name in names)
    ):
        raise place.broken(
            file, f"must have {layout.n_classes} class names in {layout.names_key!r}"
        )
    return tuple(name.decode("latin1") if isinstance(name, bytes) else name for name in names)


def _read(place: Place, layout: _Layout, file: Path) -> tuple[Pixels, Labels]:
    """Images, channels last, and labels of one file."""
    rows, values = _content(place, file, "data", layout.labels_key)
    width = COLOURS * SIDE * SIDE
    if (
        not isinstance(rows, np.ndarray)
        or rows.ndim != 2
        or rows.shape[1] != width
        or not len(rows)
    ):
        got = f"shape {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise place.broken(file, f"must have uint8 'data' of shape (n, {width}); got {got}")
    labels = place.labels(file, values, len(rows), layout.n_classes)
    images = rows.reshape(-1, COLOURS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels

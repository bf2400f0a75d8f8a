"""CIFAR-10 from its official files, or from tiles that are half as large.

A tile is a lossless WebP image of 2,500 images of 32 x 32 in a grid of 50 x 50, row by row. Tiles 0 to 19
are the training images in their official order, 20 to 23 the test images; ``labels.npy`` has all 60,000
labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.images.data import load_images
from mild.errors import DataFileError

SIDE = 32
GRID = 50
PER_TILE = GRID * GRID
TRAINING_TILES = 20
TILES = 24
N_CLASSES = 10


@dataclass(frozen=True, eq=False)
class Cifar10:
    """Images (n, 32, 32, 3) uint8 and classes (n,); there may be no test images."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def load_cifar10(folder: Path) -> Cifar10:
    """CIFAR-10 from a folder with the official ``cifar-10-batches-py``, or with tiles.

    Not all tiles need to be there: training needs those that it is to use, and test images are optional.
    """
    if (folder / "cifar-10-batches-py").is_dir():
        data = load_images("cifar10", folder)
        return Cifar10(data.train_images, data.train_labels, data.test_images, data.test_labels)
    numbers = [number for number in range(TILES) if _tile(folder, number).is_file()]
    training = [number for number in numbers if number < TRAINING_TILES]
    test = [number for number in numbers if number >= TRAINING_TILES]
    if not training or not (folder / "labels.npy").is_file():
        raise DataFileError(
            f"{folder} must hold cifar-10-batches-py, or tiles tile00.webp to tile23.webp with "
            f"labels.npy; it holds neither."
        )
    labels = np.load(folder / "labels.npy").astype(np.int64)
    return Cifar10(*_read(folder, training, labels), *_read(folder, test, labels))


def write_tiles(folder: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
    """Write images, in tiles of 2,500, and their labels as ``load_cifar10`` reads them."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "labels.npy", labels.astype(np.uint8))
    for number in range(len(images) // PER_TILE):
        part = images[number * PER_TILE : (number + 1) * PER_TILE]
        grid = part.reshape(GRID, GRID, SIDE, SIDE, 3).transpose(0, 2, 1, 3, 4)
        tile = Image.fromarray(grid.reshape(GRID * SIDE, GRID * SIDE, 3))
        tile.save(_tile(folder, number), "WEBP", lossless=True, quality=100, method=0)


def _tile(folder: Path, number: int) -> Path:
    return folder / f"tile{number:02d}.webp"


def _read(
    folder: Path, numbers: list[int], labels: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from PIL import Image

    images = np.empty((len(numbers) * PER_TILE, SIDE, SIDE, 3), np.uint8)
    classes = np.empty(len(images), np.int64)
    for position, number in enumerate(numbers):
        tile = np.asarray(Image.open(_tile(folder, number)).convert("RGB"))
        grid = tile.reshape(GRID, SIDE, GRID, SIDE, 3).transpose(0, 2, 1, 3, 4)
        rows = slice(position * PER_TILE, (position + 1) * PER_TILE)
        images[rows] = grid.reshape(PER_TILE, SIDE, SIDE, 3)
        classes[rows] = labels[number * PER_TILE : (number + 1) * PER_TILE]
    return images, classes

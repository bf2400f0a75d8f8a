"""Small images whose brightness gives their class away, and a trainer that takes no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from mild.reproduce.data.images import ImageData
from mild.reproduce.images.protocol import PROTOCOLS, Protocol


def small_images(
    n_classes: int = 10, per_class: int = 30, n_test: int = 10, seed: int = 0
) -> ImageData:
    rng = np.random.default_rng(seed)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.permutation(np.repeat(np.arange(n_classes), count)).astype(np.int64)
        level = 255 * (labels + 0.5) / n_classes
        noise = rng.normal(scale=20 / n_classes, size=(len(labels), 8, 8, 1))
        return np.clip(level[:, None, None, None] + noise, 0, 255).astype(np.uint8), labels

    train_images, train_labels = part(per_class)
    test_images, test_labels = part(n_test)
    return ImageData(
        name="small",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        class_names=tuple(f"c{k}" for k in range(n_classes)),
        flip=False,
    )


@dataclass(frozen=True)
class NearestMean:
    """Stands in for a network: the class whose mean brightness is nearest, if it was seen often."""

    means: np.ndarray
    seconds: float = 0.0

    def scores(self, images: np.ndarray) -> np.ndarray:
        return -np.abs(images.mean(axis=(1, 2, 3))[:, None] - self.means[None, :]).astype(
            np.float32
        )


class Trainer:
    """Counts trainings and keeps what each was given."""

    def __init__(self) -> None:
        self.calls: list[dict] = []

    def __call__(self, images, labels, n_classes, protocol, seed, **options) -> NearestMean:
        self.calls.append(
            {"images": images, "labels": labels, "protocol": protocol, "seed": seed, **options}
        )
        means = np.full(n_classes, -1000.0)
        for label in np.unique(labels):
            if (labels == label).sum() > 5:
                means[label] = images[labels == label].mean()
        return NearestMean(means)


@pytest.fixture
def trainer(monkeypatch) -> Trainer:
    """Every training is quick and counted."""
    fake = Trainer()
    monkeypatch.setattr("mild.reproduce.experts.trained.train_classifier", fake)
    return fake


@pytest.fixture
def make_images() -> Callable[..., ImageData]:
    return small_images


@pytest.fixture
def images() -> ImageData:
    return small_images()


@pytest.fixture
def protocol() -> Protocol:
    return PROTOCOLS["fast"].changed(epochs=2, batch_size=50, width=4)

"""People as experts: annotators of CIFAR-10N and CIFAR-100N beside a small classifier.

Who should label what: a person who errs now and then and costs something, or a classifier that errs
more and costs nothing.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mild.exceptions import InvalidInputError
from mild.reproduce.data.people import PeopleFile, check_people
from mild.reproduce.experts.answers import ExpertAnswers
from mild.reproduce.experts.setups import PEOPLE, Setup
from mild.reproduce.experts.splits import check_seed, stratified_order
from mild.reproduce.experts.trained import trained_expert

if TYPE_CHECKING:
    import torch

    from mild.reproduce.data.images import ImageData
    from mild.reproduce.images.protocol import Protocol

__all__ = ["DEFAULT_COLUMNS", "TEST_FRACTION", "default_columns", "people_scenario"]

#: Columns that hold what single people said, rather than a vote or the worst of them.
DEFAULT_COLUMNS = {
    "cifar10": ("random_label1", "random_label2", "random_label3"),
    "cifar100": ("noisy_label",),
}
ANNOTATOR = re.compile(r"random_label(\d+)|noisy_label")
#: Of the images that people labelled, how many are for the test.
TEST_FRACTION = 0.2
# Keeps this stream apart from those of everything else that is seeded with the same small number.
SPLIT = 0x50454F50


def people_scenario(
    data: ImageData,
    people: PeopleFile,
    protocol: Protocol,
    *,
    seed: int = 0,
    classifier_rows: int = 4000,
    price: float = 0.1,
    cache_dir: Path | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int, str], Any] | None = None,
) -> tuple[ImageData, ExpertAnswers]:
    """Images with people, and a small classifier, as their experts.

    People labelled the official training images alone, so these are divided, stratified by class:
    the last 20 % are the test images of this scenario, ``classifier_rows`` of the rest train the
    classifier (a network of a quarter of the protocol's width) and what remains trains the router:
    the classifier's costs there are honest. The official test images are not used.

    Parameters
    ----------
    data : images with clean labels
    people : what people said about ``data.train_images``, in the same order
        Each column of single people is an expert. In CIFAR-10N such a column is not one person: it is
        whoever labelled the image first, second or third.
    protocol : how the classifier is trained
    seed : non-negative int, for the division and the classifier
    classifier_rows : int, images that train the classifier, the last expert; no router sees them
    price : what asking a person costs in the cost type "cost"; the classifier costs nothing
    cache_dir, device, progress : as for ``trained_answers``

    Returns
    -------
    ImageData
        Training images are the first 80 %, classifier's and router's; labels are the clean ones.
    ExpertAnswers
        of the setup "people", whose coverage is each expert's accuracy on the router's rows, for
        information alone
    """
    check_seed(seed)
    chosen = default_columns(people)
    if not (math.isfinite(price) and price >= 0):
        raise InvalidInputError(f"price must be finite and non-negative; got {price}.")
    check_people(people, data)
    train, test, n_small = _division(data.train_labels, classifier_rows, seed)
    part = _part(data, train, test)
    said = np.column_stack([people.columns[column] for column in chosen]).astype(np.int64)
    small = trained_expert(
        part,
        np.arange(n_small, dtype=np.int64),
        protocol.changed(width=max(1, protocol.width // 4)),
        name="classifier",
        classes=np.arange(data.n_classes),
        seed=seed,
        holdout=True,
        cache_dir=cache_dir,
        device=device,
        progress=progress,
    )
    answers = np.column_stack([said[train], small.train])
    router_rows = np.arange(n_small, len(train), dtype=np.int64)
    right = answers[router_rows] == part.train_labels[router_rows, None]
    setup = Setup(PEOPLE, tuple(float(share) for share in right.mean(axis=0)))
    return part, ExpertAnswers(
        setup=setup,
        kind="people",
        train=answers,
        test=np.column_stack([said[test], small.test]),
        names=(*map(_name, chosen), "classifier"),
        prices=np.array([float(price)] * len(chosen) + [0.0]),
        router_rows=router_rows,
        notes={
            "seed": int(seed),
            "columns": list(chosen),
            "price": float(price),
            "classifier": dict(small.facts),
        },
    )


def default_columns(people: PeopleFile) -> tuple[str, ...]:
    """Columns of single people, or all there are."""
    usual = DEFAULT_COLUMNS.get(people.dataset, ())
    return tuple(name for name in usual if name in people.columns) or tuple(people.columns)


def _division(
    labels: NDArray[np.int64], classifier_rows: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Training rows (the classifier's first), test rows, and how many the classifier's are."""
    order = stratified_order(labels, np.random.default_rng([SPLIT, seed]))
    n_train = len(order) - round(TEST_FRACTION * len(order))
    if not 1 <= classifier_rows < n_train:
        raise InvalidInputError(
            f"classifier_rows must lie in [1, {n_train}), to leave the router some of the {n_train} "
            f"training images; got {classifier_rows}."
        )
    return order[:n_train], order[n_train:], int(classifier_rows)


def _part(data: ImageData, train: NDArray[np.int64], test: NDArray[np.int64]) -> ImageData:
    note = (
        f"{len(train)} and {len(test)} of the official training images, for training and test: "
        f"people labelled no others"
    )
    return dataclasses.replace(
        data,
        train_images=data.train_images[train],
        train_labels=data.train_labels[train],
        test_images=data.train_images[test],
        test_labels=data.train_labels[test],
        note=f"{data.note}; {note}" if data.note else note,
    )


def _name(column: str) -> str:
    """Name an annotator by number; a vote, or the worst of them, goes by its column."""
    numbered = ANNOTATOR.fullmatch(column)
    return f"annotator {numbered.group(1) or 1}" if numbered else column

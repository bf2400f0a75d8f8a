"""Synthetic experts: always right on their own classes, at random elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mild.reproduce.experts.answers import ExpertAnswers, class_names
from mild.reproduce.experts.setups import Setup
from mild.reproduce.experts.splits import check_seed

if TYPE_CHECKING:
    from mild.reproduce.data.images import ImageData

__all__ = ["synthetic_answers"]

# Keeps these streams apart from those of everything else that is seeded with the same small number.
TAG = 0x53594E54
TRAIN, TEST = 0, 1


def synthetic_answers(
    data: ImageData, setup: Setup, seed: int, ambiguous: float | None = None
) -> ExpertAnswers:
    """Answers of the paper's synthetic experts on training and test images.

    An expert answers the true class on its own classes and elsewhere a class drawn uniformly from
    all of them, its own included: right by luck one time in ``n_classes``. Guesses are independent
    across images and experts, and fresh for every seed. They depend on the seed and on the expert's
    classes alone: an expert with the same classes in two setups gives the same answers.

    Parameters
    ----------
    data : images with labels
    setup : who knows which classes
    seed : non-negative int
    ambiguous : share of the rows on which at least one guess is right; the guesses of all experts are
        then right with the same probability. None for uniform guesses
    """
    check_seed(seed)
    owners = setup.owners(data.n_classes)
    luck = None if ambiguous is None else 1 - (1 - ambiguous) ** (1 / max(1, setup.n_experts - 1))

    def answers(part: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.column_stack(
            [
                _answers(labels, np.flatnonzero(owners == expert), data.n_classes, seed, part, luck)
                for expert in range(setup.n_experts)
            ]
        )

    return ExpertAnswers(
        setup=setup,
        kind="synthetic",
        train=answers(TRAIN, data.train_labels),
        test=answers(TEST, data.test_labels),
        names=class_names(owners),
        prices=np.array(setup.coverage, dtype=np.float64),
        router_rows=np.arange(len(data.train_labels), dtype=np.int64),
        notes={"seed": int(seed)} | ({} if ambiguous is None else {"ambiguous": ambiguous}),
    )


def _answers(
    labels: NDArray[np.int64],
    classes: NDArray[np.int64],
    n_classes: int,
    seed: int,
    part: int,
    luck: float | None,
) -> NDArray[np.int64]:
    rng = np.random.default_rng([TAG, seed, part, n_classes, *map(int, classes)])
    guesses = rng.integers(0, n_classes, size=len(labels), dtype=np.int64)
    if luck is not None:
        wrong = (labels + rng.integers(1, n_classes, size=len(labels))) % n_classes
        guesses = np.where(rng.random(len(labels)) < luck, labels, wrong)
    return np.where(np.isin(labels, classes), labels, guesses)

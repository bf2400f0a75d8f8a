"""Experts that specialise by region of the input, not by label."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cost_matrix
from mild.data.datasets.routing_data import RoutingData
from mild.errors import InvalidInputError

__all__ = ["region_of", "regions"]

N_CLASSES = 4
SKILL = 0.95
NAMES = ("the rest", "large disc", "strip", "small disc")


def regions(n_samples: int = 4000, random_state: int | None = 0) -> RoutingData:
    """Points of the unit square, four experts with a region each, labels that say nothing.

    The label is one of four classes, uniform and independent of the point, so that the label
    carries no information on which expert to ask. Expert k is right with probability 0.95 in its
    own region and guesses elsewhere (right one time in four); costs are errors. The regions hold
    about 57, 20, 15 and 8 % of the square.

    Examples
    --------
    >>> data = regions(n_samples=1000, random_state=0)
    >>> data.X.shape, data.costs.shape
    ((1000, 2), (1000, 4))
    >>> bool((data.best_experts == region_of(data.X)).all())
    True
    """
    if n_samples < 1:
        raise InvalidInputError(f"n_samples must be at least 1; got {n_samples}.")
    rng = np.random.default_rng(random_state)
    X = rng.random((n_samples, 2))
    labels = rng.integers(0, N_CLASSES, size=n_samples)
    n_experts = len(NAMES)
    own = region_of(X)[:, None] == np.arange(n_experts)
    accuracy = np.where(own, SKILL, 1 / N_CLASSES)
    right = rng.random(accuracy.shape) < accuracy
    slips = (labels[:, None] + rng.integers(1, N_CLASSES, size=accuracy.shape)) % N_CLASSES
    answers = np.where(right, labels[:, None], slips)
    return RoutingData(
        X,
        labels,
        answers,
        cost_matrix(answers, labels),
        np.zeros(n_experts),
        NAMES,
        np.arange(n_samples),
        1 - accuracy,
    )


def region_of(X: ArrayLike) -> IntArray:
    """Region of each point of the unit square: two discs, a strip, and the rest, which is 0.

    Examples
    --------
    >>> region_of([[0.1, 0.1], [0.3, 0.7], [0.95, 0.5], [0.6, 0.2]])
    array([0, 1, 2, 3])
    """
    points: FloatArray = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise InvalidInputError(f"X must have shape (n_samples, 2); got {points.shape}.")
    result = np.zeros(len(points), dtype=np.intp)
    result[np.hypot(points[:, 0] - 0.3, points[:, 1] - 0.68) < 0.25] = 1
    result[points[:, 0] > 0.85] = 2
    result[np.hypot(points[:, 0] - 0.6, points[:, 1] - 0.2) < 0.16] = 3
    return result

"""Rows in an order of which every stretch holds the classes in their shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.exceptions import InvalidInputError

__all__ = ["check_seed", "halves", "stratified_order"]

# Keeps this stream apart from those of everything else that is seeded with the same small number.
HALVES = 0x48414C46


def stratified_order(labels: ArrayLike, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random permutation of the rows whose every stretch is stratified by label.

    Of a class of m rows, the j-th in random order goes to the place ``(j + 1/2) / m`` of the way:
    any stretch of the permutation holds each class in its share, up to one row or so.

    Examples
    --------
    >>> labels = np.repeat([0, 1], [6, 2])
    >>> order = stratified_order(labels, np.random.default_rng(0))
    >>> np.bincount(labels[order[:4]]), np.bincount(labels[order[4:]])
    (array([3, 1]), array([3, 1]))
    """
    truth = np.asarray(labels)
    place = np.empty(len(truth))
    for label in np.unique(truth):
        rows = np.flatnonzero(truth == label)
        place[rng.permutation(rows)] = (np.arange(len(rows)) + 0.5) / len(rows)
    # Ties between classes fall at random: no class is always first.
    return np.lexsort((rng.random(len(truth)), place)).astype(np.int64)


def halves(labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the experts' half and of the router's, stratified by class, in order.

    Examples
    --------
    >>> [len(half) for half in halves(np.repeat([0, 1], [6, 3]), seed=0)]
    [5, 4]
    """
    order = stratified_order(labels, np.random.default_rng([HALVES, seed]))
    middle = (len(order) + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def check_seed(seed: int) -> int:
    """Return a seed that is a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidInputError(f"seed must be a non-negative integer; got {seed!r}.")
    return int(seed)

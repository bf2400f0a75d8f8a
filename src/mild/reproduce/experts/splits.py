"""Rows in an order of which every stretch holds the classes in their shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.costs import cheapest
from mild.exceptions import InvalidInputError

__all__ = ["HELD_OUT", "TUNING_SEED", "check_seed", "halves", "held_out_rows", "stratified_order"]

# Keeps this stream apart from those of everything else that is seeded with the same small number.
HALVES = 0x48414C46
#: Seed of the held-out rows, of the networks and, where experts have seeds, of the experts of a search.
TUNING_SEED = 0
HELD_OUT = 0.1


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


def held_out_rows(costs: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on, and the tenth to judge on, stratified by the cheapest expert, in order.

    Examples
    --------
    >>> costs = np.eye(2, dtype=np.float32)[[0] * 10 + [1] * 10]
    >>> rest, held = held_out_rows(costs)
    >>> len(rest), np.bincount(cheapest(costs[held])).tolist()
    (18, [1, 1])
    """
    order = stratified_order(cheapest(costs), np.random.default_rng(TUNING_SEED))
    size = max(1, round(HELD_OUT * len(order)))
    return np.sort(order[size:]), np.sort(order[:size])


def check_seed(seed: int) -> int:
    """Return a seed that is a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidInputError(f"seed must be a non-negative integer; got {seed!r}.")
    return int(seed)

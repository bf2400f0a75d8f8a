"""Anchors: a few of many margins, from whose powers ``exp(-x / rho)`` those of all follow.

As a function of x >= 0, ``exp(-x / rho)`` depends so smoothly on rho that there are weights with

    exp(-x / rho_g) = sum_a weights[g, a] * exp(-x / rho_a)    for every x >= 0,

to about the precision of the dtype. The number of anchors grows with the logarithm of the ratio of the
largest margin to the smallest, not with the number of margins: 11 for a ratio of 4 in single precision,
23 for a ratio of 100, and under twice as many in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from mild.core.arrays import FloatArray, IntArray
from mild.core.margins import MarginGroup

__all__ = ["Anchors", "anchors", "group_sums"]

# Fewer margins than this are never worth it; nor are anchors above this share of the margins.
FEWEST = 16
WORTH = 0.6
# Ratio of the largest margin to the smallest up to which the grid is dense enough.
WIDEST = 1e4


@dataclass(frozen=True)
class Anchors:
    """A subset of the margins.

    Attributes
    ----------
    members : (A,) indices of the margins
    inverse : (A,) one over each
    weights : (G, A) float64; the row of an anchor has a single 1
    """

    members: IntArray
    inverse: FloatArray
    weights: FloatArray


def anchors(groups: list[MarginGroup], dtype: DTypeLike) -> Anchors | None:
    """Anchors of distinct margins for numbers of ``dtype``; None where they would not save work.

    Examples
    --------
    >>> from mild.core.margins import margin_groups
    >>> groups = margin_groups(np.linspace(0.5, 2, 100))
    >>> few = anchors(groups, np.float32)
    >>> few.weights.shape
    (100, 11)
    >>> x = 0.7
    >>> guess = few.weights @ np.exp(-x * few.inverse)
    >>> bool(np.abs(guess - [np.exp(-x / group.margin) for group in groups]).max() < 1e-7)
    True
    """
    if len(groups) < FEWEST:
        return None
    # Groups come in the order of their margins.
    return _chosen(tuple(group.margin for group in groups), bool(np.dtype(dtype).itemsize <= 4))


def group_sums(values: FloatArray, groups: list[MarginGroup]) -> FloatArray:
    """Values (..., p, m) of experts, summed over the experts of each group: (..., G, m)."""
    first = values[..., [group.members[0] for group in groups], :]
    if len(groups) < values.shape[-2]:
        for g, group in enumerate(groups):
            if group.members.size > 1:
                first[..., g, :] = values[..., group.members, :].sum(axis=-2)
    return first


@lru_cache(maxsize=32)
def _chosen(margins: tuple[float, ...], single: bool) -> Anchors | None:
    """Pivoted orthogonalisation over a grid of x: the worst-approximated margin becomes an anchor."""
    accuracy = 1e-8 if single else 1e-14
    if margins[0] * WIDEST < margins[-1]:
        return None
    steep = margins[0] / np.array(margins)
    most = int(WORTH * steep.size)
    x = np.append(0, np.geomspace(1e-3, -1.2 * np.log(accuracy) / steep[-1], 300))
    table = np.exp(-np.outer(x, steep))
    left = table.copy()
    base = np.empty((x.size, most))
    members: list[int] = []
    while np.abs(left).max() > accuracy:
        size = len(members)
        if size == most:
            return None
        members.append(int(np.square(left).sum(axis=0).argmax()))
        new = left[:, members[-1]].copy()
        new -= base[:, :size] @ (base[:, :size].T @ new)
        base[:, size] = new / np.linalg.norm(new)
        left -= np.outer(base[:, size], base[:, size] @ left)
    base = base[:, : len(members)]
    weights = np.linalg.solve(base.T @ table[:, members], base.T @ table).T
    weights[members] = np.eye(len(members))
    if np.abs(table[:, members] @ weights.T - table).max() > 10 * accuracy:
        return None
    return Anchors(np.array(members), 1 / np.array(margins)[members], weights)

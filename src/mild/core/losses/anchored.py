"""The logistic loss where margins are many: powers of a few of them, the anchors, do for all.

The sum over experts of ``exp((f_j - max f) / rho)`` is needed for every margin rho. For those that are no
anchors it is the weighted sum of the anchors' sums, and in the gradient the weights are handed back: the
work per sample is p times the number of anchors, however many margins there are.
"""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray
from mild.core.decisions.anchors import Anchors, group_sums
from mild.core.margins import MarginGroup

__all__ = ["anchored_logistic"]

# Powers of scores that are held at a time.
POWERS = 100_000


def anchored_logistic(
    shifted: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    few: Anchors,
    gradient: FloatArray | None,
) -> FloatArray:
    """Values (m,) of samples given experts first; ``gradient`` is added to.

    Parameters
    ----------
    shifted : (p, m) scores, the largest of each sample being 0
    rewards : (p, m)
    groups : distinct margins
    few : their anchors
    gradient : (p, m) or None
    """
    p, m = shifted.shape
    dtype = shifted.dtype
    margins = np.array([[group.margin] for group in groups])
    inverse = np.empty((p, 1), dtype)
    for group in groups:
        inverse[group.members] = 1 / group.margin
    steep = few.inverse.astype(dtype)[:, None, None]
    size = int(np.clip(POWERS // (few.inverse.size * p), 8, 1024))
    powers = np.empty((few.inverse.size, p, min(size, m)), dtype)
    values = np.empty(m, dtype)
    for start in range(0, m, size):
        rows = slice(start, start + size)
        scores = shifted[:, rows]
        power = powers[:, :, : scores.shape[1]]
        np.multiply(steep, scores, out=power)
        np.exp(power, out=power)
        # Weights of both signs add up: in double precision they lose nothing that singles had.
        total = few.weights @ power.sum(axis=1).astype(np.float64)
        np.maximum(total, 1, out=total)
        weight = group_sums(rewards[:, rows], groups)
        own = rewards[:, rows] * inverse
        values[rows] = np.einsum("gm,gm->m", weight, np.log(total))
        values[rows] -= np.einsum("km,km->m", own, scores)
        if gradient is not None:
            total *= margins
            pull = few.weights.T @ np.divide(weight, total, out=total)
            gradient[:, rows] += np.einsum("am,akm->km", pull.astype(dtype), power)
            gradient[:, rows] -= own
    return values

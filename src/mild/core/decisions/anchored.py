"""Stationary decoding where margins are many: a chain between a few of them, the anchors.

The chain leaves expert k for j at rate ``softmax_j(f / rho_k) / rho_k``. Let ``E_gj`` be the powers
``exp((f_j - max f) / rho_g)``, ``T_g`` their sums over experts, and ``E_gj = sum_a C_ga E_aj`` as in
``anchors``. The masses ``q_j = p_j / rho_j`` are then ``sum_a y_a E_aj``, where y is the left
eigenvector, for the eigenvalue 1, of the small matrix

    B_ab = sum over g of (sum of E_aj over the experts j of group g) / T_g * C_gb.

C has entries of both signs, so that entries of p are right to an absolute 1e-12 (1e-6 for scores in single
precision) and not relative to their own size: enough to tell the largest, which is what a decision asks
for. The expert of the largest score is reached from everywhere with a chance of at least 1/p, however far
apart the scores are, which keeps the system well-conditioned.
"""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray
from mild.core.decisions.anchors import Anchors, group_sums
from mild.core.margins import MarginGroup

__all__ = ["anchored_distribution"]


def anchored_distribution(
    shifted: FloatArray,
    margins: FloatArray,
    groups: list[MarginGroup],
    few: Anchors,
    tau: float,
) -> FloatArray:
    """Stationary distribution (p, m), to an absolute accuracy, of scores whose largest is 0.

    Parameters
    ----------
    shifted : (p, m)
    margins : (p,)
    groups, few : distinct margins and their anchors
    tau : of the surrogate; at most 1: beyond that small masses count
    """
    p, m = shifted.shape
    size = few.inverse.size
    scores = shifted.astype(np.float64, copy=False)
    powers = np.empty((size, p, m))
    np.multiply(few.inverse[:, None, None], scores, out=powers)
    np.exp(powers, out=powers)
    sums = powers.sum(axis=1)
    total = few.weights @ sums
    shares = group_sums(powers, groups)
    shares /= -total
    chain = np.ascontiguousarray((few.weights.T @ shares).transpose(2, 1, 0))
    chain[:, np.arange(size), np.arange(size)] += 1
    # The sums are what the chain keeps; adding them fixes the scale that it leaves open.
    unit = (sums / np.square(sums).sum(axis=0)).T
    chain += unit[:, :, None] * sums.T[:, None, :]
    mass = np.linalg.solve(chain, unit[:, :, None])[:, :, 0].T
    result = np.einsum("am,akm->km", mass, powers)
    np.maximum(result, 0, out=result)
    result *= margins[:, None]
    if tau != 1:
        home = np.empty(p, np.intp)
        for g, group in enumerate(groups):
            home[group.members] = g
        result *= (np.exp(scores / margins[:, None]) / total[home]) ** (1 - tau)
    result /= result.sum(axis=0)
    return result

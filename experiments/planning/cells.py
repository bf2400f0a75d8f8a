"""Which outcomes to buy: those of the experts that draws of the experts' mean errors choose for a query.

``pooled_heads`` estimate the errors, and how sure each expert's level is. Where the levels leave open which
expert is best for a query, these experts are asked about it, cheap ones sooner. They are asked about the
same query: what makes a query hard then cancels when they are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild_gateway.learning.pooled_heads import PooledHeads

# Directions of the features that the heads use: with few labels, more of them only add variance.
DIRECTIONS = 32
# Draws of the levels.
DRAWS = 64
# An expert of average price is asked about a query if one of so many draws chooses it.
CHANCES = 16


def head_features(X: Any) -> FloatArray:
    """Features (n_samples, at most 32) of the heads: the leading directions of ``X``."""
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    dense = dense - dense.mean(axis=0)
    if dense.shape[1] > DIRECTIONS:
        _, vectors = np.linalg.eigh(dense.T @ dense)
        dense = dense @ vectors[:, ::-1][:, :DIRECTIONS]
    return dense


def removed_regret(costs: FloatArray, heads: PooledHeads, cells: IntArray | None) -> float:
    """By how much labels for ``cells`` are expected to lower the mean cost of the decisions.

    None is for perfect knowledge of the levels: the regret of the decisions as they are.
    """
    variances = heads.standard_errors**2
    if cells is not None:
        bought = np.bincount(cells[:, 1], minlength=len(variances))
        # Of an outcome in [0, 1] the variance is at most 1/4.
        variances = variances * bought / (bought + 0.25 / variances)
    draws = np.random.default_rng(0).standard_normal((DRAWS // 2, len(variances)))
    means = [
        (costs + sign * draw * np.sqrt(variances)).min(axis=1).mean()
        for draw in draws
        for sign in (1, -1)
    ]
    return max(0.0, float(costs.min(axis=1).mean() - np.mean(means)))


def plan_cells(
    costs: FloatArray,
    heads: PooledHeads,
    unknown: BoolArray,
    dollars: FloatArray,
    spend: float,
    rng: np.random.Generator,
) -> IntArray:
    """Cells (m, 2), query and expert, to ask about for ``spend`` dollars at most.

    Of queries in random order, the experts that draws of the levels choose are asked: one that a share F
    of the draws chooses with probability ``1 - (1 - F)^(16 sqrt(mean price / its price))``, and the one
    that is chosen now. Queries about which the draws agree are left out. ``costs`` (n_samples, n_experts)
    are those of a choice, by the heads.
    """
    shares, rows = np.zeros(costs.shape), np.arange(len(costs))
    for draw in rng.standard_normal((DRAWS, costs.shape[1])):
        shares[rows, (costs + draw * heads.standard_errors).argmin(axis=1)] += 1 / DRAWS
    # What costs nothing counts as very cheap.
    price = np.maximum(dollars, 1e-3 * dollars.mean() + 1e-12)
    chances = CHANCES * np.sqrt(price.mean(axis=1, keepdims=True) / price)
    worth = rng.random(costs.shape) < 1 - (1 - shares.clip(0, 1)) ** chances
    worth[rows, costs.argmin(axis=1)] = True
    # One answer about a query compares nothing.
    worth &= (worth | ~unknown).sum(axis=1, keepdims=True) > 1
    return row_cells(worth & unknown, dollars, spend, rng)


def random_cells(
    unknown: BoolArray, dollars: FloatArray, spend: float, rng: np.random.Generator
) -> IntArray:
    """Unknown cells in random order, as far as ``spend`` goes."""
    return _affordable(rng.permutation(np.flatnonzero(unknown)), dollars, spend)


def row_cells(
    wanted: BoolArray, dollars: FloatArray, spend: float, rng: np.random.Generator
) -> IntArray:
    """The wanted cells, queries in random order, as far as ``spend`` goes."""
    rows = rng.permutation(len(wanted))
    order = np.arange(wanted.size).reshape(wanted.shape)[rows][wanted[rows]]
    return _affordable(order, dollars, spend)


def _affordable(order: IntArray, dollars: FloatArray, spend: float) -> IntArray:
    """The cells (m, 2) at the beginning of an order, by flat index, that cost ``spend`` at most."""
    paid = dollars.ravel()[order].cumsum()
    # Sums of dollars are not exact.
    count = int(np.searchsorted(paid, spend * (1 + 1e-9), side="right"))
    return np.stack(np.divmod(order[:count], dollars.shape[1]), axis=1)

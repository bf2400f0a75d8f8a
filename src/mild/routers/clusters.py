"""K-means that does not depend on the order of the rows, on their copies, or on rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from mild.core.arrays import FloatArray, IntArray
from mild.core.rounding import ESTIMATES

# Features are stretched by up to this share, each by its own: rows that are equally far from two centres by
# symmetry, as texts without a common word are, then belong to one of them on every processor.
STRETCH = 0.01


def distinct_rows(X: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The different rows (m, d) of X and their total weights (m,); rows that differ by rounding are one.

    They are in the order of their projections on a fixed random direction, which depends neither on the
    order nor on the copies of the given rows.

    >>> rows, mass = distinct_rows(np.array([[1.0], [2.0], [1.0 + 1e-15]]), np.ones(3))
    >>> sorted(zip(rows.ravel().tolist(), mass.tolist()))
    [(1.0, 2.0), (2.0, 1.0)]
    """
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    order = np.argsort(X @ direction, kind="stable")
    ordered = X[order]
    change = np.abs(np.diff(ordered, axis=0)).max(axis=1, initial=0.0)
    is_new = np.append(True, change > ESTIMATES * np.abs(X).max(initial=0.0))
    mass: FloatArray = np.add.reduceat(weight[order], np.flatnonzero(is_new))
    return ordered[is_new], mass


def fit_centres(
    rows: FloatArray, weight: FloatArray, n_clusters: int, random_state: Any, **options: Any
) -> FloatArray:
    """Centres (n_clusters, d) of k-means on different rows (m, d) with weights (m,)."""
    factors = _factors(rows.shape[1])
    model = KMeans(n_clusters, random_state=random_state, **options)
    model.fit(rows * factors, sample_weight=weight)
    return np.asarray(model.cluster_centers_ / factors)


def nearest_centres(X: FloatArray, centres: FloatArray) -> IntArray:
    """Index (n,) of the centre that each row of X belongs to."""
    factors = _factors(X.shape[1])
    return np.asarray(pairwise_distances_argmin(X * factors, centres * factors), np.intp)


def _factors(n_features: int) -> FloatArray:
    return 1 + np.random.default_rng(1).uniform(-STRETCH, STRETCH, n_features)

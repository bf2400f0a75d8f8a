"""K-means that does not depend on the order of the rows, on their copies, or on rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from mild.core.arrays import FloatArray, IntArray

# Features are stretched by up to this share, each by its own: rows that are equally far from two centres by
# symmetry, as texts without a common word are, then belong to one of them on every processor.
STRETCH = 0.01
# Units in the last place by which copies of a row differ.
ROUNDED_UNITS = 16


def distinct_rows(
    X: FloatArray, weight: FloatArray, dtype: DTypeLike = np.float64
) -> tuple[FloatArray, FloatArray]:
    """Return the distinct rows (m, d) of X and their total weights (m,).

    Rows that differ by rounding are one.

    ``dtype`` is that of the features before they were made float64.

    They are in the order of their projections on a fixed random direction, which depends neither on the
    order nor on the copies of the given rows.

    >>> rows, mass = distinct_rows(np.array([[1.0], [2.0], [1.0 + 1e-15]]), np.ones(3))
    >>> sorted(zip(rows.ravel().tolist(), mass.tolist()))
    [(1.0, 2.0), (2.0, 1.0)]
    """
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    order = np.argsort(X @ direction, kind="stable")
    ordered = X[order]
    rounding = ROUNDED_UNITS * np.finfo(dtype).eps * np.abs(X).max(axis=0, initial=0.0)
    is_new = np.append(True, (np.abs(np.diff(ordered, axis=0)) > rounding).any(axis=1))
    mass: FloatArray = np.add.reduceat(weight[order], np.flatnonzero(is_new))
    return ordered[is_new], mass


def fit_centres(
    rows: FloatArray, weight: FloatArray, n_clusters: int, random_state: Any, **options: Any
) -> FloatArray:
    """Return the centres (n_clusters, d) of k-means on distinct rows (m, d) with weights (m,)."""
    factors = _factors(rows.shape[1])
    model = KMeans(n_clusters, random_state=random_state, **options)
    model.fit(rows * factors, sample_weight=weight)
    return np.asarray(model.cluster_centers_ / factors)


def nearest_centres(X: FloatArray, centres: FloatArray) -> IntArray:
    """Return the index (n,) of the centre that each row of X belongs to."""
    factors = _factors(X.shape[1])
    return np.asarray(pairwise_distances_argmin(X * factors, centres * factors), np.intp)


def _factors(n_features: int) -> FloatArray:
    """Return the factor of each feature; they are the same for the same number of features."""
    return 1 + np.random.default_rng(1).uniform(-STRETCH, STRETCH, n_features)

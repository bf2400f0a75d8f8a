"""Means over known rows, written as plain means, so that intervals need not know about gaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray
from mild.metrics.rows import row_weights

__all__ = ["clustered_rows", "linearised_rows"]


def linearised_rows(values: ArrayLike, sample_weight: ArrayLike | None = None) -> FloatArray:
    """Rows whose plain mean is each column's weighted mean over its known rows.

    ``n * w_i * known_ij / sum_i w_i known_ij * (v_ij - mean_j) + mean_j``: values themselves when all
    are known and weigh the same. Their spread gives the standard error of that mean, and the difference
    of two columns the standard error of the difference, although the columns miss different rows.
    Keeping only rows that both know would favour rows on which two routers agree.

    Parameters
    ----------
    values : (n_samples, m) array; NaN where a value is not known
    sample_weight : (n_samples,) optional

    Returns
    -------
    (n_samples, m) array; a column without a known row of positive weight is all NaN

    Examples
    --------
    >>> linearised_rows([[1.0, 0.0], [3.0, np.nan], [np.nan, 2.0]]).mean(axis=0)
    array([2., 1.])
    """
    array = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(array)
    mass = row_weights(sample_weight, len(array))[:, None] * known
    total = mass.sum(axis=0)
    filled = np.where(known, array, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (mass * filled).sum(axis=0) / total
        return len(array) * mass / total * (filled - mean) + mean


def clustered_rows(rows: ArrayLike, clusters: ArrayLike) -> FloatArray:
    """One row per cluster, with the same plain mean: rows that belong together count once.

    ``mean_j + U / n * (S_uj - n_u * mean_j)`` for U clusters, S the sums and n_u the sizes. The spread
    of these rows gives the standard error that lets rows of a cluster hang together as they may. A
    constant column stays that constant.

    Parameters
    ----------
    rows : (n_samples, m) array, such as differences of ``linearised_rows``
    clusters : (n_samples,) labels

    Returns
    -------
    (n_clusters, m) array

    Examples
    --------
    >>> clustered_rows([[1.0], [1.0], [4.0]], [0, 0, 1])
    array([[0.66666667],
           [3.33333333]])
    """
    array = np.asarray(rows, dtype=np.float64)
    labels = np.asarray(clusters)
    order = np.argsort(labels, kind="stable")
    starts = np.unique(labels[order], return_index=True)[1]
    mean = array.mean(axis=0)
    sums = np.add.reduceat(array[order] - mean, starts, axis=0)
    same = array.min(axis=0) == array.max(axis=0)
    result: FloatArray = np.where(same, array[:1], mean + len(starts) / len(array) * sums)
    return result

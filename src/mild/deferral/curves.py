"""Accuracy of a system over its coverage, with the thresholds that lead there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mild.core.arrays import BoolArray, FloatArray


class CoverageCurve(NamedTuple):
    """Accuracy of the system at every coverage, from 1 (nothing is deferred) downwards.

    Point i defers the rows whose margin exceeds ``threshold[i]``.
    """

    coverage: FloatArray  # share of the rows that the classifier keeps
    accuracy: FloatArray  # of the system
    threshold: FloatArray


def coverage_curve(
    margin: FloatArray, classifier_is_right: BoolArray, expert_is_right: BoolArray
) -> CoverageCurve:
    """Return the accuracy of a system that defers the rows of largest margin, for each number of them.

    Parameters
    ----------
    margin : (n,) array, by how much deferring a row seems better; -inf where nobody can be asked
    classifier_is_right : (n,) array
    expert_is_right : (n,) array, whether the expert is right that would be asked

    Returns
    -------
    CoverageCurve, with one point for each number of rows that some threshold defers
    """
    n_rows = len(margin)
    order = np.argsort(-margin, kind="stable")
    sorted_margin = margin[order]
    gain = expert_is_right[order].astype(float) - classifier_is_right[order]
    accuracy = (classifier_is_right.sum() + np.append(0, np.cumsum(gain))) / n_rows
    n_deferred = np.arange(n_rows + 1)
    thresholds = np.append(sorted_margin, -np.inf)
    # No threshold divides rows of the same margin, and rows without an expert are never deferred.
    margin_falls = np.append(True, sorted_margin[:-1] > sorted_margin[1:])
    is_possible = np.append(margin_falls, True) & (n_deferred <= np.isfinite(margin).sum())
    return CoverageCurve(
        coverage=1 - n_deferred[is_possible] / n_rows,
        accuracy=accuracy[is_possible],
        threshold=thresholds[is_possible],
    )

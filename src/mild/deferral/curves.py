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


def coverage_curve(margin: FloatArray, kept: BoolArray, deferred: BoolArray) -> CoverageCurve:
    """The curve of rows with a deferral margin (n,), -inf where nobody can be asked.

    ``kept`` (n,) is whether the classifier is right, ``deferred`` (n,) whether the expert is
    that it would ask. Rows of the same margin are deferred together.
    """
    n_rows = len(margin)
    order = np.argsort(-margin, kind="stable")
    sorted_margin = margin[order]
    gain = deferred[order].astype(float) - kept[order]
    accuracy = (kept.sum() + np.append(0, np.cumsum(gain))) / n_rows
    n_deferred = np.arange(n_rows + 1)
    # After the last row of each margin; rows without an expert stay with the classifier.
    thresholds = np.append(sorted_margin, -np.inf)
    is_end = np.append(True, sorted_margin[:-1] > sorted_margin[1:])
    possible = np.append(is_end, True) & (n_deferred <= np.isfinite(margin).sum())
    return CoverageCurve(
        1 - n_deferred[possible] / n_rows, accuracy[possible], thresholds[possible]
    )

"""Relative costs from decoded distributions, and temperature scaling of scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, check_labels, check_scores, invalid

__all__ = ["fit_temperature", "relative_costs"]


def relative_costs(distribution: ArrayLike) -> FloatArray:
    """Expected cost of each expert as a share of all experts' together.

    ``E c_k / E sum_j c_j = 1 - (p - 1) p_k``: for scores trained with ``others`` rewards only.
    Clipped at 0, because the model does not enforce it.

    Examples
    --------
    >>> relative_costs([[0.5, 0.3, 0.2]])
    array([[0. , 0.4, 0.6]])
    """
    array = check_scores(distribution)
    return np.clip(1 - (array.shape[1] - 1) * array, 0, None)


def fit_temperature(scores: ArrayLike, labels: ArrayLike) -> float:
    """Temperature T for which ``softmax(scores / T)`` has the least log loss on held-out labels.

    It calibrates probabilities; it cannot change which score is largest.

    Examples
    --------
    >>> fit_temperature([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 0, 1]).__round__(3)
    1.82
    """
    f = check_scores(scores).astype(np.float64)
    y = check_labels(labels, *f.shape)
    if len(f) == 0:
        raise invalid("scores", "must have at least one row to fit a temperature; got 0.")
    rows = np.arange(len(f))
    f = f - f.max(axis=1, keepdims=True)

    def slope(log_t: float) -> float:
        z = f * np.exp(-log_t)
        probability = np.exp(z)
        probability /= probability.sum(axis=1, keepdims=True)
        return float((z[rows, y] - (probability * z).sum(axis=1)).mean())

    # The loss is convex in 1/T: its slope changes sign at most once.
    low, high = -10.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        if slope(middle) > 0:
            high = middle
        else:
            low = middle
    return float(np.exp((low + high) / 2))

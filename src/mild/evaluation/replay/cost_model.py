"""What each expert would have cost, by ridge regression, never fitted on the rows that it judges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mild.core.arrays import FloatArray, IntArray

__all__ = ["expected_costs"]

FOLDS = 5
# Ridge strengths, in shares of the mean variance of a feature.
STRENGTHS = 10.0 ** np.arange(-4, 5)
# Rows of an expert below which only their mean is learned.
FEW = 10
# Rows whose products are formed at a time.
BLOCK = 50_000


@dataclass
class _Moments:
    """Sums over rows from which a ridge regression follows; they add and subtract."""

    count: float
    x: FloatArray
    y: float
    xx: FloatArray
    xy: FloatArray
    yy: float

    def __add__(self, other: _Moments) -> _Moments:
        return _Moments(
            self.count + other.count,
            self.x + other.x,
            self.y + other.y,
            self.xx + other.xx,
            self.xy + other.xy,
            self.yy + other.yy,
        )


def expected_costs(
    features: FloatArray,
    chosen: IntArray,
    costs: FloatArray,
    groups: IntArray,
    n_experts: int,
    seed: int = 0,
) -> FloatArray:
    """Expected cost (n, n_experts) of each expert on each row.

    For every expert and fold a ridge regression of the cost on the features, fitted on the rows of the
    other folds on which that expert was drawn; its strength by generalised cross-validation. An expert
    with few rows there gets their mean, one with none the mean over all experts.

    Parameters
    ----------
    features : (n, d) array
    chosen : (n,) index of the expert that was drawn, negative if it is none of them
    costs : (n,) what it cost
    groups : (n,) episode of each row: an episode is never on both sides of a split
    n_experts : number of experts
    seed : of the split into folds
    """
    scaled = _standardised(features)
    folds = _folds(groups, seed)
    means = [
        float(costs[(folds != f) & (chosen >= 0)].mean())
        if ((folds != f) & (chosen >= 0)).any()
        else 0.0
        for f in range(FOLDS)
    ]
    result = np.empty((len(costs), n_experts))
    for expert in range(n_experts):
        parts = [
            _moments(scaled, costs, np.flatnonzero((chosen == expert) & (folds == f)))
            for f in range(FOLDS)
        ]
        for f in range(FOLDS):
            others = [part for place, part in enumerate(parts) if place != f]
            total = others[0] + others[1] + others[2] + others[3]
            slope, intercept = _ridge(total, means[f])
            rows = folds == f
            result[rows, expert] = scaled[rows] @ slope + intercept
    return result


def _standardised(features: FloatArray) -> FloatArray:
    centre = features.mean(axis=0, dtype=np.float64)
    scale = features.std(axis=0, dtype=np.float64)
    return np.asarray((features - centre) / np.where(scale > 0, scale, 1.0), dtype=np.float64)


def _folds(groups: IntArray, seed: int) -> IntArray:
    """Fold of each row, by its episode."""
    _, episode = np.unique(groups, return_inverse=True)
    count = int(episode.max(initial=-1)) + 1
    dealt = np.random.default_rng(seed).permutation(count) % FOLDS
    return dealt[episode]


def _moments(features: FloatArray, costs: FloatArray, rows: IntArray) -> _Moments:
    width = features.shape[1]
    total = _Moments(0.0, np.zeros(width), 0.0, np.zeros((width, width)), np.zeros(width), 0.0)
    for start in range(0, rows.size, BLOCK):
        part = rows[start : start + BLOCK]
        X, y = features[part], costs[part]
        total += _Moments(
            float(part.size), X.sum(axis=0), float(y.sum()), X.T @ X, X.T @ y, float(y @ y)
        )
    return total


def _ridge(moments: _Moments, usual: float) -> tuple[FloatArray, float]:
    """Slope and intercept; the strength with the least generalised cross-validation error."""
    count, width = moments.count, moments.x.size
    if count == 0:
        return np.zeros(width), usual
    mean_x, mean_y = moments.x / count, moments.y / count
    if count < FEW:
        return np.zeros(width), mean_y
    cross = moments.xy / count - mean_x * mean_y
    variance = max(moments.yy / count - mean_y**2, 0.0)
    value, vector = np.linalg.eigh(moments.xx / count - np.outer(mean_x, mean_x))
    value = np.clip(value, 0.0, None)
    along = vector.T @ cross
    unit = float(value.mean())
    if unit <= 0:
        return np.zeros(width), mean_y
    best, chosen = np.inf, np.zeros(width)
    for strength in STRENGTHS * unit:
        slope = along / (value + strength)
        residual = max(variance - 2 * slope @ along + slope**2 @ value, 0.0)
        # The intercept is a parameter, too.
        freedom = 1 - (1 + (value / (value + strength)).sum()) / count
        if freedom <= 0:
            continue
        score = residual / freedom**2
        if score < best:
            best, chosen = score, slope
    slope = vector @ chosen
    return slope, mean_y - float(mean_x @ slope)

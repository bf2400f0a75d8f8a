"""Heads that share what their experts have in common, for outcomes that are mostly unknown.

A logged request shows one expert's outcome. Separate heads for many experts would then learn little, and
the best of many noisy estimates would be too good to be true. Here expert k is expected to cost

    level_k + x . (common + own_k)

``common`` is a ridge regression over all outcomes, less the mean of their expert; ``own_k`` is one of the
residuals of expert k, with one strength for all experts, relative to how much is known about each
(generalised cross-validation). Levels are drawn towards their mean by the variance that is not explained
by noise (empirical Bayes): an expert that was lucky a few times is not taken for the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.rounding import ESTIMATES, first_least

# Ridge strengths that are tried, as multiples of the features' variance over the number of rows.
STRENGTHS = (*(10.0 ** np.arange(-2, 6)), np.inf)
# Rows that are copied at a time.
_BLOCK = 20_000
# With fewer effective rows of an expert only their mean is learned.
_LEAST = 3.0
# Rows for which the variance of all outcomes counts in that of an expert, and the least variance.
_FEW, _LEAST_VARIANCE = 10.0, 0.02


@dataclass(frozen=True, eq=False)
class PooledHeads:
    """Weights (p, d) and intercepts (p,), and the standard errors (p,) of the experts' levels."""

    coef: FloatArray
    intercept: FloatArray
    standard_errors: FloatArray

    def expected(self, X: FloatArray) -> FloatArray:
        """Expected outcome (n, p) of each expert."""
        return np.asarray(X @ self.coef.T.astype(X.dtype) + self.intercept, float)


@dataclass(frozen=True, eq=False)
class Cells:
    """m outcomes: of which row of the features, and of which expert."""

    row: IntArray
    expert: IntArray
    value: FloatArray
    weight: FloatArray

    @classmethod
    def of_matrix(cls, values: FloatArray) -> Cells:
        """The known entries of values (n, p), with weight 1."""
        row, expert = np.nonzero(~np.isnan(values))
        return cls(row, expert, values[row, expert], np.ones(row.size))

    def scaled(self, scale: FloatArray) -> Cells:
        """The same, with the values of each expert divided by its scale (p,)."""
        return Cells(self.row, self.expert, self.value / scale[self.expert], self.weight)

    def kept(self, index: np.ndarray) -> Cells:
        """Some of the cells."""
        return Cells(self.row[index], self.expert[index], self.value[index], self.weight[index])

    def joined(self, other: Cells, rows_before: int) -> Cells:
        """These and others, whose features come after so many rows."""
        return Cells(
            np.concatenate([self.row, other.row + rows_before]),
            np.concatenate([self.expert, other.expert]),
            np.concatenate([self.value, other.value]),
            np.concatenate([self.weight, other.weight]),
        )


def pooled_heads(
    X: FloatArray, cells: Cells, n_experts: int, *, shrink_levels: bool = True
) -> PooledHeads:
    """Fit heads on features X (n, d) and some outcomes.

    An expert without any outcome has the mean level and the variance of levels.

    >>> X = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    >>> cells = Cells(np.arange(4), np.array([0, 0, 1, 1]), np.array([0.0, 1.0, 0.5, 1.5]), np.ones(4))
    >>> pooled_heads(X, cells, 2, shrink_levels=False).expected(X[:2]).shape
    (2, 2)
    """
    expert, weight = cells.expert, cells.weight
    total = np.bincount(expert, weight, n_experts)
    squares = np.bincount(expert, weight**2, n_experts)
    known = total > 0
    count = np.where(known, total**2 / np.where(known, squares, 1), 0)  # effective rows
    mean = np.bincount(expert, weight * cells.value, n_experts) / np.where(known, total, 1)
    centre = X.mean(axis=0, dtype=np.float64)
    unit = float(X.var(axis=0, dtype=np.float64).sum()) or 1.0
    # Each expert counts as much as is known about it, and a row as often as it was answered.
    share = weight * (count / np.where(known, total, 1))[expert]
    mass: FloatArray = np.bincount(cells.row, share, len(X)).astype(float)
    residual = np.bincount(cells.row, share * (cells.value - mean[expert]), len(X))
    rows = np.flatnonzero(mass > 0)
    pooled = _Moments.of(X, rows, mass[rows], residual[rows] / mass[rows], centre)
    path = _path(pooled, mass[rows].sum() ** 2 / (mass[rows] ** 2).sum(), unit)
    common = path.slopes[first_least(path.errors, ESTIMATES)]
    level: FloatArray = mean.copy()
    coef = np.tile(common, (n_experts, 1))
    variance, own, errors = np.zeros(n_experts), {}, np.zeros(len(STRENGTHS))
    for k in np.flatnonzero(count >= _LEAST):
        mine = np.flatnonzero(expert == k)
        found = _Moments.of(
            X, cells.row[mine], weight[mine], cells.value[mine], centre, less=common
        )
        own[k] = found, _path(found, count[k], unit)
        errors += count[k] * own[k][1].errors
        variance[k] = found.variance
    best = first_least(errors, ESTIMATES)
    for k, (found, path) in own.items():
        coef[k] += path.slopes[best]
        level[k] = found.mean_y - found.mean_x @ path.slopes[best]
    # A few equal outcomes are no certainty: those of all experts count, too.
    middle = float(total @ mean) / (total.sum() or 1.0)
    typical = float(weight @ (cells.value - middle) ** 2) / (total.sum() or 1.0)
    sure = np.where(count >= _LEAST, count, 0)
    variance = np.maximum((sure * variance + _FEW * typical) / (sure + _FEW), _LEAST_VARIANCE)
    error: FloatArray = np.sqrt(variance / np.maximum(count, 1e-3))
    if known.any() and (shrink_levels or not known.all()):
        level, error = _shrink(level, error, known, shrink_levels)
    return PooledHeads(coef, level - coef @ centre, error)


class _Moments(NamedTuple):
    """Weighted moments of features, less a centre, and outcomes."""

    mean_x: FloatArray
    mean_y: float
    covariance: FloatArray  # (d, d) of the features
    along: FloatArray  # (d,) with the outcome
    variance: float  # of the outcome

    @classmethod
    def of(
        cls,
        X: FloatArray,
        rows: IntArray,
        weight: FloatArray,
        y: FloatArray,
        centre: FloatArray,
        less: FloatArray | None = None,
    ) -> _Moments:
        """Moments of some rows; ``less`` are weights whose estimate is subtracted from the outcome."""
        weight = weight / weight.sum()
        d = X.shape[1]
        products = np.zeros((d + 1, d + 1))
        means = np.zeros(d + 1)
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            block = np.empty((len(rows[part]), d + 1))
            block[:, :-1] = X[rows[part]] - centre
            block[:, -1] = y[part] if less is None else y[part] - block[:, :-1] @ less
            means += weight[part] @ block
            products += (block * weight[part, None]).T @ block
        products -= np.outer(means, means)
        return cls(
            means[:-1], means[-1], products[:-1, :-1], products[:-1, -1], max(products[-1, -1], 0.0)
        )


class _Path(NamedTuple):
    """For each of ``STRENGTHS``: the slopes, and the error by generalised cross-validation."""

    slopes: FloatArray
    errors: FloatArray


def _path(moments: _Moments, count: float, unit: float) -> _Path:
    value, vector = np.linalg.eigh(moments.covariance)
    value = np.clip(value, 0.0, None)
    along = vector.T @ moments.along
    slopes, errors = [], []
    for strength in STRENGTHS:
        penalty = strength * unit / count
        slope = along / (value + penalty)
        left = max(moments.variance - 2 * slope @ along + slope**2 @ value, 0.0)
        # The level is a parameter, too.
        freedom = 1 - (1 + (value / (value + penalty)).sum()) / count
        errors.append(left / freedom**2 if freedom > 0.1 else 4 * moments.variance)
        slopes.append(vector @ slope)
    return _Path(np.array(slopes), np.array(errors))


def _shrink(
    level: FloatArray, error: FloatArray, known: np.ndarray, all_levels: bool
) -> tuple[FloatArray, FloatArray]:
    """Levels and errors after shrinkage towards the mean; with ``all_levels`` not only unknown ones."""
    trust = np.where(known, 1 / (error**2 + _LEAST_VARIANCE), 0)
    middle = float(trust @ level / trust.sum())
    spread = max(float(((level - middle) ** 2 - error**2)[known].mean()), 1e-3)
    share = np.where(known, spread / (spread + error**2), 0.0)
    if not all_levels:
        share = known.astype(float)
    shrunk = np.where(known, np.sqrt(np.maximum(share, 0)) * error, np.sqrt(spread))
    return middle + share * (level - middle), shrunk

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

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.rounding import ESTIMATES, first_least

# Ridge strengths that are tried, as multiples of the features' variance over the number of rows.
STRENGTHS = (*(10.0 ** np.arange(-2, 6)), np.inf)
# Rows that are copied at a time.
_BLOCK = 20_000
# With fewer effective rows of an expert only their mean is learned.
_LEAST = 3.0
# Rows for which the variance of all outcomes counts in that of an expert.
_PRIOR_ROWS = 10.0
_LEAST_VARIANCE = 0.02


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
    knowledge = _Knowledge.of(cells, n_experts)
    centre = X.mean(axis=0, dtype=np.float64)
    unit = float(X.var(axis=0, dtype=np.float64).sum()) or 1.0
    common = _common_slopes(X, cells, knowledge, centre, unit)

    level: FloatArray = knowledge.means.copy()
    coef = np.tile(common, (n_experts, 1))
    variance = np.zeros(n_experts)
    moments: dict[int, _Moments] = {}
    paths: dict[int, _Path] = {}
    for expert in np.flatnonzero(knowledge.counts >= _LEAST).tolist():
        own = np.flatnonzero(cells.expert == expert)
        moments[expert] = _Moments.of(
            X, cells.row[own], cells.weight[own], cells.value[own], centre, subtracted=common
        )
        paths[expert] = _ridge_path(moments[expert], knowledge.counts[expert], unit)
        variance[expert] = moments[expert].variance
    # One strength for all experts: what is known about each is too little to choose its own.
    errors = np.zeros(len(STRENGTHS))
    for expert, path in paths.items():
        errors += knowledge.counts[expert] * path.errors
    best = first_least(errors, ESTIMATES)
    for expert, path in paths.items():
        coef[expert] += path.slopes[best]
        level[expert] = moments[expert].mean_y - moments[expert].mean_x @ path.slopes[best]

    standard_errors = _level_errors(cells, knowledge, variance)
    known = knowledge.is_known
    if known.any() and (shrink_levels or not known.all()):
        level, standard_errors = _shrink(level, standard_errors, known, shrink_levels)
    return PooledHeads(coef, level - coef @ centre, standard_errors)


@dataclass(frozen=True, eq=False)
class _Knowledge:
    """How much is known about each of p experts: total weights, effective rows and mean outcomes."""

    totals: FloatArray
    counts: FloatArray
    means: FloatArray

    @classmethod
    def of(cls, cells: Cells, n_experts: int) -> _Knowledge:
        """What the cells say; 0 for experts without any."""
        totals = np.bincount(cells.expert, cells.weight, n_experts).astype(float)
        squares = np.bincount(cells.expert, cells.weight**2, n_experts)
        sums = np.bincount(cells.expert, cells.weight * cells.value, n_experts)
        is_known = totals > 0
        counts = np.where(is_known, totals**2 / np.where(is_known, squares, 1), 0)
        return cls(totals, counts, sums / np.where(is_known, totals, 1))

    @property
    def is_known(self) -> BoolArray:
        """Which experts (p,) have any outcome."""
        return self.totals > 0


def _common_slopes(
    X: FloatArray, cells: Cells, knowledge: _Knowledge, centre: FloatArray, unit: float
) -> FloatArray:
    """Slopes (d,) that all experts share: a ridge regression of all outcomes, less their expert's mean."""
    # Each expert counts as much as is known about it, and a row as often as it was answered.
    rows_per_weight = knowledge.counts / np.where(knowledge.is_known, knowledge.totals, 1)
    cell_mass = cells.weight * rows_per_weight[cells.expert]
    residual = cells.value - knowledge.means[cells.expert]
    mass: FloatArray = np.bincount(cells.row, cell_mass, len(X)).astype(float)
    residual_sums = np.bincount(cells.row, cell_mass * residual, len(X))
    rows = np.flatnonzero(mass > 0)
    mass = mass[rows]
    moments = _Moments.of(X, rows, mass, residual_sums[rows] / mass, centre)
    path = _ridge_path(moments, mass.sum() ** 2 / (mass**2).sum(), unit)
    return path.slopes[first_least(path.errors, ESTIMATES)]


def _level_errors(cells: Cells, knowledge: _Knowledge, variance: FloatArray) -> FloatArray:
    """Standard errors (p,) of the levels, from the variance (p,) of each expert's outcomes."""
    # A few equal outcomes are no certainty: those of all experts count, too.
    total = knowledge.totals.sum() or 1.0
    overall_mean = float(knowledge.totals @ knowledge.means) / total
    overall_variance = float(cells.weight @ (cells.value - overall_mean) ** 2) / total
    own_rows = np.where(knowledge.counts >= _LEAST, knowledge.counts, 0)
    pooled = (own_rows * variance + _PRIOR_ROWS * overall_variance) / (own_rows + _PRIOR_ROWS)
    return np.sqrt(np.maximum(pooled, _LEAST_VARIANCE) / np.maximum(knowledge.counts, 1e-3))


class _Moments(NamedTuple):
    """Weighted moments of features, less a centre, and outcomes."""

    mean_x: FloatArray
    mean_y: float
    covariance: FloatArray  # (d, d) of the features
    covariance_with_y: FloatArray  # (d,) of the features with the outcome
    variance: float  # of the outcome

    @classmethod
    def of(
        cls,
        X: FloatArray,
        rows: IntArray,
        weight: FloatArray,
        y: FloatArray,
        centre: FloatArray,
        subtracted: FloatArray | None = None,
    ) -> _Moments:
        """Moments of some rows; the estimate with weights ``subtracted`` is taken off the outcome."""
        weight = weight / weight.sum()
        d = X.shape[1]
        products = np.zeros((d + 1, d + 1))
        means = np.zeros(d + 1)
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            block = np.empty((len(rows[part]), d + 1))
            block[:, :-1] = X[rows[part]] - centre
            block[:, -1] = y[part]
            if subtracted is not None:
                block[:, -1] -= block[:, :-1] @ subtracted
            means += weight[part] @ block
            products += (block * weight[part, None]).T @ block
        products -= np.outer(means, means)
        return cls(
            mean_x=means[:-1],
            mean_y=means[-1],
            covariance=products[:-1, :-1],
            covariance_with_y=products[:-1, -1],
            variance=max(products[-1, -1], 0.0),
        )


class _Path(NamedTuple):
    """For each of ``STRENGTHS``: the slopes, and the error by generalised cross-validation."""

    slopes: FloatArray
    errors: FloatArray


def _ridge_path(moments: _Moments, count: float, unit: float) -> _Path:
    """Ridge regressions with each strength, from ``count`` effective rows.

    With the eigenvalues v of the covariance and the penalty l, the slopes along the eigenvectors are
    ``c / (v + l)``, c the covariance with the outcome. Generalised cross-validation divides what is left
    of the variance by ``(1 - degrees of freedom / count)^2``.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(moments.covariance)
    eigenvalues = np.clip(eigenvalues, 0.0, None)
    covariance = eigenvectors.T @ moments.covariance_with_y
    slopes = []
    errors = []
    for strength in STRENGTHS:
        penalty = strength * unit / count
        slope = covariance / (eigenvalues + penalty)
        left = max(moments.variance - 2 * slope @ covariance + slope**2 @ eigenvalues, 0.0)
        # The level is a parameter, too.
        n_parameters = 1 + (eigenvalues / (eigenvalues + penalty)).sum()
        share_free = 1 - n_parameters / count
        error = 4 * moments.variance  # of a fit with too many parameters
        if share_free > 0.1:
            error = left / share_free**2
        errors.append(error)
        slopes.append(eigenvectors @ slope)
    return _Path(np.array(slopes), np.array(errors))


def _shrink(
    level: FloatArray, error: FloatArray, known: BoolArray, all_levels: bool
) -> tuple[FloatArray, FloatArray]:
    """Levels and errors after shrinkage towards the mean; with ``all_levels`` not only unknown ones.

    A level is drawn towards the mean m by the share of the variance that is noise (empirical Bayes):
    ``m + spread / (spread + error^2) * (level - m)``.
    """
    precision = np.where(known, 1 / (error**2 + _LEAST_VARIANCE), 0)
    mean = float(precision @ level / precision.sum())
    spread = max(float(((level - mean) ** 2 - error**2)[known].mean()), 1e-3)
    share = known.astype(float)
    if all_levels:
        share = np.where(known, spread / (spread + error**2), 0.0)
    shrunk_error = np.where(known, np.sqrt(np.maximum(share, 0)) * error, np.sqrt(spread))
    return mean + share * (level - mean), shrunk_error

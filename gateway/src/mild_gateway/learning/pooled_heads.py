"""Heads that share what their experts have in common, for outcomes that are mostly unknown.

A logged request shows one expert's outcome. Separate heads for many experts would then learn little, and
the best of many noisy estimates would be too good to be true. Here expert k is expected to cost

    level_k + x . (common + special_k)

``common`` is fitted by ridge regression to all outcomes, each minus the mean of its expert, and
``special_k`` to the residuals of expert k. All experts share one penalty strength, which is chosen by
generalised cross-validation and divided by the expert's number of rows. Levels are shrunk towards their
mean by the share of their variance that is noise (empirical Bayes), so that an expert that was lucky a
few times is not taken for the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mild_gateway.arrays import BoolArray, FloatArray, IntArray

# Ridge strengths that are tried, as multiples of the features' variance over the number of rows. With
# the last one all slopes are 0.
STRENGTHS = (*(10.0 ** np.arange(-2, 6)), np.inf)
# Moments are summed over this many rows at a time.
_BLOCK = 20_000
# With fewer effective rows of an expert only their mean is learned.
_LEAST_ROWS = 3.0
# The variance of all outcomes counts as this many rows in the variance of each expert's outcomes.
_PRIOR_ROWS = 10.0
# Relative differences of errors that are rounding: features have single precision.
_ROUNDING = 1e-6
# Outcomes are never taken to vary less than this, or equal ones would look certain.
_LEAST_VARIANCE = 0.02


@dataclass(frozen=True, eq=False)
class PooledHeads:
    """Weights (p, d) and intercepts (p,), and the standard errors (p,) of the experts' levels."""

    coef: FloatArray
    intercept: FloatArray
    standard_errors: FloatArray

    def expected(self, X: FloatArray) -> FloatArray:
        """Return the expected outcome (n, p) of each expert."""
        return np.asarray(X @ self.coef.T.astype(X.dtype) + self.intercept, float)


@dataclass(frozen=True, eq=False)
class SparseOutcomes:
    """The m known outcomes, or cells, of a table (n_rows, n_experts), as parallel arrays."""

    row: IntArray  # (m,) row of the features
    expert: IntArray  # (m,)
    value: FloatArray  # (m,) the outcome
    weight: FloatArray  # (m,)

    @classmethod
    def of_matrix(cls, values: FloatArray) -> SparseOutcomes:
        """Return the known entries of values (n, p), with weight 1."""
        row, expert = np.nonzero(~np.isnan(values))
        return cls(row, expert, values[row, expert], np.ones(row.size))

    def scaled(self, scale: FloatArray) -> SparseOutcomes:
        """Return the cells with the values of each expert divided by its scale (p,)."""
        return SparseOutcomes(self.row, self.expert, self.value / scale[self.expert], self.weight)

    def kept(self, index: np.ndarray) -> SparseOutcomes:
        """Return some of the cells, by index or by a boolean mask."""
        return SparseOutcomes(
            self.row[index], self.expert[index], self.value[index], self.weight[index]
        )

    def joined(self, other: SparseOutcomes, rows_before: int) -> SparseOutcomes:
        """Return these cells and the others, whose features come after ``rows_before`` rows."""
        return SparseOutcomes(
            np.concatenate([self.row, other.row + rows_before]),
            np.concatenate([self.expert, other.expert]),
            np.concatenate([self.value, other.value]),
            np.concatenate([self.weight, other.weight]),
        )


def pooled_heads(
    X: FloatArray, cells: SparseOutcomes, n_experts: int, *, shrink_levels: bool = True
) -> PooledHeads:
    """Fit one linear function per expert to features X (n, d) and some of the outcomes.

    Expert k is expected to cost

        level_k + (x - centre) . (common + special_k),

    where ``special_k`` is fitted by ridge regression to the residuals of ``common``. It is 0 for experts
    with fewer than ``_LEAST_ROWS`` effective rows. Experts without any outcome also get the mean level,
    with the standard deviation of the levels as its standard error.

    Parameters
    ----------
    X : array of shape (n, d)
        The features.
    cells : SparseOutcomes
        The known outcomes.
    n_experts : int
        Number of experts, p.
    shrink_levels : bool, default=True
        Whether levels are drawn towards their mean (empirical Bayes).

    Returns
    -------
    heads : PooledHeads

    Examples
    --------
    >>> X = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    >>> values = np.array([0.0, 1.0, 0.5, 1.5])
    >>> cells = SparseOutcomes(np.arange(4), np.array([0, 0, 1, 1]), values, np.ones(4))
    >>> pooled_heads(X, cells, 2, shrink_levels=False).expected(X[:2]).shape
    (2, 2)
    """
    summary = _CellSummary.of(cells, n_experts)
    centre = X.mean(axis=0, dtype=np.float64)
    feature_variance = float(X.var(axis=0, dtype=np.float64).sum()) or 1.0
    common = _common_slopes(X, cells, summary, centre, feature_variance)

    moments: dict[int, _Moments] = {}
    paths: dict[int, _Path] = {}
    for expert in np.flatnonzero(summary.n_effective >= _LEAST_ROWS).tolist():
        expert_cells = cells.kept(np.flatnonzero(cells.expert == expert))
        moments[expert] = _Moments.of(
            X, expert_cells.row, expert_cells.weight, expert_cells.value, centre, subtracted=common
        )
        paths[expert] = _ridge_path(moments[expert], summary.n_effective[expert], feature_variance)
    best = _best_strength(paths, summary)

    level: FloatArray = summary.means.copy()
    coef = np.tile(common, (n_experts, 1))
    variance = np.zeros(n_experts)
    for expert, path in paths.items():
        special = path.slopes[best]
        coef[expert] += special
        level[expert] = moments[expert].mean_y - moments[expert].mean_x @ special
        variance[expert] = moments[expert].variance

    standard_errors = _level_errors(cells, summary, variance)
    is_known = summary.is_known
    if is_known.any() and (shrink_levels or not is_known.all()):
        level, standard_errors = _shrink(level, standard_errors, is_known, shrink_levels)
    return PooledHeads(coef, level - coef @ centre, standard_errors)


def _best_strength(paths: dict[int, _Path], summary: _CellSummary) -> int:
    """Return the index of the strength with the least error, summed over all experts.

    It is one strength for all, because each expert alone has too few outcomes to choose its own.
    """
    errors = np.zeros(len(STRENGTHS))
    for expert, path in paths.items():
        errors += summary.n_effective[expert] * path.errors
    return _first_smallest(errors)


def _first_smallest(errors: FloatArray) -> int:
    """Return the index of the first of the errors that equal the least one up to rounding."""
    return int(np.argmax(errors <= errors.min() * (1 + _ROUNDING)))


@dataclass(frozen=True, eq=False)
class _CellSummary:
    """How much is known about each of p experts; 0 for experts without any outcome."""

    total_weights: FloatArray  # (p,)
    n_effective: FloatArray  # (p,) rows of equal weight that would say as much: (sum w)^2 / sum w^2
    means: FloatArray  # (p,) weighted mean outcomes

    @classmethod
    def of(cls, cells: SparseOutcomes, n_experts: int) -> _CellSummary:
        """Summarise cells, expert by expert."""
        totals = np.bincount(cells.expert, cells.weight, n_experts).astype(float)
        squares = np.bincount(cells.expert, cells.weight**2, n_experts)
        sums = np.bincount(cells.expert, cells.weight * cells.value, n_experts)
        is_known = totals > 0
        n_effective = np.where(is_known, totals**2 / np.where(is_known, squares, 1), 0)
        return cls(totals, n_effective, sums / np.where(is_known, totals, 1))

    @property
    def is_known(self) -> BoolArray:
        """Whether each expert (p,) has any outcome."""
        return self.total_weights > 0


def _common_slopes(
    X: FloatArray,
    cells: SparseOutcomes,
    summary: _CellSummary,
    centre: FloatArray,
    feature_variance: float,
) -> FloatArray:
    """Fit the slopes (d,) that all experts share, to all outcomes minus the mean of their expert."""
    # Weights are scaled so that those of an expert sum to its effective rows. A row that several experts
    # answered counts with the sum of their weights, and with their mean outcome.
    rows_per_weight = summary.n_effective / np.where(summary.is_known, summary.total_weights, 1)
    cell_weight = cells.weight * rows_per_weight[cells.expert]
    residual = cells.value - summary.means[cells.expert]
    row_weight: FloatArray = np.bincount(cells.row, cell_weight, len(X)).astype(float)
    residual_sums = np.bincount(cells.row, cell_weight * residual, len(X))
    rows = np.flatnonzero(row_weight > 0)
    row_weight = row_weight[rows]
    moments = _Moments.of(X, rows, row_weight, residual_sums[rows] / row_weight, centre)
    n_effective = row_weight.sum() ** 2 / (row_weight**2).sum()
    path = _ridge_path(moments, n_effective, feature_variance)
    return path.slopes[_first_smallest(path.errors)]


def _level_errors(cells: SparseOutcomes, summary: _CellSummary, variance: FloatArray) -> FloatArray:
    """Return the standard errors (p,) of the levels, from the variance (p,) of each expert's outcomes."""
    total_weight = summary.total_weights.sum() or 1.0
    overall_mean = float(summary.total_weights @ summary.means) / total_weight
    overall_variance = float(cells.weight @ (cells.value - overall_mean) ** 2) / total_weight
    # A few equal outcomes give no certainty, so the variance of all outcomes counts as well.
    n_rows = np.where(summary.n_effective >= _LEAST_ROWS, summary.n_effective, 0)
    pooled = (n_rows * variance + _PRIOR_ROWS * overall_variance) / (n_rows + _PRIOR_ROWS)
    return np.sqrt(np.maximum(pooled, _LEAST_VARIANCE) / np.maximum(summary.n_effective, 1e-3))


class _Moments(NamedTuple):
    """Weighted moments of features, minus a centre, and of outcomes."""

    mean_x: FloatArray  # (d,)
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
        """Return the moments of m rows with weights (m,) and outcomes y (m,).

        ``rows`` (m,) are their indices in X (n, d); ``centre`` (d,) is subtracted from the features, and
        the estimate with slopes ``subtracted`` (d,), if any, from the outcomes.
        """
        weight = weight / weight.sum()
        d = X.shape[1]
        # Features and outcome side by side, [x y], so that all moments follow from one product.
        second_moments = np.zeros((d + 1, d + 1))
        means = np.zeros(d + 1)
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            block = np.empty((len(rows[part]), d + 1))
            block[:, :-1] = X[rows[part]] - centre
            block[:, -1] = y[part]
            if subtracted is not None:
                block[:, -1] -= block[:, :-1] @ subtracted
            means += weight[part] @ block
            second_moments += (block * weight[part, None]).T @ block
        covariance = second_moments - np.outer(means, means)
        return cls(
            mean_x=means[:-1],
            mean_y=means[-1],
            covariance=covariance[:-1, :-1],
            covariance_with_y=covariance[:-1, -1],
            variance=max(covariance[-1, -1], 0.0),
        )


class _Path(NamedTuple):
    """Ridge regressions with each of ``STRENGTHS``."""

    slopes: FloatArray  # (n_strengths, d)
    errors: FloatArray  # (n_strengths,) squared errors, by generalised cross-validation


def _ridge_path(moments: _Moments, n_rows: float, feature_variance: float) -> _Path:
    """Fit a ridge regression with each strength, from ``n_rows`` effective rows.

    ``feature_variance`` is the sum of the variances of the features, and the penalty is a strength times
    ``feature_variance / n_rows``.

    With the eigenvalues v of the covariance, the penalty l, and c the covariance of the outcome with the
    features along the eigenvectors, the slopes along the eigenvectors are

        s = c / (v + l).

    Generalised cross-validation estimates the squared error of new rows by

        (variance - 2 s . c + s^2 . v) / (1 - n_parameters / n_rows)^2,

    with the effective number of parameters ``1 + sum v / (v + l)``: the level is a parameter, too.
    """
    v, eigenvectors = np.linalg.eigh(moments.covariance)
    # Rounding may leave an eigenvalue just below 0.
    v = np.clip(v, 0.0, None)
    c = eigenvectors.T @ moments.covariance_with_y
    slopes = []
    errors = []
    for strength in STRENGTHS:
        penalty = strength * feature_variance / n_rows
        s = c / (v + penalty)
        residual_variance = max(moments.variance - 2 * s @ c + s**2 @ v, 0.0)
        n_parameters = 1 + (v / (v + penalty)).sum()
        residual_share = 1 - n_parameters / n_rows
        # With few residual degrees of freedom the estimate is unreliable. Such a fit gets a larger error
        # than the constant, whose error variance / (1 - 1 / n_rows)^2 is below this for n_rows > 2.
        error = 4 * moments.variance
        if residual_share > 0.1:
            error = residual_variance / residual_share**2
        errors.append(error)
        slopes.append(eigenvectors @ s)
    return _Path(np.array(slopes), np.array(errors))


def _shrink(
    level: FloatArray, error: FloatArray, is_known: BoolArray, all_levels: bool
) -> tuple[FloatArray, FloatArray]:
    """Draw levels (p,) towards their mean; return them and their standard errors (p,).

    Unknown levels become the mean m. With ``all_levels``, known ones are drawn towards it by the share of
    the variance that is noise (empirical Bayes): ``m + spread / (spread + error^2) * (level - m)``.
    """
    precision = np.where(is_known, 1 / (error**2 + _LEAST_VARIANCE), 0)
    mean = float(precision @ level / precision.sum())
    spread = max(float(((level - mean) ** 2 - error**2)[is_known].mean()), 1e-3)
    share = is_known.astype(float)
    if all_levels:
        share = np.where(is_known, spread / (spread + error**2), 0.0)
    shrunk_error = np.where(is_known, np.sqrt(np.maximum(share, 0)) * error, np.sqrt(spread))
    return mean + share * (level - mean), shrunk_error

"""Which of many candidates beat the baseline? Intervals that hold jointly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, float_matrix
from mild.errors import InvalidInputError, check_option
from mild.metrics.rows import check_draws

__all__ = ["SIDES", "SimultaneousIntervals", "simultaneous_intervals"]

SIDES = ("two-sided", "lower", "upper")

# Entries of one block of rows or draws: about 8 MB.
BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class SimultaneousIntervals:
    """Intervals for m mean differences that all hold at once with the given confidence.

    Attributes
    ----------
    estimate, low, high, standard_error : (m,) arrays
    quantile : how many standard errors the limits lie from the estimates
    n : number of rows
    confidence : joint coverage aimed at
    side : "two-sided", "lower" (high is infinite) or "upper" (low is minus infinite)
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    standard_error: FloatArray
    quantile: float
    n: int
    confidence: float
    side: str

    @property
    def decided(self) -> BoolArray:
        """Whether each interval excludes 0; the claims hold together."""
        return (self.low > 0) | (self.high < 0)


def simultaneous_intervals(
    differences: ArrayLike,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
    side: str = "two-sided",
    n_draws: int = 20_000,
) -> SimultaneousIntervals:
    """Intervals for m mean differences that hold jointly: the best of many, judged honestly.

    ``mean_j ± q * se_j`` with q the ``confidence`` quantile of ``max_j |T_j|``, where T is drawn
    from a multivariate t distribution with n - 1 degrees of freedom and the sample correlation of
    the columns. Right for normal differences, and for any others once n is large. Candidates that
    move together widen the intervals less than a Bonferroni correction would.

    With ``side="upper"`` or ``"lower"`` q belongs to ``max_j T_j`` and the other limit is infinite.
    For costs, candidate minus baseline, "better" is ``high < 0`` with ``side="upper"``. A constant
    column is known exactly: its interval has no width and it takes no part in q.

    Parameters
    ----------
    differences : (n_samples, m) array, one column per candidate: candidate minus baseline
    confidence : float in (0, 1), the probability that all m intervals hold
    random_state : int, Generator or None
    side : "two-sided", "lower" or "upper"
    n_draws : int

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(400, 2))
    >>> result = simultaneous_intervals(noise + [0.0, -0.5], side="upper")
    >>> result.decided
    array([False,  True])
    """
    check_option("side", side, SIDES)
    check_draws("n_draws", n_draws, confidence)
    array = float_matrix("differences", differences)
    n_samples, m = array.shape
    if n_samples < 2:
        raise InvalidInputError(f"differences must have at least two rows; got {n_samples}.")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise InvalidInputError(
            f"differences must be finite; got {array[row, column]} in row {row}, column {column}. "
            f"Remove these rows."
        )
    low_value, high_value = array.min(axis=0), array.max(axis=0)
    varies = high_value > low_value
    mean = np.where(varies, array.mean(axis=0, dtype=np.float64), low_value)
    covariance = np.zeros((m, m))
    block = max(1, BLOCK // m)
    for start in range(0, n_samples, block):
        centred = array[start : start + block] - mean
        covariance += centred.T @ centred
    covariance /= n_samples - 1
    error = np.where(varies, np.sqrt(np.diag(covariance) / n_samples), 0.0)
    varies &= error > 0
    quantile = 0.0
    if varies.any():
        scale = error[varies] * np.sqrt(n_samples)
        correlation = covariance[np.ix_(varies, varies)] / np.outer(scale, scale)
        largest = _draw_largest(
            correlation,
            n_samples - 1,
            side == "two-sided",
            n_draws,
            np.random.default_rng(random_state),
        )
        quantile = float(np.quantile(largest, confidence))
    reach = quantile * error
    infinite = np.full(m, np.inf)
    return SimultaneousIntervals(
        estimate=mean,
        low=-infinite if side == "upper" else mean - reach,
        high=infinite if side == "lower" else mean + reach,
        standard_error=error,
        quantile=quantile,
        n=n_samples,
        confidence=confidence,
        side=side,
    )


def _draw_largest(
    correlation: FloatArray,
    freedom: int,
    two_sided: bool,
    n_draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws of ``max_j T_j`` (or ``max_j |T_j|``), T multivariate t with the given correlation."""
    # Eigenvalues rather than Cholesky: duplicated candidates make the matrix singular.
    value, vector = np.linalg.eigh(correlation)
    root = (vector * np.sqrt(np.clip(value, 0, None))).T
    largest = np.empty(n_draws)
    block = max(1, BLOCK // len(correlation))
    for start in range(0, n_draws, block):
        rows = min(block, n_draws - start)
        draws = rng.standard_normal((rows, len(correlation))) @ root
        if two_sided:
            np.abs(draws, out=draws)
        chi = np.sqrt(rng.chisquare(freedom, size=rows) / freedom)
        largest[start : start + rows] = draws.max(axis=1) / chi
    return largest

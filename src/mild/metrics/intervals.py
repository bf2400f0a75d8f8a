"""Confidence intervals of mean differences, such as those of the costs of two routers on the same rows.

``split_intervals`` selects the kind of interval: ``paired_interval`` for one difference,
``joint_intervals`` for several that must hold jointly, ``resampled_intervals`` for several random
splits of the same rows into training and test rows. ``linearised_rows`` and ``grouped_rows`` rewrite means
over known rows, and over groups of rows, as plain means of rows, so that the intervals need no special case
for missing values or groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_entries,
    check_share,
    float_matrix,
    invalid,
)
from mild.errors import check_option
from mild.metrics.interval import Interval
from mild.metrics.rows import check_draws, number_vector, row_weights

# With fewer groups the percentile interval is too short; Student's interval widens it.
FEWEST_GROUPS_FOR_PERCENTILES = 30
# Beyond this many groups the bootstrap draws among random pools of groups.
MAX_GROUPS = 20_000
# Entries of one block of draws: about 8 MB.
BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class JointIntervals:
    """Intervals for m mean differences of n rows that all hold at once with the given confidence.

    ``estimate``, ``low``, ``high`` and ``standard_error`` are (m,); ``quantile`` is the distance of the
    limits from the estimates, in standard errors.
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

    def row(self, index: int) -> tuple[float, float, float]:
        """Return estimate, low and high of one difference."""
        return float(self.estimate[index]), float(self.low[index]), float(self.high[index])


def paired_interval(
    a: ArrayLike,
    b: ArrayLike,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    random_state: int | np.random.Generator | None = 0,
    groups: ArrayLike | None = None,
) -> Interval:
    """Return the bootstrap percentile interval of ``mean(a - b)``.

    Rows, or whole groups of rows, are drawn with replacement. With S_g the sum and n_g the number of the
    differences in group g, and w_g how often it is drawn, a replicate of the mean is
    ``sum_g w_g S_g / sum_g w_g n_g``. The interval runs between quantiles of the replicates.

    Below 30 groups the interval is extended to include Student's, ``mean ± t * se`` with
    ``se^2 = G / (G - 1) * sum_g (S_g - n_g * mean)^2 / n^2`` for G groups of n rows together, and t with
    G - 1 degrees of freedom. More than 20,000 groups are first assigned at random to 20,000 pools, which
    estimates the spread without bias.

    Parameters
    ----------
    a, b : arrays of shape (n_samples,)
        Values on the same rows, such as the costs of two routers.
    confidence : float, default=0.95
        Number in (0, 1).
    n_resamples : int, default=2000
        Number of replicates, at least ``2 / (1 - confidence)``.
    random_state : int, Generator or None, default=0
        Source of the draws.
    groups : array of shape (n_samples,), default=None
        Labels of rows that are drawn together, such as those of a user or a document. None draws rows.

    Returns
    -------
    interval : Interval

    Examples
    --------
    >>> interval = paired_interval([0.0, 0.5, 0.0, 0.2], [1.0, 1.0, 1.0, 0.9])
    >>> round(interval.estimate, 3), interval.decided
    (-0.8, True)
    """
    values_a = number_vector("a", a)
    difference = values_a - number_vector("b", b, len(values_a))
    n_samples = len(difference)
    check_draws("n_resamples", n_resamples, confidence)
    group_of_row = _group_of_row(groups, n_samples)
    n_groups = int(group_of_row.max(initial=-1)) + 1
    _check_two_groups(n_groups, are_rows=groups is None)
    if difference.min() == difference.max():
        value = float(difference[0])
        return Interval(value, value, value, 0.0, n_samples, confidence)
    estimate = float(difference.mean())
    # Centred, so that the replicates lose no digits however far the mean lies from 0.
    centred = difference - estimate
    # S_g - n_g * mean
    centred_sums = _totals(group_of_row, centred)
    rng = np.random.default_rng(random_state)
    if groups is None:
        replicates = _row_replicates(centred, n_resamples, rng)
    else:
        group_sizes = _totals(group_of_row, np.ones(n_samples))
        replicates = _group_replicates(centred_sums, group_sizes, n_resamples, rng)
    tail = (1 - confidence) / 2
    low, high = estimate + np.quantile(replicates, [tail, 1 - tail])
    if n_groups < FEWEST_GROUPS_FOR_PERCENTILES:
        error = np.sqrt(n_groups / (n_groups - 1) * (centred_sums**2).sum()) / n_samples
        half_width = student_quantile(confidence, n_groups - 1) * error
        low = min(low, estimate - half_width)
        high = max(high, estimate + half_width)
    bootstrap_error = float(replicates.std(ddof=1))
    return Interval(estimate, float(low), float(high), bootstrap_error, n_samples, confidence)


def _group_of_row(groups: ArrayLike | None, n_samples: int) -> IntArray:
    """Return the number (n_samples,) of each row's group; None makes every row a group."""
    if groups is None:
        return np.arange(n_samples)
    labels = np.asarray(groups)
    if labels.shape != (n_samples,):
        raise invalid(
            "groups", f"must have shape (n_samples,) = ({n_samples},); got {labels.shape}."
        )
    return np.unique(labels, return_inverse=True)[1]


def _check_two_groups(n_groups: int, are_rows: bool) -> None:
    """Raise an error for a single row or group, of which all resamples are equal."""
    if n_groups >= 2:
        return
    rule = f"at least two entries to resample; got {n_groups}."
    if are_rows:
        raise invalid("a", f"must have {rule}")
    raise invalid("groups", f"must name {rule}")


def joint_intervals(
    differences: ArrayLike,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
    side: str = "two-sided",
    n_draws: int = 20_000,
) -> JointIntervals:
    """Return intervals for m mean differences that hold jointly.

    The limits are ``mean_j ± q * se_j`` with q the ``confidence`` quantile of ``max_j |T_j|``, where T is
    drawn from a multivariate t distribution with n - 1 degrees of freedom and the sample correlation of
    the columns. This is exact for normal differences and asymptotic for others. A constant column has an
    interval without width.

    Parameters
    ----------
    differences : array of shape (n_samples, m)
        One column per candidate: its values minus those of the baseline.
    confidence : float, default=0.95
        Probability that all m intervals hold.
    random_state : int, Generator or None, default=0
        Source of the draws of T.
    side : {"two-sided", "lower", "upper"}, default="two-sided"
        With "upper" or "lower" only this limit is finite, and q is a quantile of ``max_j T_j``. For costs,
        a candidate is better than the baseline if ``high < 0`` with "upper".
    n_draws : int, default=20_000
        Number of draws of T.

    Returns
    -------
    intervals : JointIntervals

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(400, 2))
    >>> joint_intervals(noise + [0.0, -0.5], side="upper").decided
    array([False,  True])
    """
    check_option("side", side, ("two-sided", "lower", "upper"))
    check_draws("n_draws", n_draws, confidence)
    array = _differences(differences, "rows")
    n_samples, m = array.shape
    lowest = array.min(axis=0)
    varies = array.max(axis=0) > lowest
    # The computed mean of a constant column may differ from the constant by rounding.
    mean = np.where(varies, array.mean(axis=0, dtype=np.float64), lowest)
    covariance = np.atleast_2d(np.cov(array, rowvar=False, dtype=np.float64))
    error = np.where(varies, np.sqrt(np.diag(covariance) / n_samples), 0.0)
    # The variance of tiny differences may underflow to 0.
    varies &= error > 0
    q = 0.0
    if varies.any():
        deviation = error[varies] * np.sqrt(n_samples)
        correlation = covariance[np.ix_(varies, varies)] / np.outer(deviation, deviation)
        rng = np.random.default_rng(random_state)
        largest = _largest_t(correlation, n_samples - 1, side, n_draws, rng)
        q = float(np.quantile(largest, confidence))
    low = mean - q * error
    high = mean + q * error
    if side == "upper":
        low = np.full(m, -np.inf)
    elif side == "lower":
        high = np.full(m, np.inf)
    return JointIntervals(mean, low, high, error, q, n_samples, confidence, side)


def _largest_t(
    correlation: FloatArray, freedom: int, side: str, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Return draws (n_draws,) of ``max_j |T_j|``, or of ``max_j T_j`` for one side, T multivariate t."""
    # Eigenvalues rather than Cholesky: duplicated candidates make the matrix singular.
    eigenvalues, eigenvectors = np.linalg.eigh(correlation)
    root = (eigenvectors * np.sqrt(np.clip(eigenvalues, 0, None))).T
    draws = rng.standard_normal((n_draws, len(root))) @ root
    if side == "two-sided":
        draws = np.abs(draws)
    largest: FloatArray = draws.max(axis=1)
    largest /= np.sqrt(rng.chisquare(freedom, size=n_draws) / freedom)
    return largest


def resampled_intervals(
    differences: ArrayLike,
    test_over_train: float,
    confidence: float = 0.95,
    floor: ArrayLike | None = None,
) -> JointIntervals:
    """Return joint intervals for m mean differences from J random splits into training and test rows.

    Splits share rows, so the plain standard error is far too small. The corrected variance of a mean over
    J splits (Nadeau and Bengio 2003) is ``se^2 = (1 / J + q / (1 - q)) * s^2`` with s^2 the variance over
    splits and q the share of the rows that are test rows. The limits are ``mean ± t * se`` with t Student's
    two-sided quantile at J - 1 degrees of freedom and level ``(1 - confidence) / m``, m being the number of
    columns that vary (Bonferroni).

    Parameters
    ----------
    differences : array of shape (n_splits, m)
        One column per candidate: its mean cost on the test rows of a split, minus that of the baseline.
    test_over_train : float
        ``q / (1 - q)``, the number of test rows over that of training rows.
    confidence : float, default=0.95
        Probability that all m intervals hold.
    floor : array of shape (m,), default=None
        Least standard errors, such as those of the mean differences over the rows: splits that agree by
        chance make s^2 too small. None sets no least ones.

    Returns
    -------
    intervals : JointIntervals

    Examples
    --------
    >>> resampled_intervals([[-0.02], [-0.03], [-0.025], [-0.03]], 0.3 / 0.7).decided
    array([ True])
    """
    array = _differences(differences, "splits")
    n_splits, m = array.shape
    if not (math.isfinite(test_over_train) and test_over_train >= 0):
        raise invalid("test_over_train", f"must be non-negative and finite; got {test_over_train}.")
    check_share("confidence", confidence)
    varies = array.max(axis=0) > array.min(axis=0)
    mean = np.where(varies, array.mean(axis=0), array[0])
    s = np.where(varies, array.std(axis=0, ddof=1), 0.0)
    error = s * math.sqrt(1 / n_splits + test_over_train)
    if floor is not None:
        least_errors = number_vector("floor", floor, m)
        if (least_errors < 0).any():
            raise invalid("floor", f"must be non-negative; got {least_errors.min():g}.")
        error = np.maximum(error, least_errors)
    n_uncertain = int((error > 0).sum())
    t = 0.0
    if n_uncertain:
        t = student_quantile(1 - (1 - confidence) / n_uncertain, n_splits - 1)
    return JointIntervals(
        estimate=mean,
        low=mean - t * error,
        high=mean + t * error,
        standard_error=error,
        quantile=t,
        n=n_splits,
        confidence=confidence,
        side="two-sided",
    )


def split_intervals(
    splits: Sequence[FloatArray],
    groups: Sequence[ArrayLike] | None = None,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
    test_over_train: float = 0.0,
) -> JointIntervals:
    """Return joint intervals for m mean differences, on one split or on several random splits of the rows.

    The kind of interval depends on what there is:

    - one split, one difference: ``paired_interval``;
    - one split, several differences: ``joint_intervals``;
    - several splits: ``resampled_intervals`` of the means of the splits, with the standard errors over all
      rows as a floor.

    Rows of one group count as one observation, even across splits. If all rows are in a single group,
    which has no spread, groups are ignored.

    Parameters
    ----------
    splits : sequence of arrays of shape (n_samples, m)
        For each split the differences on its test rows. If some values are unknown, pass differences of
        ``linearised_rows``.
    groups : sequence of arrays of shape (n_samples,), default=None
        For each split the group labels of its rows. None if every row is an observation of its own.
    confidence : float, default=0.95
        Probability that all m intervals hold.
    random_state : int, Generator or None, default=0
        Source of draws.
    test_over_train : float, default=0.0
        Number of test rows divided by the number of training rows; only used with several splits.

    Returns
    -------
    intervals : JointIntervals

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(-0.5, 1, size=(300, 2))
    >>> split_intervals([rows]).decided
    array([ True,  True])
    >>> split_intervals([np.tile(rows, (2, 1))], [np.tile(np.arange(300), 2)]).n
    300
    """
    rows = np.concatenate(splits)
    labels = _joined_labels(groups)
    if len(splits) == 1 and rows.shape[1] == 1:
        zeros = np.zeros(len(rows))
        interval = paired_interval(
            rows[:, 0], zeros, confidence, random_state=random_state, groups=labels
        )
        return _single_interval(interval)
    if labels is not None:
        rows = grouped_rows(rows, labels)
    if len(splits) == 1:
        return joint_intervals(rows, confidence, random_state)
    split_means = np.array([split.mean(axis=0) for split in splits])
    floor = rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    return resampled_intervals(split_means, test_over_train, confidence, floor)


def _joined_labels(groups: Sequence[ArrayLike] | None) -> NDArray[Any] | None:
    """Return the labels of the rows of all splits, or None if there are no groups or only one."""
    if groups is None:
        return None
    labels = np.concatenate([np.asarray(group) for group in groups])
    if len(np.unique(labels)) < 2:
        return None
    return labels


def _single_interval(interval: Interval) -> JointIntervals:
    """Return the interval of one mean difference as ``JointIntervals`` with m = 1."""
    return JointIntervals(
        estimate=np.array([interval.estimate]),
        low=np.array([interval.low]),
        high=np.array([interval.high]),
        standard_error=np.array([interval.standard_error]),
        quantile=math.nan,
        n=interval.n,
        confidence=interval.confidence,
        side="two-sided",
    )


def linear_interval(estimate: float, linear_part: FloatArray, confidence: float = 0.95) -> Interval:
    """Return Student's interval of an estimate, from the linear part (n_samples,) of its estimator.

    The linear part l (the influence function) is such that the error of the estimate is about ``mean(l)``,
    so that ``se^2 = mean(l^2) / (n - 1)``. A few rows with a large part make this variance itself
    uncertain: the degrees of freedom are ``2 n / (kurtosis - 1)``, those of a normal sample with an
    equally uncertain variance.
    """
    n_samples = linear_part.size
    if n_samples < 2:
        return Interval(estimate, -np.inf, np.inf, np.inf, n_samples, confidence)
    squares = linear_part**2
    variance = float(squares.mean())
    error = math.sqrt(variance / (n_samples - 1))
    if error == 0:
        return Interval(estimate, estimate, estimate, 0.0, n_samples, confidence)
    kurtosis = float((squares**2).mean()) / variance**2
    # At most the n - 1 of a sample whose variance is as certain as that of normal values.
    max_freedom = n_samples - 1
    freedom = 2 * n_samples / max(kurtosis - 1, 2 * n_samples / max_freedom)
    half_width = student_quantile(confidence, max(freedom, 1.0)) * error
    low = estimate - half_width
    high = estimate + half_width
    return Interval(estimate, low, high, error, n_samples, confidence)


def linearised_rows(values: ArrayLike, sample_weight: ArrayLike | None = None) -> FloatArray:
    """Return rows whose plain mean is each column's weighted mean over the rows in which it is known.

    With ``u_ij = w_i`` where v_ij is known, else 0, and ``mean_j = sum_i u_ij v_ij / sum_i u_ij``::

        row_ij = n * u_ij / sum_i u_ij * (v_ij - mean_j) + mean_j

    which is v_ij itself if all values are known and have equal weights. The spread of the difference of two
    columns of rows gives the standard error of the difference of their means, even if they are known in
    different rows. (Using only rows in which both are known would favour those where two routers agree.)
    A column without a known value of positive weight is all NaN.

    Parameters
    ----------
    values : array of shape (n_samples, m)
        NaN where a value is not known.
    sample_weight : array of shape (n_samples,), default=None
        Non-negative weights w. None weighs rows equally.

    Returns
    -------
    rows : array of shape (n_samples, m)

    Examples
    --------
    >>> linearised_rows([[1.0, 0.0], [3.0, np.nan], [np.nan, 2.0]]).mean(axis=0)
    array([2., 1.])
    """
    array = np.asarray(values, dtype=np.float64)
    is_known = ~np.isnan(array)
    u = row_weights(sample_weight, len(array))[:, None] * is_known
    v = np.where(is_known, array, 0)
    total = u.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (u * v).sum(axis=0) / total
        return len(array) * u / total * (v - mean) + mean


def grouped_rows(rows: ArrayLike, groups: ArrayLike) -> FloatArray:
    """Return one row per group, whose plain mean is that of the rows.

    For G groups with the sums S_gj and the sizes n_g, row g is
    ``mean_j + G / n * (S_gj - n_g * mean_j)``. The spread of these rows gives the cluster-robust standard
    error. A constant column stays that constant.

    Parameters
    ----------
    rows : (n_samples, m) array
    groups : (n_samples,) array of groups

    Returns
    -------
    (n_groups, m) array

    Examples
    --------
    >>> float(grouped_rows([[1.0], [3.0], [5.0]], [0, 0, 1]).mean())
    3.0
    """
    array = np.asarray(rows, dtype=np.float64)
    labels = np.asarray(groups)
    order = np.argsort(labels, kind="stable")
    # The first row of each group, in the order of the groups.
    starts = np.unique(labels[order], return_index=True)[1]
    n_groups = len(starts)
    mean = array.mean(axis=0)
    # S_gj - n_g * mean_j
    centred_sums = np.add.reduceat(array[order] - mean, starts, axis=0)
    is_constant = array.min(axis=0) == array.max(axis=0)
    group_rows = mean + n_groups / len(array) * centred_sums
    result: FloatArray = np.where(is_constant, array[:1], group_rows)
    return result


def student_quantile(coverage: float, freedom: float) -> float:
    """Return the t with ``P(|T| <= t) = coverage`` for ``freedom`` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + coverage) / 2))


def _differences(differences: ArrayLike, row_name: str) -> FloatArray:
    """Return finite differences with at least two rows; ``row_name`` names these in messages."""
    array = float_matrix("differences", differences)
    if len(array) < 2:
        raise invalid("differences", f"must have at least two {row_name}; got {len(array)}.")
    remedy = f" Remove these {row_name}, or the column."
    check_entries("differences", array, ~np.isfinite(array), "be finite", remedy)
    return array


def _totals(group: IntArray, values: FloatArray) -> FloatArray:
    """Return the sum of the values of each group, (n_groups,)."""
    return np.bincount(group, values).astype(np.float64, copy=False)


def _row_replicates(centred: FloatArray, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Return resampled means (n_resamples,) of the differences, by the cheapest way of drawing rows."""
    n_samples = len(centred)
    values, counts = np.unique(centred, return_counts=True)
    # With few distinct values, their numbers are drawn in place of rows. One such draw costs about as much
    # as reading 16 rows.
    if len(values) * 16 <= min(n_samples, MAX_GROUPS):
        drawn = rng.multinomial(n_samples, counts / n_samples, size=n_resamples)
        return drawn @ values / n_samples
    return _group_replicates(centred, np.ones(n_samples), n_resamples, rng)


def _group_replicates(
    sums: FloatArray, sizes: FloatArray, n_resamples: int, rng: np.random.Generator
) -> FloatArray:
    """Return resampled means (n_resamples,) of groups with these sums and sizes (n_groups,)."""
    if len(sums) > MAX_GROUPS:
        pool = rng.permutation(len(sums)) % MAX_GROUPS
        sums = _totals(pool, sums)
        sizes = _totals(pool, sizes)
    n_groups = len(sums)
    means = np.empty(n_resamples)
    block = max(1, BLOCK // n_groups)
    for start in range(0, n_resamples, block):
        n_draws = min(block, n_resamples - start)
        drawn = rng.integers(0, n_groups, size=(n_draws, n_groups))
        means[start : start + block] = sums[drawn].sum(axis=1) / _drawn_sizes(sizes, drawn)
    return means


def _drawn_sizes(sizes: FloatArray, drawn: IntArray) -> FloatArray:
    """Return the total size (n_draws,) of the groups of each draw (n_draws, n_groups)."""
    if (sizes == sizes[0]).all():
        # Equal sizes need not be gathered.
        return np.full(len(drawn), len(sizes) * sizes[0])
    total: FloatArray = sizes[drawn].sum(axis=1)
    return total

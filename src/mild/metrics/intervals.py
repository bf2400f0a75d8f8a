"""Intervals of mean differences. ``difference_intervals`` is the way to the interval of every verdict.

``linearised_rows`` and ``grouped_rows`` rewrite means over known rows, and over groups of rows, as plain
means of rows, so that the intervals need no special case for missing values or groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.core.arrays import BoolArray, FloatArray, IntArray, check_entries, float_matrix, invalid
from mild.errors import check_option
from mild.metrics.interval import Interval
from mild.metrics.rows import check_draws, number_vector, row_weights

# With fewer groups the percentile interval is too short; Student's interval widens it.
FEW_GROUPS = 30
# Beyond this many groups the bootstrap draws among random pools of groups.
MAX_GROUPS = 20_000
# Entries of one block of draws: about 8 MB.
BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class SimultaneousIntervals:
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
        """Estimate, low and high of one difference."""
        return float(self.estimate[index]), float(self.low[index]), float(self.high[index])


def paired_interval(
    a: ArrayLike,
    b: ArrayLike,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    random_state: int | np.random.Generator | None = 0,
    groups: ArrayLike | None = None,
) -> Interval:
    """Bootstrap percentile interval of ``mean(a - b)`` over pairs, or over groups of pairs.

    Rows (or whole groups) are drawn with replacement. A replicate is ``sum_g w_g S_g / sum_g w_g n_g``
    with multinomial weights w, S_g the sum and n_g the number of differences in group g; the interval runs
    between quantiles of the replicates. Below 30 groups it also covers Student's, ``mean ± t * se`` with
    ``se^2 = G / (G - 1) * sum_g (S_g - n_g * mean)^2 / n^2`` and G - 1 degrees of freedom. More than
    20,000 groups are first assigned at random to 20,000 pools, which estimates the spread without bias.

    Parameters
    ----------
    a, b : (n_samples,) arrays, such as ``chosen_costs`` of two routers on the same rows
    confidence : number in (0, 1)
    n_resamples : at least ``2 / (1 - confidence)``
    random_state : int, Generator or None
    groups : (n_samples,) labels of rows that are drawn together (a user, a document), optional

    Examples
    --------
    >>> interval = paired_interval([0.0, 0.5, 0.0, 0.2], [1.0, 1.0, 1.0, 0.9])
    >>> round(interval.estimate, 3), interval.decided
    (-0.8, True)
    """
    first = number_vector("a", a)
    difference = first - number_vector("b", b, len(first))
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
    sums = _totals(group_of_row, centred)
    rng = np.random.default_rng(random_state)
    if groups is None:
        replicates = _row_replicates(centred, n_resamples, rng)
    else:
        sizes = _totals(group_of_row, np.ones(n_samples))
        replicates = _group_replicates(sums, sizes, n_resamples, rng)
    tail = (1 - confidence) / 2
    low, high = estimate + np.quantile(replicates, [tail, 1 - tail])
    if n_groups < FEW_GROUPS:
        error = np.sqrt(n_groups / (n_groups - 1) * (sums**2).sum()) / n_samples
        reach = student_quantile(confidence, n_groups - 1) * error
        low = min(low, estimate - reach)
        high = max(high, estimate + reach)
    spread = float(replicates.std(ddof=1))
    return Interval(estimate, float(low), float(high), spread, n_samples, confidence)


def _group_of_row(groups: ArrayLike | None, n_samples: int) -> IntArray:
    """Number (n_samples,) of each row's group; without groups every row is one of its own."""
    if groups is None:
        return np.arange(n_samples)
    labels = np.asarray(groups)
    if labels.shape != (n_samples,):
        raise invalid(
            "groups", f"must have shape (n_samples,) = ({n_samples},); got {labels.shape}."
        )
    return np.unique(labels, return_inverse=True)[1]


def _check_two_groups(n_groups: int, are_rows: bool) -> None:
    """Refuse fewer than two rows, or groups, of which a bootstrap has no spread."""
    if n_groups >= 2:
        return
    rule = f"at least two entries to resample; got {n_groups}."
    if are_rows:
        raise invalid("a", f"must have {rule}")
    raise invalid("groups", f"must name {rule}")


def simultaneous_intervals(
    differences: ArrayLike,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
    side: str = "two-sided",
    n_draws: int = 20_000,
) -> SimultaneousIntervals:
    """Intervals for m mean differences that hold jointly.

    ``mean_j ± q * se_j`` with q the ``confidence`` quantile of ``max_j |T_j|``, where T is drawn
    from a multivariate t distribution with n - 1 degrees of freedom and the sample correlation of
    the columns. Exact for normal differences, asymptotic for others. A constant column has no width.

    Parameters
    ----------
    differences : (n_samples, m) array, one column per candidate: candidate minus baseline
    confidence : the probability that all m intervals hold
    random_state : int, Generator or None
    side : "two-sided", or "upper" or "lower": q then belongs to ``max_j T_j`` and the other limit is
        infinite. For costs, a candidate is better if ``high < 0`` with "upper"
    n_draws : number of draws of T

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(400, 2))
    >>> simultaneous_intervals(noise + [0.0, -0.5], side="upper").decided
    array([False,  True])
    """
    check_option("side", side, ("two-sided", "lower", "upper"))
    check_draws("n_draws", n_draws, confidence)
    array = _differences(differences, "rows")
    n_samples, m = array.shape
    lowest = array.min(axis=0)
    varies = array.max(axis=0) > lowest
    mean = np.where(varies, array.mean(axis=0, dtype=np.float64), lowest)
    covariance = np.atleast_2d(np.cov(array, rowvar=False, dtype=np.float64))
    error = np.where(varies, np.sqrt(np.diag(covariance) / n_samples), 0.0)
    varies &= error > 0
    quantile = 0.0
    if varies.any():
        scale = error[varies] * np.sqrt(n_samples)
        correlation = covariance[np.ix_(varies, varies)] / np.outer(scale, scale)
        rng = np.random.default_rng(random_state)
        largest = _largest_t(correlation, n_samples - 1, side, n_draws, rng)
        quantile = float(np.quantile(largest, confidence))
    low = mean - quantile * error
    high = mean + quantile * error
    if side == "upper":
        low = np.full(m, -np.inf)
    elif side == "lower":
        high = np.full(m, np.inf)
    return SimultaneousIntervals(mean, low, high, error, quantile, n_samples, confidence, side)


def _largest_t(
    correlation: FloatArray, freedom: int, side: str, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draws (n_draws,) of ``max_j |T_j|``, or of ``max_j T_j`` for one side, T multivariate t."""
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
) -> SimultaneousIntervals:
    """Joint intervals for m mean differences from J random splits of the same rows.

    Splits share rows, so the plain standard error is far too small. The corrected variance of a mean over
    J splits (Nadeau and Bengio 2003) is ``(1 / J + q / (1 - q)) * s^2`` with s^2 the variance over splits
    and q the share of the splits in which a row is tested. The limits are ``mean ± t * se`` with t
    Student's two-sided quantile at J - 1 degrees of freedom and level ``(1 - confidence) / m``, m the
    columns that vary (Bonferroni).

    Parameters
    ----------
    differences : (n_splits, m): mean cost of a candidate minus that of the baseline, per split
    test_over_train : ``q / (1 - q)``: rows to test on over rows to train on, compared or not
    confidence : number in (0, 1)
    floor : (m,) least standard errors, those of the mean differences over the rows: splits that agree by
        chance make s^2 too small

    Examples
    --------
    >>> resampled_intervals([[-0.02], [-0.03], [-0.025], [-0.03]], 0.3 / 0.7).decided
    array([ True])
    """
    array = _differences(differences, "splits")
    n_splits, m = array.shape
    if not (math.isfinite(test_over_train) and test_over_train >= 0):
        raise invalid("test_over_train", f"must be non-negative and finite; got {test_over_train}.")
    check_draws("confidence", 2**62, confidence)
    varies = array.max(axis=0) > array.min(axis=0)
    mean = np.where(varies, array.mean(axis=0), array[0])
    error = np.where(varies, array.std(axis=0, ddof=1), 0.0)
    error *= math.sqrt(1 / n_splits + test_over_train)
    if floor is not None:
        lowest_errors = number_vector("floor", floor, m)
        if (lowest_errors < 0).any():
            raise invalid("floor", f"must be non-negative; got {lowest_errors.min():g}.")
        error = np.maximum(error, lowest_errors)
    n_uncertain = int((error > 0).sum())
    quantile = 0.0
    if n_uncertain:
        quantile = student_quantile(1 - (1 - confidence) / n_uncertain, n_splits - 1)
    reach = quantile * error
    return SimultaneousIntervals(
        mean, mean - reach, mean + reach, error, quantile, n_splits, confidence, "two-sided"
    )


def difference_intervals(
    splits: Sequence[FloatArray],
    groups: Sequence[ArrayLike] | None = None,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
    test_over_train: float = 0.0,
) -> SimultaneousIntervals:
    """Joint intervals for m mean differences, on one split or on several random splits of the same rows.

    Over several splits these are ``resampled_intervals`` of their means, with the standard errors over all
    rows as floor. Over one split they are ``simultaneous_intervals`` of its rows, and for a single
    difference ``paired_interval``. Rows of one group count once, also in several splits; a single group
    has no spread, and then the rows count.

    Parameters
    ----------
    splits : for each split (n_samples, m) differences of ``linearised_rows``
    groups : for each split (n_samples,) labels; None if every row counts
    confidence : the probability that all m intervals hold
    random_state : int, Generator or None
    test_over_train : as in ``resampled_intervals``

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(-0.5, 1, size=(300, 2))
    >>> difference_intervals([rows]).decided
    array([ True,  True])
    >>> difference_intervals([np.tile(rows, (2, 1))], [np.tile(np.arange(300), 2)]).n
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
        return simultaneous_intervals(rows, confidence, random_state)
    split_means = np.array([split.mean(axis=0) for split in splits])
    floor = rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    return resampled_intervals(split_means, test_over_train, confidence, floor)


def _joined_labels(groups: Sequence[ArrayLike] | None) -> NDArray[Any] | None:
    """Labels of the rows of all splits; None if every row counts, as where there is only one group."""
    if groups is None:
        return None
    labels = np.concatenate([np.asarray(group) for group in groups])
    if len(np.unique(labels)) < 2:
        return None
    return labels


def _single_interval(interval: Interval) -> SimultaneousIntervals:
    """The interval of one mean difference, as one of several."""
    return SimultaneousIntervals(
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
    """Student's interval of an estimate, from the linear part (n_samples,) of its estimator.

    A few rows with a large part make the variance itself uncertain: the degrees of freedom are
    ``2 n / (kurtosis - 1)``, those of a normal sample with an equally uncertain variance.
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
    freedom = max(2 * n_samples / max(kurtosis - 1, 2 * n_samples / (n_samples - 1)), 1.0)
    reach = student_quantile(confidence, freedom) * error
    return Interval(estimate, estimate - reach, estimate + reach, error, n_samples, confidence)


def linearised_rows(values: ArrayLike, sample_weight: ArrayLike | None = None) -> FloatArray:
    """Rows whose plain mean is each column's weighted mean over its known rows.

    ``n * w_i * known_ij / sum_i w_i known_ij * (v_ij - mean_j) + mean_j``: the values themselves when
    all are known and have equal weights. The spread of a difference of two columns gives its standard
    error, although the columns miss different rows. (Rows that both columns know would favour rows on
    which two routers agree.) A column without a known row of positive weight is all NaN.

    Parameters
    ----------
    values : (n_samples, m) array; NaN where a value is not known
    sample_weight : (n_samples,) optional

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


def grouped_rows(rows: ArrayLike, groups: ArrayLike) -> FloatArray:
    """One row per group, (n_groups, m), with the same plain mean as the rows (n_samples, m).

    ``mean_j + G / n * (S_gj - n_g * mean_j)`` for G groups, S the sums and n_g the sizes. The spread of
    these rows gives the cluster-robust standard error. A constant column stays that constant.

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
    starts = np.unique(labels[order], return_index=True)[1]
    mean = array.mean(axis=0)
    sums = np.add.reduceat(array[order] - mean, starts, axis=0)
    same = array.min(axis=0) == array.max(axis=0)
    result: FloatArray = np.where(same, array[:1], mean + len(starts) / len(array) * sums)
    return result


def student_quantile(coverage: float, freedom: float) -> float:
    """The t with ``P(|T| <= t) = coverage`` for ``freedom`` degrees of freedom."""
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
    """Sum of the values of each group."""
    return np.bincount(group, values).astype(np.float64, copy=False)


def _row_replicates(centred: FloatArray, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Resampled means of the centred differences, by the cheapest way of drawing rows."""
    n_samples = len(centred)
    values, counts = np.unique(centred, return_counts=True)
    # A binomial draw costs about as much as 16 gathers.
    if len(values) * 16 <= min(n_samples, MAX_GROUPS):
        drawn = rng.multinomial(n_samples, counts / n_samples, size=n_resamples)
        return drawn @ values / n_samples
    return _group_replicates(centred, np.ones(n_samples), n_resamples, rng)


def _group_replicates(
    sums: FloatArray, sizes: FloatArray, n_resamples: int, rng: np.random.Generator
) -> FloatArray:
    """Resampled means of groups with these sums and sizes (n_groups,)."""
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
    """Total size (n_draws,) of the groups of each draw (n_draws, n_groups)."""
    if (sizes == sizes[0]).all():
        # Equal sizes need not be gathered.
        return np.full(len(drawn), len(sizes) * sizes[0])
    total: FloatArray = sizes[drawn].sum(axis=1)
    return total

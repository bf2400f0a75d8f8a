"""Intervals of mean differences. ``difference_intervals`` is the way to the interval of every verdict.

``linearised_rows`` and ``grouped_rows`` rewrite means over known rows, and over groups of rows, as plain
means of rows, so that the intervals need no special case for missing values or groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, IntArray, check_entries, float_matrix, invalid
from mild.errors import check_option
from mild.metrics.rows import check_draws, number_vector, row_weights

# With fewer groups the percentile interval is too short; Student's interval widens it.
FEW_GROUPS = 30
# Beyond this many groups the bootstrap draws among random pools of groups.
MAX_GROUPS = 20_000
# Entries of one block of draws: about 8 MB.
BLOCK = 1_000_000


@dataclass(frozen=True)
class Interval:
    """A mean difference of n pairs, its interval, and the standard deviation of resampled means."""

    estimate: float
    low: float
    high: float
    standard_error: float
    n: int
    confidence: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


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
    group = None
    if groups is not None:
        labels = np.asarray(groups)
        if labels.shape != (n_samples,):
            raise invalid(
                "groups", f"must have shape (n_samples,) = ({n_samples},); got {labels.shape}."
            )
        group = np.unique(labels, return_inverse=True)[1]
    n_groups = n_samples if group is None else int(group.max(initial=-1)) + 1
    if n_groups < 2:
        parameter, verb = ("a", "have") if group is None else ("groups", "name")
        raise invalid(parameter, f"must {verb} at least two entries to resample; got {n_groups}.")
    if difference.min() == difference.max():
        value = float(difference[0])
        return Interval(value, value, value, 0.0, n_samples, confidence)
    estimate = float(difference.mean())
    # Centred, so that the replicates lose no digits however far the mean lies from 0.
    centred = difference - estimate
    replicates = _replicates(centred, group, n_resamples, np.random.default_rng(random_state))
    tail = (1 - confidence) / 2
    low, high = estimate + np.quantile(replicates, [tail, 1 - tail])
    if n_groups < FEW_GROUPS:
        sums = centred if group is None else _totals(group, centred)
        error = np.sqrt(n_groups / (n_groups - 1) * (sums**2).sum()) / n_samples
        reach = student_quantile(confidence, n_groups - 1) * error
        low, high = min(low, estimate - reach), max(high, estimate + reach)
    spread = float(replicates.std(ddof=1))
    return Interval(estimate, float(low), float(high), spread, n_samples, confidence)


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
    low_value, high_value = array.min(axis=0), array.max(axis=0)
    varies = high_value > low_value
    mean = np.where(varies, array.mean(axis=0, dtype=np.float64), low_value)
    covariance = np.atleast_2d(np.cov(array, rowvar=False, dtype=np.float64))
    error = np.where(varies, np.sqrt(np.diag(covariance) / n_samples), 0.0)
    varies &= error > 0
    quantile = 0.0
    if varies.any():
        scale = error[varies] * np.sqrt(n_samples)
        correlation = covariance[np.ix_(varies, varies)] / np.outer(scale, scale)
        # Eigenvalues rather than Cholesky: duplicated candidates make the matrix singular.
        value, vector = np.linalg.eigh(correlation)
        root = (vector * np.sqrt(np.clip(value, 0, None))).T
        rng = np.random.default_rng(random_state)
        draws = rng.standard_normal((n_draws, len(root))) @ root
        largest = (np.abs(draws) if side == "two-sided" else draws).max(axis=1)
        largest /= np.sqrt(rng.chisquare(n_samples - 1, size=n_draws) / (n_samples - 1))
        quantile = float(np.quantile(largest, confidence))
    reach = quantile * error
    infinite = np.full(m, np.inf)
    low = -infinite if side == "upper" else mean - reach
    high = infinite if side == "lower" else mean + reach
    return SimultaneousIntervals(mean, low, high, error, quantile, n_samples, confidence, side)


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
        least = number_vector("floor", floor, m)
        if (least < 0).any():
            raise invalid("floor", f"must be non-negative; got {least.min():g}.")
        error = np.maximum(error, least)
    uncertain = int((error > 0).sum())
    quantile = 0.0
    if uncertain:
        quantile = student_quantile(1 - (1 - confidence) / uncertain, n_splits - 1)
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
    rows, labels = np.concatenate(splits), None
    if groups is not None:
        labels = np.concatenate([np.asarray(group) for group in groups])
        labels = labels if len(np.unique(labels)) > 1 else None
    if len(splits) == 1 and rows.shape[1] == 1:
        one = paired_interval(
            rows[:, 0], np.zeros(len(rows)), confidence, random_state=random_state, groups=labels
        )
        estimate, low, high, error = np.array(
            [[one.estimate], [one.low], [one.high], [one.standard_error]]
        )
        return SimultaneousIntervals(
            estimate, low, high, error, math.nan, one.n, confidence, "two-sided"
        )
    rows = rows if labels is None else grouped_rows(rows, labels)
    if len(splits) == 1:
        return simultaneous_intervals(rows, confidence, random_state)
    means = np.array([part.mean(axis=0) for part in splits])
    floor = rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    return resampled_intervals(means, test_over_train, confidence, floor)


def linear_interval(estimate: float, parts: FloatArray, confidence: float = 0.95) -> Interval:
    """Student's interval of an estimate, from the linear part (n_samples,) of its estimator.

    A few large parts make the variance itself uncertain: the degrees of freedom are
    ``2 n / (kurtosis - 1)``, those of a normal sample with an equally uncertain variance.
    """
    count = parts.size
    if count < 2:
        return Interval(estimate, -np.inf, np.inf, np.inf, count, confidence)
    squares = parts**2
    variance = float(squares.mean())
    error = math.sqrt(variance / (count - 1))
    if error == 0:
        return Interval(estimate, estimate, estimate, 0.0, count, confidence)
    kurtosis = float((squares**2).mean()) / variance**2
    freedom = max(2 * count / max(kurtosis - 1, 2 * count / (count - 1)), 1.0)
    reach = student_quantile(confidence, freedom) * error
    return Interval(estimate, estimate - reach, estimate + reach, error, count, confidence)


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


def _differences(differences: ArrayLike, what: str) -> FloatArray:
    """Return finite differences with at least two rows; ``what`` names the rows in messages."""
    array = float_matrix("differences", differences)
    if len(array) < 2:
        raise invalid("differences", f"must have at least two {what}; got {len(array)}.")
    remedy = f" Remove these {what}, or the column."
    check_entries("differences", array, ~np.isfinite(array), "be finite", remedy)
    return array


def _totals(group: IntArray, values: FloatArray) -> FloatArray:
    """Sum of the values of each group."""
    return np.bincount(group, values).astype(np.float64, copy=False)


def _replicates(
    centred: FloatArray, group: IntArray | None, n_resamples: int, rng: np.random.Generator
) -> FloatArray:
    """Resampled means of the centred differences, by the cheapest way of drawing them."""
    if group is None:
        values, counts = np.unique(centred, return_counts=True)
        # A binomial draw costs about as much as 16 gathers.
        if len(values) * 16 <= min(len(centred), MAX_GROUPS):
            drawn = rng.multinomial(len(centred), counts / len(centred), size=n_resamples)
            return drawn @ values / len(centred)
    ones: FloatArray = np.ones(len(centred))
    sums, sizes = centred, ones
    if group is not None:
        sums, sizes = _totals(group, centred), _totals(group, ones)
    if len(sums) > MAX_GROUPS:
        pool = rng.permutation(len(sums)) % MAX_GROUPS
        sums, sizes = _totals(pool, sums), _totals(pool, sizes)
    equal = bool((sizes == sizes[0]).all())
    means = np.empty(n_resamples)
    block = max(1, BLOCK // len(sums))
    for start in range(0, n_resamples, block):
        rows = rng.integers(0, len(sums), size=(min(block, n_resamples - start), len(sums)))
        # Equal sizes spare the second gather.
        mass = len(sums) * sizes[0] if equal else sizes[rows].sum(axis=1)
        means[start : start + block] = sums[rows].sum(axis=1) / mass
    return means

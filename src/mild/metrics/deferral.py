"""Metrics of learning to defer: who was right, how often the classifier decided, and calibration.

In learning to defer, a classifier predicts a class for every row, and the system either keeps the row,
which means that it gives this class, or defers it to an expert. ``deferred_to`` (n_samples,) holds the
index of the expert that is asked, or -1 (``KEPT``) where the classifier decides.
"""

from __future__ import annotations

import dataclasses
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
    as_python,
    check_integer,
    check_shape,
    invalid,
)
from mild.core.rounding import tie_ranks
from mild.metrics.intervals import student_quantile
from mild.metrics.rows import check_draws, number_vector

#: In ``deferred_to``: the classifier decides.
KEPT = -1
# Number of coverages at which curves are averaged.
N_COVERAGES = 101


@dataclass(frozen=True)
class DeferralSummary:
    """The four numbers that papers on learning to defer report, over the same rows.

    ``system_accuracy = coverage * classifier_accuracy + (1 - coverage) * expert_accuracy``, where both
    parts exist.

    Attributes
    ----------
    system_accuracy : share of the rows in which whoever decided was right
    coverage : share of the rows that the classifier keeps
    classifier_accuracy : accuracy of the classifier on the rows it keeps; NaN if it keeps none
    expert_accuracy : accuracy of the experts on the rows they get; NaN if they get none
    n_samples : number of rows
    """

    system_accuracy: float
    coverage: float
    classifier_accuracy: float
    expert_accuracy: float
    n_samples: int

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON; NaN becomes None."""
        return dict(as_python(dataclasses.asdict(self), finite=True))


def expert_correctness(y: ArrayLike, experts: ArrayLike) -> BoolArray:
    """Return whether each expert's answer is the true class.

    Parameters
    ----------
    y : (n_samples,) array of true classes
    experts : (n_samples, n_experts) array of answers, or (n_samples,) array of one expert's answers. A
        missing answer (NaN, None or masked) counts as wrong

    Returns
    -------
    (n_samples, n_experts) boolean array

    Examples
    --------
    >>> expert_correctness([0, 1], [[0, 1], [1, np.nan]])
    array([[ True, False],
           [ True, False]])
    """
    classes = _class_vector(y)
    answers: Any = np.ma.asarray(experts)
    if answers.ndim == 1:
        answers = answers[:, None]
    if answers.ndim != 2 or len(answers) != len(classes):
        raise invalid(
            "experts",
            f"must have shape (n_samples, n_experts) with n_samples = {len(classes)}; "
            f"got {answers.shape}.",
        )
    equal = np.asarray(answers.data == classes[:, None], dtype=bool)
    # What is stored under a mask may happen to equal the class.
    return equal & ~np.ma.getmaskarray(answers)


def deferral_summary(
    y: ArrayLike, predicted: ArrayLike, deferred_to: ArrayLike, experts: ArrayLike
) -> DeferralSummary:
    """Return accuracy and coverage of a system that defers, and the accuracy of each side on its rows.

    Parameters
    ----------
    y : (n_samples,) array of true classes
    predicted : (n_samples,) array of the classifier's classes, also where it does not decide
    deferred_to : (n_samples,) array of the expert that is asked, -1 where the classifier decides
    experts : (n_samples, n_experts) array of answers, or (n_samples,) of one expert. An answer that is
        missing is not right

    Returns
    -------
    DeferralSummary

    Examples
    --------
    >>> deferral_summary([0, 1, 2, 2], [0, 1, 1, 0], [-1, -1, 0, -1], [0, 0, 2, 2])
    ... # doctest: +NORMALIZE_WHITESPACE
    DeferralSummary(system_accuracy=0.75, coverage=0.75, classifier_accuracy=0.6666666666666666,
                    expert_accuracy=1.0, n_samples=4)
    """
    classes = _class_vector(y)
    classifier_is_right = _predictions(predicted, len(classes)) == classes
    expert_is_right = expert_correctness(classes, experts)
    expert_indices = _check_deferred(deferred_to, expert_is_right.shape)
    kept = expert_indices == KEPT
    rows = np.arange(len(classes))
    # In rows that are kept, the index -1 reads the last expert, whose answer is not used.
    asked_is_right = expert_is_right[rows, expert_indices]
    system_is_right = np.where(kept, classifier_is_right, asked_is_right)
    return DeferralSummary(
        system_accuracy=float(system_is_right.mean()),
        coverage=float(kept.mean()),
        classifier_accuracy=_mean_or_nan(system_is_right[kept]),
        expert_accuracy=_mean_or_nan(system_is_right[~kept]),
        n_samples=len(classes),
    )


@dataclass(frozen=True, eq=False)
class AccuracyCoverageCurve:
    """Accuracy of the system at every coverage, from 0 (all rows deferred) to 1 (all kept).

    Attributes
    ----------
    coverage : (m,) rising shares of rows that the classifier keeps
    accuracy : (m,) system accuracy there
    low, high : (m,) limits of its interval at each coverage by itself, not of the whole curve at once
    confidence : of the interval
    """

    coverage: FloatArray
    accuracy: FloatArray
    low: FloatArray
    high: FloatArray
    confidence: float

    def at(self, coverage: float) -> float:
        """Return the accuracy at a coverage, linear between points."""
        return float(np.interp(coverage, self.coverage, self.accuracy))

    @property
    def area(self) -> float:
        """Mean accuracy over all coverages: the area under the curve."""
        # numpy 1.26 has no np.trapezoid.
        return float(np.diff(self.coverage) @ (self.accuracy[1:] + self.accuracy[:-1]) / 2)


def accuracy_coverage_curve(
    classifier_is_right: ArrayLike,
    expert_is_right: ArrayLike,
    deferral_margin: ArrayLike,
    confidence: float = 0.95,
    n_resamples: int = 400,
    random_state: int | np.random.Generator | None = 0,
) -> AccuracyCoverageCurve:
    """Return the accuracy of the system at every coverage, with bootstrap intervals.

    Coverage is the share of the rows that the classifier keeps. It falls as rows are deferred, those with
    the largest margin first. With j of n rows deferred::

        accuracy_j = (expert_is_right summed over the first j + classifier_is_right over the others) / n

    Rows of equal margin are deferred together, and the curve is linear between points. At each coverage,
    the limits are quantiles over the curves of bootstrap resamples.

    Parameters
    ----------
    classifier_is_right : (n_samples,) array of zeros and ones
    expert_is_right : (n_samples,) array of zeros and ones, of the expert that would be asked
    deferral_margin : (n_samples,) array, larger where deferring is more worthwhile
    confidence : number in (0, 1)
    n_resamples : at least ``2 / (1 - confidence)``
    random_state : int, Generator or None

    Returns
    -------
    AccuracyCoverageCurve, with one point for each coverage that a threshold on the margin can give

    Examples
    --------
    >>> curve = accuracy_coverage_curve([1, 0, 1, 1], [0, 1, 1, 0], [0.1, 0.9, 0.5, 0.2])
    >>> curve.coverage, curve.accuracy
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ]), array([0.5 , 0.75, 1.  , 1.  , 0.75]))
    """
    classifier = number_vector("classifier_is_right", classifier_is_right)
    expert = number_vector("expert_is_right", expert_is_right, len(classifier))
    margin = number_vector("deferral_margin", deferral_margin, len(classifier))
    if len(classifier) == 0:
        raise invalid("classifier_is_right", "must have at least one row; got 0.")
    check_draws("n_resamples", n_resamples, confidence)
    sorted_rows = _SortedRows.by_falling_margin(classifier, expert, margin)
    n_samples = len(margin)
    coverage, accuracy = sorted_rows.curve(np.ones(n_samples))
    rng = np.random.default_rng(random_state)
    replicates = np.empty((n_resamples, len(coverage)))
    for draw in range(n_resamples):
        drawn_rows = rng.integers(n_samples, size=n_samples)
        multiplicities = np.bincount(drawn_rows, minlength=n_samples).astype(np.float64)
        # The points of a replicate are at other coverages: it is interpolated at those of the curve.
        drawn_coverage, drawn_accuracy = sorted_rows.curve(multiplicities)
        replicates[draw] = np.interp(coverage, drawn_coverage, drawn_accuracy)
    tail = (1 - confidence) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=0)
    return AccuracyCoverageCurve(coverage, accuracy, low, high, confidence)


@dataclass(frozen=True, eq=False)
class _SortedRows:
    """Rows in the order in which they are deferred.

    Attributes
    ----------
    classifier_is_right, expert_is_right : (n_samples,) arrays of zeros and ones
    tie_ends : (m,) numbers of rows that can be deferred without separating rows of equal margin
    """

    classifier_is_right: FloatArray
    expert_is_right: FloatArray
    tie_ends: IntArray

    @classmethod
    def by_falling_margin(
        cls, classifier_is_right: FloatArray, expert_is_right: FloatArray, margin: FloatArray
    ) -> _SortedRows:
        """Return the rows (n_samples,) sorted by margin, the largest first."""
        ranks = tie_ranks(-margin)
        order = np.argsort(ranks, kind="stable")
        sorted_ranks = ranks[order]
        is_last_of_tie = np.append(sorted_ranks[1:] != sorted_ranks[:-1], True)
        tie_ends = np.flatnonzero(is_last_of_tie) + 1
        return cls(classifier_is_right[order], expert_is_right[order], tie_ends)

    def curve(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return rising coverages (m + 1,), and the accuracies there, of rows with weights (n_samples,)."""
        total = weights.sum()
        right_if_all_kept = weights @ self.classifier_is_right
        gains = np.cumsum(weights * (self.expert_is_right - self.classifier_is_right))
        deferred = np.cumsum(weights)
        # No row is deferred at the first point.
        deferred_at_points = np.concatenate([[0.0], deferred[self.tie_ends - 1]])
        gains_at_points = np.concatenate([[0.0], gains[self.tie_ends - 1]])
        coverage = 1 - deferred_at_points / total
        accuracy = (right_if_all_kept + gains_at_points) / total
        return coverage[::-1], accuracy[::-1]


def mean_coverage_curve(
    curves: Sequence[AccuracyCoverageCurve], confidence: float = 0.95
) -> AccuracyCoverageCurve:
    """Return the mean of the curves of several seeds, with Student's interval over the seeds.

    ``mean ± t * s / sqrt(n_seeds)`` with s the standard deviation over the seeds. It says how much
    another seed would change the curve; the interval of one curve says how much other rows would.

    Parameters
    ----------
    curves : curves of at least two seeds
    confidence : number in (0, 1)

    Returns
    -------
    AccuracyCoverageCurve at 101 coverages from 0 to 1

    Examples
    --------
    >>> first = accuracy_coverage_curve([1, 0], [0, 1], [0.1, 0.9])
    >>> second = accuracy_coverage_curve([1, 1], [0, 1], [0.1, 0.9])
    >>> mean_coverage_curve([first, second]).at(0.5)
    1.0
    """
    if len(curves) < 2:
        raise invalid("curves", f"must be those of at least two seeds; got {len(curves)}.")
    coverage = np.linspace(0, 1, N_COVERAGES)
    accuracies = np.empty((len(curves), N_COVERAGES))
    for seed, curve in enumerate(curves):
        accuracies[seed] = np.interp(coverage, curve.coverage, curve.accuracy)
    mean = accuracies.mean(axis=0)
    standard_error = accuracies.std(axis=0, ddof=1) / math.sqrt(len(curves))
    reach = student_quantile(confidence, len(curves) - 1) * standard_error
    return AccuracyCoverageCurve(coverage, mean, mean - reach, mean + reach, confidence)


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Estimated probabilities beside observed frequencies, in bins of (nearly) equally many rows.

    Attributes
    ----------
    predicted : (n_bins,) mean estimate in each bin, rising
    observed : (n_bins,) share of the rows of each bin in which the expert was right
    counts : (n_bins,) number of rows in each bin
    """

    predicted: FloatArray
    observed: FloatArray
    counts: IntArray

    @property
    def expected_calibration_error(self) -> float:
        """``sum_b counts_b |predicted_b - observed_b| / sum_b counts_b``."""
        gaps = np.abs(self.predicted - self.observed)
        return float(self.counts @ gaps / self.counts.sum())


def reliability_curve(
    is_right: ArrayLike, probability: ArrayLike, n_bins: int = 10
) -> ReliabilityCurve:
    """Return the mean estimate of P(expert is right) and the share that was right, in bins of equal mass.

    The rows are sorted by estimate and cut into ``n_bins`` bins whose numbers of rows differ by at most
    one. Rows with equal estimates go into one bin, so there may be fewer bins.

    Parameters
    ----------
    is_right : (n_samples,) array of zeros and ones
    probability : (n_samples,) array of estimates. They may exceed 1: those of L_CE do
    n_bins : number of bins

    Returns
    -------
    ReliabilityCurve

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1, 1], [0.2, 0.4, 0.7, 0.9], n_bins=2)
    >>> curve.predicted, curve.observed
    (array([0.3, 0.8]), array([0.5, 1. ]))
    """
    right = number_vector("is_right", is_right)
    estimate = number_vector("probability", probability, len(right))
    check_integer("n_bins", n_bins)
    if len(right) == 0:
        raise invalid("is_right", "must have at least one row; got 0.")
    bin_of_row = _bins_of_equal_mass(estimate, n_bins)
    counts = np.bincount(bin_of_row)
    predicted = np.bincount(bin_of_row, estimate) / counts
    observed = np.bincount(bin_of_row, right) / counts
    return ReliabilityCurve(predicted, observed, counts)


def _bins_of_equal_mass(values: FloatArray, n_bins: int) -> IntArray:
    """Return the bin (n_samples,) of each value, from 0; no bin is empty, and equal values share one."""
    ranks = tie_ranks(values)
    # A tie that crosses the border of two bins belongs to the upper one.
    lowest_ranks = [
        ranks_of_bin[0]
        for ranks_of_bin in np.array_split(np.sort(ranks), n_bins)
        if ranks_of_bin.size
    ]
    return np.searchsorted(np.unique(lowest_ranks), ranks, side="right") - 1


def expected_calibration_error(
    is_right: ArrayLike, probability: ArrayLike, n_bins: int = 10
) -> float:
    """Return by how much estimated probabilities differ on average from observed frequencies.

    In bins b of (nearly) equally many rows, see ``reliability_curve``, this is::

        sum_b counts_b |predicted_b - observed_b| / sum_b counts_b

    It is biased upwards: a calibrated estimate has about ``0.4 * sqrt(n_bins / n_samples)``, not 0.

    Parameters
    ----------
    is_right : (n_samples,) array of zeros and ones
    probability : (n_samples,) array of estimates
    n_bins : number of bins

    Returns
    -------
    number, 0 for estimates whose mean in every bin is the observed share

    Examples
    --------
    >>> round(expected_calibration_error([0, 1, 1, 1], [0.2, 0.4, 0.7, 0.9], n_bins=2), 3)
    0.2
    """
    return reliability_curve(is_right, probability, n_bins).expected_calibration_error


def _class_vector(y: ArrayLike) -> NDArray[Any]:
    """Return the checked classes (n_samples,), at least one."""
    classes = np.asarray(y)
    if classes.ndim != 1 or classes.size == 0:
        raise invalid(
            "y", f"must have shape (n_samples,) with at least one row; got {classes.shape}."
        )
    return classes


def _predictions(predicted: ArrayLike, n_samples: int) -> NDArray[Any]:
    """Return the checked predictions (n_samples,)."""
    classes = np.asarray(predicted)
    check_shape("predicted", classes.shape, "(n_samples,)", (n_samples,))
    return classes


def _check_deferred(deferred_to: ArrayLike, shape: tuple[int, ...]) -> IntArray:
    """Return the checked indices (n_samples,) of experts, or -1, for the shape (n_samples, n_experts)."""
    expert_indices = np.asarray(deferred_to)
    check_shape("deferred_to", expert_indices.shape, "(n_samples,)", shape[:1])
    if expert_indices.dtype.kind not in "iu":
        raise invalid("deferred_to", f"must be integers; got dtype {expert_indices.dtype}.")
    bad = (expert_indices < KEPT) | (expert_indices >= shape[1])
    if bad.any():
        rule = f"must hold indices of experts in [0, {shape[1]}), or -1 for rows that are kept"
        raise invalid("deferred_to", f"{rule}; got {expert_indices[bad][0]}.")
    return expert_indices.astype(np.intp, copy=False)


def _mean_or_nan(values: BoolArray) -> float:
    """Return the mean, NaN if there are no values."""
    if values.size == 0:
        return math.nan
    return float(values.mean())

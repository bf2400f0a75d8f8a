"""Numbers of learning to defer: who was right, how often the classifier decided, and calibration.

A classifier gives a class for every row, and a system keeps the row or defers it to an expert.
``deferred_to`` (n_samples,) holds the index of the expert that is asked, or -1 (``KEPT``) where the
classifier decides.
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
# Points of the common axis on which curves are averaged.
GRID = 101


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
    """Whether each expert's answer is the class: (n_samples, n_experts).

    Parameters
    ----------
    y : (n_samples,) array of classes
    experts : (n_samples, n_experts) array of answers, or (n_samples,) of one expert. An answer that is
        missing (NaN, None or masked) is not right

    Returns
    -------
    (n_samples, n_experts) array

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
    return equal & ~np.ma.getmaskarray(answers)


def deferral_summary(
    y: ArrayLike, predicted: ArrayLike, deferred_to: ArrayLike, experts: ArrayLike
) -> DeferralSummary:
    """System accuracy, coverage, and the accuracy of the classifier and of the experts on their rows.

    Parameters
    ----------
    y : (n_samples,) array of classes
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
    chosen = _check_deferred(deferred_to, expert_is_right.shape)
    kept = chosen == KEPT
    rows = np.arange(len(classes))
    system_is_right = np.where(kept, classifier_is_right, expert_is_right[rows, chosen])
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
        """Accuracy at a coverage, linear between points."""
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
    """System accuracy at every coverage, rows deferred by falling margin, with bootstrap intervals.

    With the rows in that order and j of them deferred, ``accuracy_j = (sum of expert_is_right over the
    first j + sum of classifier_is_right over the others) / n``. Rows of equal margin move together, and
    the curve is linear between points. The interval resamples rows, and each replicate is read at the same
    coverage.

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
    AccuracyCoverageCurve

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
    ranks = tie_ranks(-margin)
    order = np.argsort(ranks, kind="stable")
    ordered_ranks = ranks[order]
    last_of_tie = np.append(ordered_ranks[1:] != ordered_ranks[:-1], True)
    sorted_rows = _SortedRows(classifier[order], expert[order], np.flatnonzero(last_of_tie) + 1)
    coverage, accuracy = sorted_rows.curve(np.ones(len(order)))
    rng = np.random.default_rng(random_state)
    replicates = np.empty((n_resamples, len(coverage)))
    for draw in range(n_resamples):
        rows = rng.integers(len(order), size=len(order))
        counts = np.bincount(rows, minlength=len(order)).astype(np.float64)
        replicates[draw] = np.interp(coverage, *sorted_rows.curve(counts))
    tail = (1 - confidence) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=0)
    return AccuracyCoverageCurve(coverage, accuracy, low, high, confidence)


@dataclass(frozen=True, eq=False)
class _SortedRows:
    """Rows in the order in which they are deferred, and after how many of them a tie ends."""

    classifier_is_right: FloatArray
    expert_is_right: FloatArray
    tie_ends: IntArray

    def curve(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coverage and accuracy, rising in coverage, of rows that count ``weights`` times."""
        total = weights.sum()
        kept_right = weights @ self.classifier_is_right
        gained = np.cumsum(weights * (self.expert_is_right - self.classifier_is_right))
        deferred = np.cumsum(weights)
        deferred_at = np.concatenate([[0.0], deferred[self.tie_ends - 1]])
        gained_at = np.concatenate([[0.0], gained[self.tie_ends - 1]])
        coverage = 1 - deferred_at / total
        accuracy = (kept_right + gained_at) / total
        return coverage[::-1], accuracy[::-1]


def mean_coverage_curve(
    curves: Sequence[AccuracyCoverageCurve], confidence: float = 0.95
) -> AccuracyCoverageCurve:
    """Mean of the curves of several seeds, with Student's interval over the seeds at each coverage.

    ``mean ± t * s / sqrt(n_seeds)`` with s the standard deviation over the seeds. It says how much
    another seed would change the curve; that of one curve says how much other rows would.

    Parameters
    ----------
    curves : curves of at least two seeds
    confidence : number in (0, 1)

    Returns
    -------
    AccuracyCoverageCurve on 101 coverages

    Examples
    --------
    >>> first = accuracy_coverage_curve([1, 0], [0, 1], [0.1, 0.9])
    >>> second = accuracy_coverage_curve([1, 1], [0, 1], [0.1, 0.9])
    >>> mean_coverage_curve([first, second]).at(0.5)
    1.0
    """
    if len(curves) < 2:
        raise invalid("curves", f"must be those of at least two seeds; got {len(curves)}.")
    coverage = np.linspace(0, 1, GRID)
    accuracies = np.empty((len(curves), GRID))
    for seed, curve in enumerate(curves):
        accuracies[seed] = np.interp(coverage, curve.coverage, curve.accuracy)
    mean = accuracies.mean(axis=0)
    standard_error = accuracies.std(axis=0, ddof=1) / math.sqrt(len(curves))
    reach = student_quantile(confidence, len(curves) - 1) * standard_error
    return AccuracyCoverageCurve(coverage, mean, mean - reach, mean + reach, confidence)


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Predicted probabilities beside what happened, in bins of (nearly) equally many rows.

    Attributes
    ----------
    predicted : (n_bins,) mean probability in each bin, rising
    observed : (n_bins,) share of the rows of the bin in which it was right
    counts : (n_bins,) rows in each bin
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
    """Mean probability and observed share in bins of equal mass, such as of P(expert is right).

    The rows are sorted by probability and cut into ``n_bins`` runs of sizes that differ by at most one.
    Rows of equal probability go into one bin, so there may be fewer bins.

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
    ranks = tie_ranks(estimate)
    # The lowest rank of each run; a tie that crosses a border belongs to the later run.
    lowest_ranks = []
    for run in np.array_split(np.sort(ranks), n_bins):
        if run.size:
            lowest_ranks.append(run[0])
    run_of_row = np.searchsorted(np.unique(lowest_ranks), ranks, side="right")
    _, bins = np.unique(run_of_row, return_inverse=True)
    counts = np.bincount(bins)
    predicted = np.bincount(bins, estimate) / counts
    observed = np.bincount(bins, right) / counts
    return ReliabilityCurve(predicted, observed, counts)


def expected_calibration_error(
    is_right: ArrayLike, probability: ArrayLike, n_bins: int = 10
) -> float:
    """Expected calibration error with bins of equal mass: that of ``reliability_curve``.

    It is biased upwards: a calibrated estimate has about ``sqrt(n_bins / n_samples)`` times 0.4, not 0.

    Parameters
    ----------
    is_right : (n_samples,) array of zeros and ones
    probability : (n_samples,) array of estimates
    n_bins : number of bins

    Returns
    -------
    the error, 0 for estimates that are right on average in every bin

    Examples
    --------
    >>> round(expected_calibration_error([0, 1, 1, 1], [0.2, 0.4, 0.7, 0.9], n_bins=2), 3)
    0.2
    """
    return reliability_curve(is_right, probability, n_bins).expected_calibration_error


def _class_vector(y: ArrayLike) -> NDArray[Any]:
    classes = np.asarray(y)
    if classes.ndim != 1 or classes.size == 0:
        raise invalid(
            "y", f"must have shape (n_samples,) with at least one row; got {classes.shape}."
        )
    return classes


def _predictions(predicted: ArrayLike, n_samples: int) -> NDArray[Any]:
    classes = np.asarray(predicted)
    check_shape("predicted", classes.shape, "(n_samples,)", (n_samples,))
    return classes


def _check_deferred(deferred_to: ArrayLike, shape: tuple[int, ...]) -> IntArray:
    """Indices (n_samples,) of experts, or -1."""
    chosen = np.asarray(deferred_to)
    check_shape("deferred_to", chosen.shape, "(n_samples,)", shape[:1])
    if chosen.dtype.kind not in "iu":
        raise invalid("deferred_to", f"must be integers; got dtype {chosen.dtype}.")
    bad = (chosen < KEPT) | (chosen >= shape[1])
    if bad.any():
        rule = f"must hold indices of experts in [0, {shape[1]}), or -1 for rows that are kept"
        raise invalid("deferred_to", f"{rule}; got {chosen[bad][0]}.")
    return chosen.astype(np.intp, copy=False)


def _mean_or_nan(values: BoolArray) -> float:
    if values.size == 0:
        return math.nan
    return float(values.mean())

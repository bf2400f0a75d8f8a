"""Differences over repeated random splits: what the overlap of the splits leaves of certainty."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import float_matrix
from mild.errors import InvalidInputError
from mild.metrics.rows import number_vector
from mild.metrics.simultaneous import SimultaneousIntervals
from mild.metrics.student import student_quantile

__all__ = ["resampled_intervals"]


def resampled_intervals(
    differences: ArrayLike,
    test_over_train: float,
    confidence: float = 0.95,
    floor: ArrayLike | None = None,
) -> SimultaneousIntervals:
    """Joint intervals for m mean differences from J random splits of the same rows.

    Splits share rows, so their differences are not independent, and the plain standard error is far
    too small. The corrected one (Nadeau and Bengio 2003) takes the variance of a mean over J splits as

        (1 / J + q / (1 - q)) * s^2

    with s^2 the variance over splits and q the share of the splits in which a row is tested, so that
    ``q / (1 - q)`` is n_test / n_train of whole splits. Where only some of the rows are compared, because
    an expert was not asked in the others, this ratio stays: two tests share a part q of the rows that are
    compared, however few these are.

    The limits are ``mean ± t * se`` with t Student's two-sided quantile at J - 1 degrees of freedom and
    level ``(1 - confidence) / m``, m the columns that vary: so few splits say too little about
    correlations to profit from them.

    Splits that agree by chance make s^2 too small, down to 0. A standard error is at least ``floor``.

    Parameters
    ----------
    differences : (n_splits, m): mean cost of a candidate minus that of the baseline, split by split
    test_over_train : ``q / (1 - q)``: rows to test on over rows to train on, compared or not
    floor : (m,) standard errors of the mean differences over the rows; 0 where a difference is known

    Examples
    --------
    >>> found = resampled_intervals([[-0.02], [-0.03], [-0.025], [-0.03]], 0.3 / 0.7)
    >>> bool(found.decided[0]), round(float(found.estimate[0]), 4)
    (True, -0.0263)
    >>> resampled_intervals([[-0.02], [-0.02]], 0.3 / 0.7, floor=[0.01]).decided
    array([False])
    """
    array = float_matrix("differences", differences)
    n_splits, m = array.shape
    if n_splits < 2:
        raise InvalidInputError(f"differences must come from two splits or more; got {n_splits}.")
    if not np.isfinite(array).all():
        raise InvalidInputError("differences must be finite. Leave out what was never judged.")
    if not (math.isfinite(test_over_train) and test_over_train >= 0):
        raise InvalidInputError(
            f"test_over_train must be non-negative and finite; got {test_over_train}."
        )
    if not 0 < confidence < 1:
        raise InvalidInputError(f"confidence must lie strictly between 0 and 1; got {confidence}.")
    varies = array.max(axis=0) > array.min(axis=0)
    mean = np.where(varies, array.mean(axis=0), array[0])
    error = np.where(varies, array.std(axis=0, ddof=1), 0.0)
    error *= math.sqrt(1 / n_splits + test_over_train)
    if floor is not None:
        least = number_vector("floor", floor, m)
        if (least < 0).any():
            raise InvalidInputError(f"floor must be non-negative; got {least.min():g}.")
        error = np.maximum(error, least)
    open_columns = int((error > 0).sum())
    quantile = 0.0
    if open_columns:
        quantile = student_quantile(1 - (1 - confidence) / open_columns, n_splits - 1)
    reach = quantile * error
    return SimultaneousIntervals(
        mean, mean - reach, mean + reach, error, quantile, n_splits, confidence, "two-sided"
    )

"""Differences over repeated random splits: what the overlap of the splits leaves of certainty."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mild.arrays import float_matrix
from mild.exceptions import InvalidInputError
from mild.metrics.simultaneous import SimultaneousIntervals, simultaneous_intervals

__all__ = ["resampled_intervals"]


def resampled_intervals(
    differences: ArrayLike,
    test_over_train: float,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
) -> SimultaneousIntervals:
    """Joint intervals for m mean differences from J random splits of the same rows.

    Splits share rows, so their differences are not independent, and the plain standard error is far
    too small. The corrected one (Nadeau and Bengio 2003) takes the variance of a mean over J splits as

        (1 / J + n_test / n_train) * s^2

    with s^2 the variance over splits; the limits are ``mean ± q * se`` with the joint t quantile of
    ``simultaneous_intervals`` at J - 1 degrees of freedom.

    Parameters
    ----------
    differences : (n_splits, m): mean cost of a candidate minus that of the baseline, split by split
    test_over_train : rows to test on over rows to train on

    Examples
    --------
    >>> found = resampled_intervals([[-0.02], [-0.03], [-0.025], [-0.03]], 0.3 / 0.7)
    >>> bool(found.decided[0]), round(float(found.estimate[0]), 4)
    (True, -0.0263)
    """
    array = float_matrix("differences", differences)
    n_splits = len(array)
    if n_splits < 2:
        raise InvalidInputError(f"differences must come from two splits or more; got {n_splits}.")
    if not (math.isfinite(test_over_train) and test_over_train >= 0):
        raise InvalidInputError(
            f"test_over_train must be non-negative and finite; got {test_over_train}."
        )
    plain = simultaneous_intervals(array, confidence, random_state)
    factor = math.sqrt(1 + n_splits * test_over_train)
    error = plain.standard_error * factor
    reach = plain.quantile * error
    return SimultaneousIntervals(
        plain.estimate,
        plain.estimate - reach,
        plain.estimate + reach,
        error,
        plain.quantile,
        n_splits,
        confidence,
        plain.side,
    )

"""Validation of what metrics average over: costs, row weights, missing values, numbers of draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    BoolArray,
    FloatArray,
    check_costs,
    check_entries,
    check_share,
    float64_array,
    float_matrix,
    invalid,
)
from mild.errors import check_option, count_noun


def evaluated_costs(costs: ArrayLike) -> FloatArray:
    """Return costs with at least one row, checked by ``check_costs`` except that a column may be NaN.

    A test fold may hold no row on which some expert was asked.
    """
    array = float_matrix("costs", costs)
    if len(array) == 0:
        raise invalid("costs", "must have at least one row to average over; got 0.")
    unknown = np.isnan(array)
    never_asked = unknown.all(axis=0)
    if never_asked.any() and not unknown.all(axis=1).any():
        check_costs(np.where(never_asked, 0, array))
        return array
    return check_costs(array)


def row_weights(sample_weight: ArrayLike | None, n_samples: int) -> FloatArray:
    """Return non-negative weights (n_samples,), the largest 1; None weighs rows equally."""
    if sample_weight is None:
        return np.ones(n_samples)
    weights = number_vector("sample_weight", sample_weight, n_samples)
    check_entries("sample_weight", weights, weights < 0, "be non-negative")
    largest = weights.max()
    if largest == 0:
        raise invalid("sample_weight", "must have a positive sum; got zeros only.")
    # Dividing by the largest keeps sums of huge weights finite.
    return weights / largest


def number_vector(name: str, values: ArrayLike, n_samples: int | None = None) -> FloatArray:
    """Return finite float64 numbers of shape (n_samples,)."""
    array = float64_array(name, values)
    if array.ndim != 1 or (n_samples is not None and len(array) != n_samples):
        rule = "(n_samples,)"
        if n_samples is not None:
            rule += f" = ({n_samples},)"
        raise invalid(name, f"must have shape {rule}; got {array.shape}.")
    check_entries(name, array, ~np.isfinite(array), "be finite", " Remove these rows.")
    return array


def known_rows(chosen_values: FloatArray, missing: str) -> BoolArray:
    """Return which rows have a known chosen value; ``missing="error"`` raises an error if any has not."""
    check_option("missing", missing, ("error", "skip"))
    known = ~np.isnan(chosen_values)
    n_unknown = int((~known).sum())
    if n_unknown and missing == "error":
        raise invalid(
            "costs",
            f"must be known for the chosen expert of every row; {n_unknown} of "
            f"{count_noun(len(known), 'row')} chose an expert that was never asked there. Ask it, or pass "
            f"missing='skip' to average over the other rows.",
        )
    if not known.any():
        raise invalid(
            "costs",
            f"must be known for the chosen expert of at least one row (missing='skip'); got none "
            f"among {n_unknown}.",
        )
    return known


def check_draws(name: str, n_draws: int, confidence: float) -> None:
    """Raise an error for a confidence outside (0, 1), or fewer draws than one beyond each limit."""
    check_share("confidence", confidence)
    fewest = int(np.ceil(2 / (1 - confidence) - 1e-9))
    if n_draws < fewest:
        raise invalid(name, f"must be at least 2 / (1 - confidence) = {fewest}; got {n_draws}.")

"""Validation of arrays: every public function checks its input here, once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.errors import InvalidInputError

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]

__all__ = [
    "BoolArray",
    "FloatArray",
    "IntArray",
    "check_choices",
    "check_costs",
    "check_entries",
    "check_labels",
    "check_margins",
    "check_rewards",
    "check_scores",
    "check_strength",
    "expert_vector",
    "float_matrix",
    "float_vector",
    "invalid",
]


def invalid(name: str, rule: str) -> InvalidInputError:
    """The error about the parameter ``name``; ``rule`` states the rule, the value and the remedy.

    Examples
    --------
    >>> invalid("delta", "must be positive; got -1.").code
    'invalid_delta'
    """
    return InvalidInputError(f"{name} {rule}", parameter=name)


def float_matrix(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a two-dimensional float array; float32 stays float32."""
    try:
        array = np.asarray(values)
        if array.dtype != np.float32:
            array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise invalid(name, f"must hold numbers; got {error}.") from error
    if array.ndim != 2:
        raise invalid(
            name,
            f"must have shape (n_samples, n_experts); got {array.ndim} dimension(s), "
            f"shape {array.shape}.",
        )
    if array.shape[1] == 0:
        raise invalid(name, f"must have at least one expert column; got {array.shape}.")
    return array


def check_entries(
    name: str, array: FloatArray, bad: BoolArray, rule: str, remedy: str = ""
) -> None:
    """Refuse a matrix with ``bad`` entries; the message names the first of them."""
    if bad.any():
        row, expert = np.argwhere(bad)[0]
        raise invalid(
            name, f"must {rule}; got {array[row, expert]:g} in row {row}, expert {expert}.{remedy}"
        )


def check_costs(costs: ArrayLike, n_samples: int | None = None) -> FloatArray:
    """Return costs as a float array of shape (n_samples, n_experts).

    Costs are finite and non-negative; NaN means that the expert was never asked about the row. Rows
    and columns that are all NaN are refused.
    """
    array = float_matrix("costs", costs)
    if n_samples is not None and array.shape[0] != n_samples:
        raise invalid(
            "costs",
            f"must have shape (n_samples, n_experts) = ({n_samples}, {array.shape[1]}); "
            f"got {array.shape}.",
        )
    rule = "be finite, or NaN where an expert was never asked"
    check_entries("costs", array, np.isinf(array), rule)
    remedy = " Add a constant to the row if only differences matter."
    check_entries("costs", array, array < 0, "be non-negative", remedy)
    unknown = np.isnan(array)
    if unknown.any():
        silent_rows = np.flatnonzero(unknown.all(axis=1))
        if silent_rows.size:
            raise invalid(
                "costs",
                f"must be known for at least one expert in every row; row {silent_rows[0]} is "
                f"all NaN ({silent_rows.size} such row(s)). Remove these rows.",
            )
        silent_experts = np.flatnonzero(unknown.all(axis=0))
        if silent_experts.size:
            raise invalid(
                "costs",
                f"must be known in at least one row for every expert; expert "
                f"{silent_experts[0]} is all NaN. Remove the column, or ask this expert.",
            )
    return array


def check_scores(scores: ArrayLike) -> FloatArray:
    """Return finite scores of shape (n_samples, n_experts)."""
    array = float_matrix("scores", scores)
    check_entries("scores", array, ~np.isfinite(array), "be finite")
    return array


def check_rewards(rewards: ArrayLike, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return finite, non-negative rewards, of the given shape if there is one."""
    array = float_matrix("rewards", rewards)
    if shape is not None and array.shape != shape:
        raise invalid(
            "rewards", f"must have shape (n_samples, n_experts) = {shape}; got {array.shape}."
        )
    bad = ~(np.isfinite(array) & (array >= 0))
    check_entries("rewards", array, bad, "be finite and non-negative")
    return array


def check_margins(margins: ArrayLike | None, n_experts: int) -> FloatArray:
    """Return positive margins, one per expert; None stands for all ones, a number for all equal."""
    if margins is None:
        return np.ones(n_experts)
    array = _float64("margins", margins)
    if array.ndim == 0:
        array = np.full(n_experts, float(array))
    if array.shape != (n_experts,):
        raise invalid(
            "margins", f"must have shape (n_experts,) = ({n_experts},); got {array.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        raise invalid(
            "margins", f"must be positive and finite; got {array[bad[0]]:g} for expert {bad[0]}."
        )
    return array


def float_vector(
    name: str,
    values: ArrayLike,
    size: int | None = None,
    *,
    positive: bool = False,
    nonzero: bool = False,
) -> FloatArray:
    """Return a float64 vector of finite, non-negative numbers.

    Parameters
    ----------
    size : length of the vector; None for any length of at least 1
    positive : whether every entry must be positive
    nonzero : whether at least one entry must be positive
    """
    array = _float64(name, values)
    valid = np.isfinite(array) & (array > 0 if positive else array >= 0)
    wrong_shape = array.ndim != 1 or array.size == 0 or size not in (None, array.size)
    if wrong_shape or not valid.all() or (nonzero and not array.any()):
        count = "a vector of" if size is None else str(size)
        rule = "positive" if positive else "non-negative"
        last = ", not all zero" if nonzero else ""
        got = repr(values) if array.size <= 20 else f"shape {array.shape}, {(~valid).sum()} bad"
        raise invalid(name, f"must be {count} finite, {rule} numbers{last}; got {got}.")
    return array


def expert_vector(name: str, values: ArrayLike, n_experts: int) -> FloatArray:
    """Return finite, non-negative float64 numbers, one per expert."""
    return float_vector(name, values, n_experts)


def check_labels(labels: ArrayLike, n_samples: int, n_experts: int) -> IntArray:
    """Return integer labels in [0, n_experts), one per sample."""
    return _indices("labels", labels, n_samples, n_experts)


def check_choices(chosen: ArrayLike, n_samples: int, n_experts: int) -> IntArray:
    """Return chosen experts in [0, n_experts), one per sample."""
    return _indices("chosen", chosen, n_samples, n_experts)


def check_strength(name: str, value: Any) -> float:
    """Return a finite, non-negative number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise invalid(name, f"must be a number; got {value!r}.")
    if not (np.isfinite(value) and value >= 0):
        raise invalid(name, f"must be finite and non-negative; got {value!r}.")
    return float(value)


def _float64(name: str, values: ArrayLike) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid(name, f"must be numbers; got {values!r}.") from error


def _indices(name: str, values: ArrayLike, n_samples: int, n_experts: int) -> IntArray:
    array = np.asarray(values)
    if array.shape != (n_samples,):
        raise invalid(name, f"must have shape (n_samples,) = ({n_samples},); got {array.shape}.")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise invalid(name, f"must be integers; got dtype {array.dtype}.")
    if array.size and (array.min() < 0 or array.max() >= n_experts):
        bad = array[(array < 0) | (array >= n_experts)][0]
        raise invalid(name, f"must lie in [0, {n_experts}); got {bad}.")
    return array.astype(np.intp, copy=False)

"""What goes in: arrays are checked once, at the border, with one clear sentence each."""

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
    "check_labels",
    "check_margins",
    "check_rewards",
    "check_scores",
    "check_strength",
    "expert_vector",
    "float_matrix",
]


def float_matrix(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a two-dimensional float array; float32 stays float32."""
    try:
        array = np.asarray(values)
        if array.dtype != np.float32:
            array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must hold numbers; got {error}.") from error
    if array.ndim != 2:
        raise InvalidInputError(
            f"{name} must have shape (n_samples, n_experts); got {array.ndim} dimension(s), "
            f"shape {array.shape}."
        )
    if array.shape[1] == 0:
        raise InvalidInputError(f"{name} must have at least one expert column; got {array.shape}.")
    return array


def check_costs(costs: ArrayLike, n_samples: int | None = None) -> FloatArray:
    """Return costs as a float array of shape (n_samples, n_experts).

    Costs are finite and non-negative; NaN means that this expert was never asked about this row. A
    row or a column of NaN alone says nothing and is refused.
    """
    array = float_matrix("costs", costs)
    if n_samples is not None and array.shape[0] != n_samples:
        raise InvalidInputError(
            f"costs must have shape (n_samples, n_experts) = ({n_samples}, {array.shape[1]}); "
            f"got {array.shape}."
        )
    if np.isinf(array).any():
        row, expert = np.argwhere(np.isinf(array))[0]
        raise InvalidInputError(
            f"costs must be finite, or NaN where an expert was never asked; "
            f"got infinity in row {row}, expert {expert}."
        )
    asked = ~np.isnan(array)
    if (array < 0).any():
        row, expert = np.argwhere(array < 0)[0]
        raise InvalidInputError(
            f"costs must be non-negative; got {array[row, expert]:g} in row {row}, "
            f"expert {expert}. Add a constant to the row if only differences matter."
        )
    if not asked.all():
        silent_rows = np.flatnonzero(~asked.any(axis=1))
        if silent_rows.size:
            raise InvalidInputError(
                f"costs must be known for at least one expert in every row; row {silent_rows[0]} is "
                f"all NaN ({silent_rows.size} such row(s)). Remove these rows."
            )
        silent_experts = np.flatnonzero(~asked.any(axis=0))
        if silent_experts.size:
            raise InvalidInputError(
                f"costs must be known in at least one row for every expert; expert "
                f"{silent_experts[0]} is all NaN. Remove the column, or ask this expert."
            )
    return array


def check_scores(scores: ArrayLike) -> FloatArray:
    """Return finite scores of shape (n_samples, n_experts)."""
    array = float_matrix("scores", scores)
    if not np.isfinite(array).all():
        row, expert = np.argwhere(~np.isfinite(array))[0]
        raise InvalidInputError(
            f"scores must be finite; got {array[row, expert]} in row {row}, expert {expert}."
        )
    return array


def check_rewards(rewards: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return finite, non-negative rewards of the given shape."""
    array = float_matrix("rewards", rewards)
    if array.shape != shape:
        raise InvalidInputError(
            f"rewards must have shape (n_samples, n_experts) = {shape}; got {array.shape}."
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        row, expert = np.argwhere(~(np.isfinite(array) & (array >= 0)))[0]
        raise InvalidInputError(
            f"rewards must be finite and non-negative; got {array[row, expert]} in row {row}, "
            f"expert {expert}."
        )
    return array


def check_margins(margins: ArrayLike | None, n_experts: int) -> FloatArray:
    """Return positive margins, one per expert; None stands for all ones."""
    if margins is None:
        return np.ones(n_experts)
    try:
        array = np.asarray(margins, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"margins must be numbers; got {margins!r}.") from error
    if array.ndim == 0:
        array = np.full(n_experts, float(array))
    if array.shape != (n_experts,):
        raise InvalidInputError(
            f"margins must have shape (n_experts,) = ({n_experts},); got {array.shape}.",
            parameter="margins",
        )
    if not (np.isfinite(array).all() and (array > 0).all()):
        bad = int(np.flatnonzero(~(np.isfinite(array) & (array > 0)))[0])
        raise InvalidInputError(
            f"margins must be positive and finite; got {array[bad]:g} for expert {bad}."
        )
    return array


def expert_vector(name: str, values: ArrayLike, n_experts: int) -> FloatArray:
    """Return finite, non-negative float64 numbers, one per expert."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must be numbers; got {values!r}.") from error
    if array.shape != (n_experts,) or not (np.isfinite(array).all() and (array >= 0).all()):
        raise InvalidInputError(
            f"{name} must be {n_experts} finite, non-negative numbers; got {values!r}."
        )
    return array


def check_labels(labels: ArrayLike, n_samples: int, n_experts: int) -> IntArray:
    """Return integer labels in [0, n_experts), one per sample."""
    return _indices("labels", labels, n_samples, n_experts)


def check_choices(chosen: ArrayLike, n_samples: int, n_experts: int) -> IntArray:
    """Return chosen experts in [0, n_experts), one per sample."""
    return _indices("chosen", chosen, n_samples, n_experts)


def _indices(name: str, values: ArrayLike, n_samples: int, n_experts: int) -> IntArray:
    array = np.asarray(values)
    if array.shape != (n_samples,):
        raise InvalidInputError(
            f"{name} must have shape (n_samples,) = ({n_samples},); got {array.shape}."
        )
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InvalidInputError(f"{name} must be integers; got dtype {array.dtype}.")
    if array.size and (array.min() < 0 or array.max() >= n_experts):
        bad = array[(array < 0) | (array >= n_experts)][0]
        raise InvalidInputError(f"{name} must lie in [0, {n_experts}); got {bad}.")
    return array.astype(np.intp, copy=False)


def check_strength(name: str, value: Any) -> float:
    """Return a finite, non-negative number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise InvalidInputError(f"{name} must be a number; got {value!r}.")
    if not (np.isfinite(value) and value >= 0):
        raise InvalidInputError(f"{name} must be finite and non-negative; got {value!r}.")
    return float(value)

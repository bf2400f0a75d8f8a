"""Validation of arrays, and arrays as plain values. Every public function checks its input here, once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.errors import InvalidInputError, count_noun

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]


def invalid(name: str, rule: str) -> InvalidInputError:
    """Return an error about the parameter ``name``; ``rule`` states the rule, the value and the remedy."""
    return InvalidInputError(parameter=name, rule=rule)


def check_shape(name: str, shape: Sequence[int], axes: str, expected: Sequence[int]) -> None:
    """Raise an error unless the shape is the expected one; ``axes`` names its axes, as ``(n_samples,)``."""
    if tuple(shape) != tuple(expected):
        raise invalid(name, f"must have shape {axes} = {tuple(expected)}; got {tuple(shape)}.")


def float_matrix(
    name: str, values: ArrayLike, shape: tuple[int | None, int | None] = (None, None)
) -> FloatArray:
    """Return ``values`` as a float array (n_samples, n_experts); float32 stays float32.

    ``shape`` holds the expected sizes, None where any size is allowed.
    """
    try:
        array = np.asarray(values)
        if array.dtype != np.float32:
            array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise invalid(name, f"must hold numbers; got {error}.") from error
    if array.ndim != 2:
        got = f"{count_noun(array.ndim, 'dimension')}, shape {array.shape}"
        raise invalid(name, f"must have shape (n_samples, n_experts); got {got}.")
    expected = list(array.shape)
    for axis, size in enumerate(shape):
        if size is not None:
            expected[axis] = size
    check_shape(name, array.shape, "(n_samples, n_experts)", expected)
    if array.shape[1] == 0:
        raise invalid(name, f"must have at least one expert column; got {array.shape}.")
    return array


def check_entries(
    name: str, array: FloatArray, bad: BoolArray, rule: str, remedy: str = ""
) -> None:
    """Raise an error if any entry is ``bad``; the message names the first of them by its indices."""
    if bad.any():
        first_bad = tuple(np.argwhere(bad)[0].tolist())
        got = f"{name}[{', '.join(map(str, first_bad))}] = {array[first_bad]:g}"
        raise invalid(name, f"must {rule}; got {got}.{remedy}")


def check_costs(costs: ArrayLike, n_samples: int | None = None) -> FloatArray:
    """Return costs (n_samples, n_experts): finite and non-negative, NaN where never asked.

    Rows and columns that are all NaN are refused.
    """
    array = float_matrix("costs", costs, (n_samples, None))
    rule = "be finite, or NaN where an expert was never asked"
    check_entries("costs", array, np.isinf(array), rule)
    remedy = " Add a constant to the row if only differences matter."
    check_entries("costs", array, array < 0, "be non-negative", remedy)
    unknown = np.isnan(array)
    if unknown.any():
        _refuse_unknown_rows_and_columns(unknown)
    return array


def _refuse_unknown_rows_and_columns(unknown: BoolArray) -> None:
    """Raise an error if a whole row or a whole column of the costs is unknown."""
    rows = np.flatnonzero(unknown.all(axis=1))
    if rows.size:
        raise invalid(
            "costs",
            f"must be known for at least one expert in every row; costs[{rows[0]}] is all NaN "
            f"({count_noun(rows.size, 'such row')}). Remove these rows.",
        )
    experts = np.flatnonzero(unknown.all(axis=0))
    if experts.size:
        raise invalid(
            "costs",
            f"must be known in at least one row for every expert; costs[:, {experts[0]}] is all NaN. "
            f"Remove the column, or ask this expert.",
        )


def check_scores(scores: ArrayLike) -> FloatArray:
    """Return finite scores (n_samples, n_experts)."""
    array = float_matrix("scores", scores)
    check_entries("scores", array, ~np.isfinite(array), "be finite")
    return array


def check_rewards(
    rewards: ArrayLike, shape: tuple[int | None, int | None] = (None, None)
) -> FloatArray:
    """Return finite, non-negative rewards (n_samples, n_experts)."""
    array = float_matrix("rewards", rewards, shape)
    bad = ~(np.isfinite(array) & (array >= 0))
    check_entries("rewards", array, bad, "be finite and non-negative")
    return array


def check_margins(margins: ArrayLike | None, n_experts: int) -> FloatArray:
    """Return positive margins (n_experts,); None stands for all ones, a number for all equal."""
    if margins is None:
        return np.ones(n_experts)
    array = float64_array("margins", margins)
    if array.ndim == 0:
        array = np.full(n_experts, float(array))
    check_shape("margins", array.shape, "(n_experts,)", (n_experts,))
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        got = f"{array[bad[0]]:g} for expert {bad[0]}"
        raise invalid("margins", f"must be positive and finite; got {got}.")
    return array


def float_vector(
    name: str,
    values: ArrayLike,
    size: int | None = None,
    *,
    positive: bool = False,
    nonzero: bool = False,
) -> FloatArray:
    """Return a parameter as a float64 vector of finite, non-negative numbers, or raise an error.

    ``name`` is that of the parameter, for the message. ``size`` is the required length; None allows any
    length above 0. With ``positive`` all entries must be positive, with ``nonzero`` at least one.
    """
    array = float64_array(name, values)
    is_valid = np.isfinite(array) & (array > 0) if positive else np.isfinite(array) & (array >= 0)
    has_right_shape = array.ndim == 1 and array.size > 0 and size in (None, array.size)
    is_refused_zero = nonzero and not array.any()
    if has_right_shape and is_valid.all() and not is_refused_zero:
        return array
    amount = "a vector of"
    if size is not None:
        amount = f"{size}"
    rule = f"must be {amount} finite, non-negative numbers"
    if positive:
        rule = f"must be {amount} finite, positive numbers"
    if nonzero:
        rule += ", not all zero"
    actual = repr(values)
    if array.size > 20:
        actual = f"shape {array.shape}, {(~is_valid).sum()} bad"
    raise invalid(name, f"{rule}; got {actual}.")


def check_labels(labels: ArrayLike, shape: tuple[int, ...], name: str = "labels") -> IntArray:
    """Return integers (n_samples,) in [0, n_experts), for the shape (n_samples, n_experts)."""
    n_samples, n_experts = shape
    array = np.asarray(labels)
    check_shape(name, array.shape, "(n_samples,)", (n_samples,))
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise invalid(name, f"must be integers; got dtype {array.dtype}.")
    bad = (array < 0) | (array >= n_experts)
    if bad.any():
        raise invalid(name, f"must lie in [0, {n_experts}); got {array[bad][0]}.")
    return array.astype(np.intp, copy=False)


def check_strength(name: str, value: Any) -> float:
    """Return a finite, non-negative number."""
    return check_number(name, value, "be finite and non-negative")


def check_integer(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return an integer of at least ``low`` and, where there is one, at most ``high``."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if is_integer and value >= low and (high is None or value <= high):
        return int(value)
    rule = f"must be an integer in [{low}, {high}]"
    if high is None:
        rule = f"must be an integer, at least {low}"
    raise invalid(name, f"{rule}; got {value!r}.")


def check_jobs(n_jobs: Any) -> None:
    """Raise an error unless the number of parallel workers is None, or an integer other than 0."""
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise invalid("n_jobs", f"must be an integer, not 0; -1 uses every core; got {n_jobs!r}.")


def check_share(name: str, value: Any) -> float:
    """Return a number between 0 and 1, both excluded."""
    return check_number(name, value, "lie between 0 and 1")


#: Rules for numbers by their words in messages.
RULES: Mapping[str, Callable[[float], bool]] = {
    "be positive": lambda value: value > 0,
    "be finite and non-negative": lambda value: value >= 0,
    "lie between 0 and 1": lambda value: 0 < value < 1,
    "lie in [0, 1)": lambda value: 0 <= value < 1,
    "lie in [0, 1]": lambda value: 0 <= value <= 1,
}


def check_number(name: str, value: Any, rule: str) -> float:
    """Return a finite number that follows one of ``RULES``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise invalid(name, f"must be a finite number; got {value!r}.")
    if not RULES[rule](float(value)):
        raise invalid(name, f"must {rule}; got {value!r}.")
    return float(value)


def float64_array(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a float64 array of any shape."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid(name, f"must be numbers; got {values!r}.") from error


def as_python(value: Any, finite: bool = False) -> Any:
    """Return a value with Python's numbers and lists in place of those of NumPy, ready for JSON.

    With ``finite``, numbers that are not finite become None.

    >>> as_python({"shares": np.array([0.5, np.nan]), "rows": np.int64(3)}, finite=True)
    {'shares': [0.5, None], 'rows': 3}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: as_python(entry, finite) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_python(entry, finite) for entry in value]
    if finite and isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def first_columns(X: Any, count: int) -> Any:
    """Return the first ``count`` columns of a matrix, which is X itself if it has no more.

    >>> first_columns(np.array([[1, 2, 3]]), 2)
    array([[1, 2]])
    """
    if X.shape[1] == count:
        return X
    return X[:, :count]

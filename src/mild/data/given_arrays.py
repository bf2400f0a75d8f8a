"""Arrays of features and of whole costs, from which ``Outcomes.from_arrays`` makes a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, invalid
from mild.data.data_quality import ROW_ONE, row_number
from mild.errors import DataFileError, count_noun

# Costs beyond it are too large to be learned from: their squares must be finite in single precision.
LARGEST_COST = 1e18


def check_features(X: Any) -> FloatArray:
    """Return features (n_queries, n_features) as floats; all must be finite."""
    features = _matrix("X", X)
    if len(features) == 0:
        raise DataFileError("there must be at least one row; got none.")
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0].tolist()
        got = f"X[{row}, {column}] = {features[row, column]}"
        raise invalid("X", f"must be finite, only costs may be missing; got {got}.")
    return features


def check_costs(costs: Any, n_rows: int) -> FloatArray:
    """Return costs (n_rows, n_experts) as float64; NaN where an expert was never asked.

    They must be finite, not negative and not too large, and each row needs one.
    """
    matrix = _matrix("costs", costs).astype(np.float64, copy=False)
    if len(matrix) != n_rows:
        raise invalid("costs", f"must have as many rows as X; got {n_rows:,} and {len(matrix):,}.")
    rule = "be finite and not negative"
    remedy = "Leave out what is unknown"
    is_wrong = np.isinf(matrix) | (matrix < 0)
    if not is_wrong.any():
        rule = f"be at most {LARGEST_COST:g}"
        remedy = "Divide all costs by the same number, or leave out what is unknown"
        is_wrong = matrix > LARGEST_COST
    if is_wrong.any():
        row, index = np.argwhere(is_wrong)[0].tolist()
        number = row_number(row, None)
        got = f"{matrix[row, index]:g} in row {number} of expert {index} ({ROW_ONE})"
        raise DataFileError(f"costs must {rule}; got {got}. {remedy}.", parameter="costs")
    empty_rows = np.flatnonzero(np.isnan(matrix).all(axis=1))
    if empty_rows.size:
        number = row_number(int(empty_rows[0]), None)
        raise DataFileError(
            f"costs must be known for at least one expert in every row; row {number} has none "
            f"({ROW_ONE}). Leave out {count_noun(empty_rows.size, 'such row')}.",
            parameter="costs",
        )
    return matrix


def names_of(
    parameter: str, names: Sequence[str] | None, values: Any, count: int
) -> list[str] | None:
    """Return the names from the caller, or else of the columns of a frame; None if there are none."""
    if names is None:
        names = getattr(values, "columns", None)
    if names is None:
        return None
    if isinstance(names, str) or len(names) != count:
        raise invalid(parameter, f"must hold {count} names; got {names!r}.")
    texts = list(map(str, names))
    for index, name in enumerate(texts):
        if not name:
            raise invalid(parameter, "must not be empty; got ''.")
        if name in texts[:index]:
            raise invalid(parameter, f"must differ from each other; {name!r} appears twice.")
    return texts


def _matrix(name: str, values: Any) -> FloatArray:
    """Return an array or a frame as a matrix of floats; it must have two dimensions."""
    if hasattr(values, "toarray"):
        rule = "must be dense in a table; use its toarray(), or fit a router such as LinearRouter to it."
        raise invalid(name, rule)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise invalid(name, f"must hold numbers; got {error}.") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise invalid(name, f"must have two dimensions, a row per input; got shape {array.shape}.")
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64)

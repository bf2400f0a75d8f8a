"""When a query was asked: a column as moments that can be put in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.data import OutcomeTable
from mild.errors import DataFileError

__all__ = ["moments"]


def moments(table: OutcomeTable, name: str) -> np.ndarray[Any, Any]:
    """A column of numbers, dates or dates as text (ISO 8601), ready to be sorted, (n_samples,).

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a", "b"], "day": ["2026-03-01", "2026-01-31"],
    ...     "correct__s": [1, 0], "correct__l": [1, 1],
    ... }))
    >>> moments(table, "day").argsort()
    array([1, 0])
    """
    import pyarrow as pa

    table.column(name)  # says which columns there are where this one is not
    column = table.columns[name]
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parsed(name, column)
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.timestamp("us"), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataFileError(
            f"column {name!r} must hold numbers or dates to go by time; got {kind}."
        )
    if column.null_count:
        raise DataFileError(
            f"column {name!r} must be known in every row to go by time; {column.null_count} of "
            f"{table.rows} are empty."
        )
    values: np.ndarray[Any, Any] = column.to_numpy()
    return values


def _parsed(name: str, column: Any) -> Any:
    import pyarrow as pa

    # With a zone such as +02:00 or Z last.
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            moments = column.cast(kind)
        except pa.ArrowInvalid:
            continue
        return moments if kind == pa.float64() else moments.cast(pa.timestamp("us"), safe=False)
    example = next((value for value in column.to_pylist() if value is not None), None)
    raise DataFileError(
        f"column {name!r} must hold numbers or dates such as 2026-01-31T12:00:00 to go by time; got "
        f"{example!r}."
    )

"""Tables of results as frames of the library that the user works with."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mild.core.arrays import as_python


def as_frame(table: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]], like: Any) -> Any:
    """A table of results as a frame of the kind of ``like``.

    ``table`` has columns, as ``RouterCV.cv_results_``, or rows, as ``Comparison.as_dict()["methods"]``.
    Objects in a column, such as parameters, become JSON text: polars and pyarrow need one type for all.
    ``like`` is a frame or a column of pandas, polars or pyarrow; for anything else the result is a dict of
    columns.

    Examples
    --------
    >>> as_frame([{"name": "a", "params": {"alpha": 1}}, {"name": "b", "params": {}}], like=None)
    {'name': ['a', 'b'], 'params': ['{"alpha": 1}', '{}']}
    """
    if isinstance(table, Mapping):
        columns = {name: list(values) for name, values in table.items()}
    else:
        names = dict.fromkeys(name for row in table for name in row)
        columns = {name: [row.get(name) for row in table] for name in names}
    for name, values in columns.items():
        columns[name] = values = as_python(values)
        if any(_has_objects(value) for value in values):
            columns[name] = [json.dumps(value, default=str) for value in values]
    library = type(like).__module__.partition(".")[0]
    if library == "pandas":
        return sys.modules[library].DataFrame(columns)
    if library == "polars":
        # Otherwise integers beside floats are refused, and floats in lists beside integers cut off.
        return sys.modules[library].DataFrame(columns, strict=False)
    if library == "pyarrow":
        return sys.modules[library].table(columns)
    return columns


def _has_objects(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_objects, value))
    return isinstance(value, Mapping)

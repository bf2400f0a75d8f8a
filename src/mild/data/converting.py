"""Outcomes to a file in the wide shape, which every reader of such tables knows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from mild.data.outcomes import OutcomeTable
from mild.data.writing import check_output, write_columns
from mild.errors import DataFileError

__all__ = ["write_outcomes"]

QUERY = "prompt"
VECTORS = "embedding"
# A column of the source that has the name of one that is written goes by its name with this behind.
ASIDE = "_of_source"


def write_outcomes(
    table: OutcomeTable, path: str | os.PathLike[str], overwrite: bool = False
) -> Path:
    """Write outcomes to a .parquet, .csv or .jsonl file in the wide shape, whole or not at all.

    The query is column ``prompt``, choices included; vectors are ``embedding``; then the other columns;
    then ``correct__<model>`` where scores are 0 and 1 and ``score__<model>`` where they are not,
    ``cost__<model>`` in dollars and ``latency_ms__<model>``. A column of the source that is called
    ``prompt`` or ``embedding`` but is not the query or the vectors gets ``_of_source`` behind its
    name. Lists stand as JSON in a .csv.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({"query": ["a"], "weak": [False], "strong": [True]}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_outcomes(table, Path(folder) / "wide.csv").read_text(), end="")
    "prompt","correct__weak","correct__strong"
    "a",0,1
    """
    import pyarrow as pa

    target = check_output(path, overwrite)
    columns: dict[str, Any] = {}
    if any(table.queries):
        columns[QUERY] = pa.array(table.queries, pa.large_string())
    if table.vectors is not None:
        flat = pa.array(table.vectors.reshape(-1))
        columns[VECTORS] = pa.FixedSizeListArray.from_arrays(flat, table.vectors.shape[1])
    for name in table.columns.column_names:
        columns[name + ASIDE if name in (QUERY, VECTORS) else name] = table.columns[name]
    binary = bool(np.isin(table.scores, (0, 1)).sum() == (~np.isnan(table.scores)).sum())
    prefix = "correct__" if binary and not _has(columns, "correct__", table) else "score__"
    kind = pa.int8() if prefix == "correct__" else pa.float64()
    written: list[tuple[str, Any, Any]] = [(prefix, table.scores, kind)]
    if table.prices is not None:
        written.append(("cost__", table.prices, pa.float64()))
    if table.latencies is not None:
        written.append(("latency_ms__", table.latencies * 1e3, pa.float64()))
    for start, values, arrow_type in written:
        if _has(columns, start, table):
            raise DataFileError(
                f"the table has columns {start}<model> of its own beside its outcomes; rename them."
            )
        for k, name in enumerate(table.expert_names):
            columns[start + name] = pa.array(values[:, k], from_pandas=True).cast(arrow_type)
    return write_columns(_plain(columns, target.suffix.lower()), target, overwrite)


def _has(columns: dict[str, Any], prefix: str, table: OutcomeTable) -> bool:
    return any(prefix + name in columns for name in table.expert_names)


def _plain(columns: dict[str, Any], suffix: str) -> dict[str, Any]:
    """Columns as the format can hold them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if suffix == ".parquet":
        return columns
    result: dict[str, Any] = {}
    for name, column in columns.items():
        test = pa.types
        if test.is_nested(column.type):
            values = column.to_pylist()
            result[name] = values if suffix == ".jsonl" else pa.array([_as_json(v) for v in values])
        elif suffix == ".jsonl":
            if test.is_temporal(column.type) or test.is_decimal(column.type):
                column = column.cast(pa.string())
            elif test.is_floating(column.type):
                # JSON knows no NaN.
                column = pc.if_else(pc.is_finite(column), column, None)
            result[name] = column.to_pylist()
        else:
            result[name] = column
    return result


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)

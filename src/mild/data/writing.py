"""Writing columns and tables of outcomes to files: whole or not at all, never over another file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from mild.artifact.files import check_free, replacing
from mild.data.outcome_table import OutcomeTable
from mild.errors import DataFileError

SUFFIXES = (".csv", ".parquet", ".jsonl")

#: Lists or arrays of equal length.
Columns = Mapping[str, Any]


def check_output(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Refuse a path that could not be written at the end, before any work is done."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise DataFileError(
            f"{target}: the output must end in {', '.join(SUFFIXES)}; got {target.suffix!r}.",
            parameter="path",
        )
    return check_free(target, overwrite)


def write_columns(columns: Columns, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write columns of equal length to a .csv, .parquet or .jsonl file, under its name only when done.

    Lists stand as JSON in a .csv. What is not finite is null in a .jsonl.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_columns({"expert": [0, 1]}, Path(folder) / "choices.jsonl")
    ...     print(file.read_text(), end="")
    {"expert": 0}
    {"expert": 1}
    """
    target = check_output(path, overwrite)
    table = pa.table(dict(columns))
    try:
        with replacing(target) as file:
            if target.suffix.lower() == ".csv":
                write_csv(columns, file)
            elif target.suffix.lower() == ".parquet":
                parquet.write_table(table, file)
            else:
                write_json_lines(table, file)
    except OSError as error:
        raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


def write_json_lines(table: Any, file: IO[bytes]) -> None:
    """Write an Arrow table to an open binary file, one JSON object per row."""
    lists = [_json_values(column) for column in table.columns]
    for row in zip(*lists, strict=True):
        line = json.dumps(dict(zip(table.column_names, row, strict=True)), ensure_ascii=False)
        file.write(line.encode() + b"\n")


def write_csv(columns: Columns, file: IO[bytes], header: bool = True) -> None:
    """Write columns as CSV to an open binary file."""
    table = pa.table(dict(columns))
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            values = [
                None if value is None else json.dumps(value, ensure_ascii=False, default=str)
                for value in table.column(place).to_pylist()
            ]
            table = table.set_column(place, field.name, pa.array(values, pa.string()))
    options = arrow_csv.WriteOptions(include_header=header, quoting_style="needed")
    arrow_csv.write_csv(table, file, options)


def _json_values(column: Any) -> list[Any]:
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_floating(column.type):
        import pyarrow.compute as pc

        column = pc.if_else(pc.is_finite(column), column, None)
    values: list[Any] = column.to_pylist()
    return values


def write_outcomes(
    table: OutcomeTable, path: str | os.PathLike[str], overwrite: bool = False
) -> Path:
    """Write outcomes to a .parquet, .csv or .jsonl file in the wide format, whole or not at all.

    The query is column ``prompt``, choices included; vectors are ``embedding``; then the other columns;
    then ``correct__<model>`` where scores are 0 and 1 and ``score__<model>`` where they are not,
    ``cost__<model>`` in dollars and ``latency_ms__<model>``. A column of the source that is called
    ``prompt`` or ``embedding`` but is not the query or the vectors gets ``_of_source`` behind its
    name.

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
    target = check_output(path, overwrite)
    return write_columns(table.wide_columns(), target, overwrite)

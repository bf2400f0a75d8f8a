"""A table as it comes (Parquet, CSV, JSON lines, a frame) as one Arrow table with whole text."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from mild.data.arrow import unreadable
from mild.errors import DataFileError, InvalidInputError, listed

__all__ = ["SUFFIXES", "load_file", "load_frame", "peek_schema", "sound"]

SUFFIXES = (".parquet", ".csv", ".jsonl", ".ndjson")


def load_file(file: Path, texts: Collection[str]) -> Any:
    """Arrow table of a file.

    Parameters
    ----------
    file : .parquet, .csv, .jsonl or .ndjson
    texts : columns that are text whatever they look like: a prompt ``007`` is no number
    """
    if not file.exists():
        raise DataFileError("there is no such file.")
    if not file.is_file():
        raise DataFileError("it must be a file; got a folder.")
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataFileError(f"the file must end in {', '.join(SUFFIXES)}; got {file.suffix!r}.")
    try:
        if file.stat().st_size == 0:
            raise DataFileError("the file is empty.")
        return _checked(_load(file, suffix, texts))
    except OSError as error:
        raise DataFileError(f"it cannot be read: {error.strerror or error}.") from error


def load_frame(source: Any) -> Any:
    """Arrow table of a frame: anything with ``__arrow_c_stream__``, and pandas of any age.

    Examples
    --------
    >>> load_frame(pa.table({"prompt": ["a"], "correct__x": [1]})).column_names
    ['prompt', 'correct__x']
    """
    if hasattr(source, "__arrow_c_stream__"):
        try:
            table = pa.RecordBatchReader.from_stream(source).read_all()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataFileError(
                f"the frame cannot be read through Arrow ({_line(error)})."
            ) from error
    elif hasattr(source, "columns") and hasattr(source, "iloc"):
        try:
            table = pa.Table.from_pandas(source, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataFileError(
                f"the frame cannot be read through Arrow ({_line(error)})."
            ) from error
    else:
        raise InvalidInputError(
            f"a table must be a path, or a frame with __arrow_c_stream__ (pandas, polars, DuckDB, "
            f"pyarrow); got {type(source).__name__}."
        )
    return _checked(table)


def peek_schema(file: Path) -> Any:
    """Arrow schema of a .parquet or .csv file, read from its beginning; None if it cannot be had."""
    from mild.data.csv_source import peek_csv, starts_as_text

    try:
        if file.suffix.lower() == ".parquet":
            return parquet.read_schema(file)
        return peek_csv(file) if starts_as_text(file) else None
    except (pa.ArrowException, OSError):
        return None


def _load(file: Path, suffix: str, texts: Collection[str]) -> Any:
    if suffix == ".parquet":
        try:
            return parquet.ParquetFile(file).read()
        except (pa.ArrowException, OSError) as error:
            raise unreadable(suffix, error) from error
    if suffix == ".csv":
        from mild.data.csv_source import load_csv

        return load_csv(file, texts)
    from mild.data.json_lines import load_json_lines

    return load_json_lines(file, texts)


def _checked(table: Any) -> Any:
    names = list(table.column_names)
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise DataFileError(f"columns must have different names; {min(twice)!r} appears twice.")
    if table.num_rows == 0:
        raise DataFileError(f"there must be at least one row; got none, columns {listed(names)}.")
    return sound(table)


def sound(table: Any) -> Any:
    """The table with categories as what they stand for; refused if a column of it is broken."""
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if pa.types.is_dictionary(column.type):
            # Categories of pandas and polars are texts like any others.
            table = table.set_column(place, name, column.cast(column.type.value_type))
        try:
            table.column(place).validate(full=True)
        except pa.ArrowException as error:
            raise DataFileError(
                f"column {name!r} is broken, or its text is not UTF-8 ({_line(error)})."
            ) from error
    return table


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")[:200]

"""Writing columns and tables of outcomes.

Files are written completely or not at all, and an existing file is replaced only if the caller says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from mild.artifact.files import check_free, replacing
from mild.data.outcome_table import Outcomes
from mild.errors import DataFileError

SUFFIXES = (".csv", ".parquet", ".jsonl")

#: Lists or arrays of equal length.
Columns = Mapping[str, Any]


def check_output(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that a file can be written at a path; called before long work whose result is written there.

    Parameters
    ----------
    path : str or path-like
        The file to be written, .csv, .parquet or .jsonl.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    pathlib.Path
        The path.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise DataFileError(
            f"{target}: the output must end in {', '.join(SUFFIXES)}; got {target.suffix!r}.",
            parameter="path",
        )
    return check_free(target, overwrite)


def write_columns(columns: Columns, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write columns of equal length to a .csv, .parquet or .jsonl file.

    The file appears complete or not at all. In a .csv, lists are written as JSON; in a .jsonl,
    numbers that are not finite are null.

    Parameters
    ----------
    columns : dict of str to array-like
        Values by the name of their column.
    path : str or path-like
        The file; its suffix determines the format.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    pathlib.Path
        The file.

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
        # Written under a temporary name, which becomes the target when the file is complete.
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


def write_batches(
    path: str | os.PathLike[str], schema: Any, batches: Iterable[Any], overwrite: bool = False
) -> int:
    """Write batches of rows to a file one by one, so that they need not fit in memory together.

    The file appears complete or not at all. A name that ends in .csv or .jsonl says the format; any
    other file is parquet. Nothing is read from ``batches`` if the file cannot be written.

    Parameters
    ----------
    path : str or path-like
        The file.
    schema : pyarrow.Schema
        Schema of the batches.
    batches : iterable of pyarrow.RecordBatch
        The rows.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    int
        Number of rows written.

    Examples
    --------
    >>> import tempfile
    >>> batch = pa.record_batch({"expert": ["small", "large"], "draws": [[0.9, 0.1], [0.5, 0.5]]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.jsonl"
    ...     print(write_batches(file, batch.schema, [batch]), "rows")
    ...     print(file.read_text(), end="")
    2 rows
    {"expert": "small", "draws": [0.9, 0.1]}
    {"expert": "large", "draws": [0.5, 0.5]}
    """
    target = check_free(Path(path), overwrite)
    n_rows = 0
    try:
        with replacing(target) as file, _batch_writer(target, file, schema) as write:
            for batch in batches:
                write(batch)
                n_rows += batch.num_rows
    except OSError as error:
        raise DataFileError(f"cannot write {target}: {error.strerror or error}.") from error
    return n_rows


@contextmanager
def _batch_writer(target: Path, file: IO[bytes], schema: Any) -> Iterator[Callable[[Any], None]]:
    """Return a function that writes a batch of rows to an open file, in the format of its name."""
    suffix = target.suffix.lower()
    if suffix == ".csv":
        write_csv(_columns_of(schema.empty_table()), file)
        yield lambda batch: write_csv(_columns_of(batch), file, header=False)
    elif suffix == ".jsonl":
        yield lambda batch: write_json_lines(pa.Table.from_batches([batch]), file)
    else:
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer.write_batch


def _columns_of(rows: Any) -> Columns:
    """Return the columns of an Arrow table or batch by name."""
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def write_json_lines(table: Any, file: IO[bytes]) -> None:
    """Write an Arrow table to an open binary file, one JSON object per row."""
    lists = [_json_values(column) for column in table.columns]
    for row in zip(*lists, strict=True):
        line = json.dumps(dict(zip(table.column_names, row, strict=True)), ensure_ascii=False)
        file.write(line.encode() + b"\n")


def write_csv(columns: Columns, file: IO[bytes], header: bool = True) -> None:
    """Write columns as CSV to an open binary file."""
    table = pa.table(dict(columns))
    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [_as_json(value) for value in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    options = arrow_csv.WriteOptions(include_header=header, quoting_style="needed")
    arrow_csv.write_csv(table, file, options)


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=str)


def _json_values(column: Any) -> list[Any]:
    """Return the values of a column as JSON can hold them: dates as text, None for what is not finite."""
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_floating(column.type):
        import pyarrow.compute as pc

        column = pc.if_else(pc.is_finite(column), column, None)
    values: list[Any] = column.to_pylist()
    return values


def write_outcomes(table: Outcomes, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write a table of outcomes to a .parquet, .csv or .jsonl file in the wide format.

    Its columns are, in this order,

    - ``prompt``: the query, with its choices; ``embedding``: the vectors;
    - the other columns of the table; one that is called ``prompt`` or ``embedding`` is renamed
      ``<column>_of_source``;
    - ``correct__<model>`` if all scores are 0 or 1, else ``score__<model>``; ``cost__<model>`` in dollars;
      ``latency_ms__<model>``.

    Parameters
    ----------
    table : Outcomes
        The outcomes.
    path : str or path-like
        The file.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    pathlib.Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({"query": ["a"], "weak": [False], "strong": [True]}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_outcomes(table, Path(folder) / "wide.csv").read_text(), end="")
    "prompt","correct__strong","correct__weak"
    "a",1,0
    """
    target = check_output(path, overwrite)
    return write_columns(table.wide_columns(), target, overwrite)

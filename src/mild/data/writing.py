"""Choices to a file: complete or not at all, and never over another file by accident."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from mild.artifact.files import check_free, replacing
from mild.errors import DataFileError

__all__ = ["check_output", "write_columns", "write_csv"]

SUFFIXES = (".csv", ".parquet", ".jsonl")
# Lists or arrays of equal length.
Columns = Mapping[str, Any]


def check_output(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Refuse, before any work, a file that could not be written at the end."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise DataFileError(
            f"{target}: the output must end in {', '.join(SUFFIXES)}; got {target.suffix!r}."
        )
    return check_free(target, overwrite)


def write_columns(columns: Columns, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write columns of equal length to a .csv, .parquet or .jsonl file, under its name only when done.

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
    try:
        with replacing(target) as file:
            _WRITERS[target.suffix.lower()](columns, file)
    except OSError as error:
        raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


def write_csv(columns: Columns, file: IO[bytes]) -> None:
    """Write columns as CSV to an open binary file."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    options = arrow_csv.WriteOptions(quoting_style="needed")
    arrow_csv.write_csv(pa.table(dict(columns)), file, options)


def _write_parquet(columns: Columns, file: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(pa.table(dict(columns)), file)


def _write_json_lines(columns: Columns, file: IO[bytes]) -> None:
    lists = [
        values.tolist() if hasattr(values, "tolist") else list(values)
        for values in columns.values()
    ]
    for row in zip(*lists, strict=True):
        line = json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
        file.write(line.encode() + b"\n")


_WRITERS = {".csv": write_csv, ".parquet": _write_parquet, ".jsonl": _write_json_lines}

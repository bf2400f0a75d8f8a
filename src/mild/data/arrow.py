"""Matrices from .parquet and .csv, through Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from mild.core.arrays import FloatArray
from mild.data.columns import expert_name, split_columns
from mild.data.matrices import Matrices
from mild.errors import DataFileError

__all__ = ["MAX_BLOCK", "is_numeric", "numbers", "read_arrow", "short", "unreadable"]

# Types are guessed from one block: as large as the file, so that a late value counts too.
MAX_BLOCK = 2**31 - 1
# So many texts are looked at to tell a damaged column of numbers from a column of text.
PROBE = 1000


def read_arrow(
    file: Path,
    features: str | Sequence[str] | None,
    costs: str | Sequence[str] | None,
    need_costs: bool,
) -> Matrices:
    """Matrices from the columns of a table."""
    source = _open(file)
    if source.num_rows == 0:
        raise DataFileError("there must be at least one row; got none.")
    names = list(source.schema.names)
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise DataFileError(f"columns must have different names; {min(twice)!r} appears twice.")
    numeric = [field.name for field in source.schema if is_numeric(field.type)]
    feature_columns, cost_columns = split_columns(names, numeric, features, costs, need_costs)
    chosen = [*feature_columns, *cost_columns]
    others = [name for name in names if name not in set(chosen) and name not in set(numeric)]
    table = _read(source, chosen)
    if features is None and isinstance(source, pa.Table):
        # Parquet declares its types; those of a CSV are guessed.
        for name in others:
            _refuse_damaged(name, source[name])
    return Matrices(
        _matrix(table, feature_columns),
        _matrix(table, cost_columns) if cost_columns else None,
        feature_columns,
        [expert_name(column) for column in cost_columns],
        left_out=tuple(others) if features is None else (),
    )


def _open(file: Path) -> Any:
    """A table, or a Parquet file of which only what is needed will be read."""
    try:
        if file.suffix.lower() == ".parquet":
            return _Parquet(parquet.ParquetFile(file))
        size = min(max(file.stat().st_size, 1 << 20), MAX_BLOCK)
        return arrow_csv.read_csv(file, read_options=arrow_csv.ReadOptions(block_size=size))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(file.suffix, error) from error


class _Parquet:
    def __init__(self, file: Any) -> None:
        self.file = file
        self.schema = file.schema_arrow
        self.num_rows = file.metadata.num_rows

    def select(self, names: list[str]) -> Any:
        """Table with these columns."""
        return self.file.read(columns=names)


def _read(source: Any, names: list[str]) -> Any:
    try:
        return source.select(names)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(".parquet", error) from error


def unreadable(suffix: str, error: Exception) -> DataFileError:
    """What Arrow said, as one sentence."""
    # Arrow's messages may run over several lines and quote the data.
    reason = str(error).strip().splitlines()[0].rstrip(".")[:200]
    return DataFileError(f"it is not a readable {suffix} file, or it is cut off ({reason}).")


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type holds numbers; true and false are numbers too."""
    test = pa.types
    return bool(
        test.is_integer(kind)
        or test.is_floating(kind)
        or test.is_boolean(kind)
        or test.is_decimal(kind)
    )


def _matrix(table: Any, names: list[str]) -> FloatArray:
    """Columns side by side; float32 if all of them are."""
    single = all(table.schema.field(name).type == pa.float32() for name in names)
    matrix = np.empty((table.num_rows, len(names)), np.float32 if single else np.float64)
    for place, name in enumerate(names):
        matrix[:, place] = numbers(name, table[name])
    return matrix


def numbers(name: str, column: Any) -> Any:
    """A column as a float array, NaN where it is empty."""
    if not (is_numeric(column.type) or pa.types.is_null(column.type)):
        example = _first_text(column)
        shown = "" if example is None else f" such as {short(example)}"
        raise DataFileError(
            f"column {name!r} must hold numbers; it holds {_type_name(column.type)}{shown}."
        )
    kind = pa.float32() if column.type == pa.float32() else pa.float64()
    return column.cast(kind, safe=False).to_numpy()


def _refuse_damaged(name: str, column: Any) -> None:
    """A column of numbers with a word in it is not quietly left out as text."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return
    values = column.drop_null().slice(0, PROBE).to_pylist()
    parsed = sum(_is_number(value) for value in values)
    if 2 * parsed > len(values):
        raise DataFileError(
            f"column {name!r} must hold numbers; it holds some, but also text such as "
            f"{short(_first_text(column))}. Mend it, or choose the features by name."
        )


def _first_text(column: Any) -> Any:
    """First value that is not a number."""
    for value in column.drop_null():
        if not _is_number(value.as_py()):
            return value.as_py()
    return None


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _type_name(kind: Any) -> str:
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)


def short(value: object) -> str:
    """A value for a message, not more of it than can be read."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."

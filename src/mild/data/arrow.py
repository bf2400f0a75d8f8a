"""Numbers in Arrow columns, and short messages about files that Arrow cannot read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mild.errors import DataFileError

__all__ = ["first_text", "is_number", "is_numeric", "numbers", "short", "unreadable"]


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type holds numbers; booleans count as numbers."""
    test = pa.types
    return bool(
        test.is_integer(kind)
        or test.is_floating(kind)
        or test.is_boolean(kind)
        or test.is_decimal(kind)
    )


def numbers(name: str, column: Any) -> Any:
    """A column as a float array, NaN where it is empty; float32 stays float32."""
    if not (is_numeric(column.type) or pa.types.is_null(column.type)):
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        example = first_text(column)
        shown = "" if example is None else f" such as {short(example)}"
        raise DataFileError(
            f"column {name!r} must hold numbers; it holds {'text' if is_text else column.type}{shown}."
        )
    kind = pa.float32() if column.type == pa.float32() else pa.float64()
    return column.cast(kind, safe=False).to_numpy()


def first_text(column: Any) -> Any:
    """First value of a column that is not a number."""
    values = (value.as_py() for value in column.drop_null())
    return next((value for value in values if not is_number(value)), None)


def is_number(value: Any) -> bool:
    """Whether a value can be parsed as a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def unreadable(suffix: str, error: Exception) -> DataFileError:
    """The error to raise where Arrow cannot read a file; only the first line of its reason is kept."""
    reason = str(error).strip().splitlines()[0].rstrip(".")[:200]
    return DataFileError(f"it is not a readable {suffix} file, or it is cut off ({reason}).")


def short(value: object) -> str:
    """A value for a message, cut at 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."

"""What is known about requests besides the ledger: queries, and how good the answers were."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from mild.data.sources import load_file
from mild.errors import DataFileError

__all__ = ["read_errors", "read_texts"]


def read_texts(path: Path, text_column: str | None, id_column: str) -> dict[str, str]:
    """Request -> query from a table with one row per request."""
    table = _load(path, (id_column, *(() if text_column is None else (text_column,))))
    name = text_column or _one_of(
        path, table, ("text", "query", "prompt", "question", "input", "instruction"), "text-column"
    )
    names = _column(path, table, id_column)
    texts = _column(path, table, name)
    return {str(key): str(text) for key, text in zip(names, texts, strict=True) if text is not None}


def read_errors(path: Path, id_column: str) -> dict[str, float]:
    """Request -> error in [0, 1] from a table with a column ``error``, ``score`` or ``correct``.

    A score of 1 is an error of 0. Rows without a value are left out; a request that appears twice counts
    with its last row.
    """
    table = _load(path, (id_column,))
    name = _one_of(path, table, ("error", "score", "correct"), None)
    result = {}
    pairs = zip(_column(path, table, id_column), _column(path, table, name), strict=True)
    for row, (key, value) in enumerate(pairs):
        if key is None or value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number <= 1:
            raise DataFileError(
                f"{path}: {name} must be a number in [0, 1]; got {value!r} in row {row}."
            )
        result[str(key)] = number if name == "error" else 1 - number
    return result


def _load(path: Path, texts: tuple[str, ...]) -> Any:
    try:
        return load_file(path, texts)
    except DataFileError as error:
        raise DataFileError(f"{path}: {error}") from error


def _column(path: Path, table: Any, name: str) -> list[Any]:
    if name not in table.column_names:
        raise DataFileError(
            f"{path} must have the column {name!r}; got {', '.join(table.column_names)}."
        )
    return list(table.column(name).to_pylist())


def _one_of(path: Path, table: Any, names: tuple[str, ...], option: str | None) -> str:
    for name in names:
        if name in table.column_names:
            return name
    remedy = "" if option is None else f" Name it with --{option}."
    raise DataFileError(
        f"{path} must have one of the columns {', '.join(names)}; got {', '.join(table.column_names)}."
        f"{remedy}"
    )

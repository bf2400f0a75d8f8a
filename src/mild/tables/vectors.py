"""Vectors that stand in the table: one list of numbers per query."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mild.arrays import FloatArray, IntArray
from mild.exceptions import DataFileError
from mild.tables.arrow import is_numeric, short
from mild.tables.columns import choose_columns
from mild.tables.queries import is_list, is_string

__all__ = ["VECTOR_NAMES", "find_vectors", "read_vectors"]

VECTOR_NAMES = ("embedding", "embeddings", "vector", "vectors")


def find_vectors(table: Any) -> str | None:
    """A column of vectors by its name, lists of numbers or JSON of them; None if there is none."""
    for name in VECTOR_NAMES:
        if name not in table.column_names:
            continue
        kind = table.schema.field(name).type
        if _is_vector(kind) or (is_string(kind) and _looks_like_json(table[name])):
            return name
    return None


def read_vectors(table: Any, name: str, places: IntArray | None = None) -> FloatArray:
    """Vectors of equal length, finite, as (n_samples, n_features) float32.

    A CSV holds them as JSON: ``"[0.5, 1.0]"``. ``places`` are the numbers of the rows in their file, where
    they have others.
    """
    places = np.arange(table.num_rows) if places is None else places
    choose_columns("vectors", [name], list(table.column_names))
    column = table[name]
    if is_string(column.type):
        column = _parsed(name, column, places)
    if not _is_vector(column.type):
        raise DataFileError(
            f"vectors must be lists of numbers; column {name!r} holds {column.type}."
        )
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    odd = np.flatnonzero((lengths != lengths[0]) | (lengths == 0))
    if odd.size:
        raise DataFileError(
            f"vectors must all have the same length; {odd.size:,} row(s) of column {name!r} do not, "
            f"such as row {places[odd[0]]} with {lengths[odd[0]]} where row {places[0]} has {lengths[0]}."
        )
    flat = np.concatenate([_floats(chunk) for chunk in column.chunks])
    vectors: FloatArray = flat.reshape(len(lengths), int(lengths[0]))
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise DataFileError(
            f"vectors must be finite; {int(bad.sum()):,} row(s) of column {name!r} are not, such as "
            f"row {places[bad][0]}."
        )
    return vectors


def _is_vector(kind: Any) -> bool:
    return (
        is_list(kind) and is_numeric(kind.value_type) and not pa.types.is_boolean(kind.value_type)
    )


def _looks_like_json(column: Any) -> bool:
    first = column[0].as_py() or ""
    return first.lstrip().startswith("[") and first.rstrip().endswith("]")


def _floats(chunk: Any) -> FloatArray:
    values = chunk.flatten().cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float32)


def _parsed(name: str, column: Any, places: IntArray) -> Any:
    rows = []
    for place, text in zip(places, column.to_pylist(), strict=True):
        try:
            rows.append(json.loads(text or ""))
        except ValueError as error:
            raise DataFileError(
                f"vectors must be lists of numbers; column {name!r} holds {short(text)} in row {place}."
            ) from error
    try:
        return pa.chunked_array([pa.array(rows, pa.list_(pa.float32()))])
    except (pa.ArrowException, TypeError) as error:
        raise DataFileError(
            f"vectors must be lists of numbers; column {name!r} holds other things, too."
        ) from error

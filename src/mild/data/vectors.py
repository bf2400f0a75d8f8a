"""Columns of vectors: one list of numbers per row, or float32 as fixed-size binary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mild.core.arrays import FloatArray, IntArray
from mild.data.data_quality import ROW_ONE, row_number
from mild.data.selection import Where, matching_rows
from mild.data.tables import (
    choose_columns,
    column_kind,
    is_list,
    is_string,
    number_matrix,
    read_table,
    short,
)
from mild.errors import DataFileError, count_noun, listed

VECTOR_NAMES = ("embedding", "embeddings", "vector", "vectors")


def find_vectors(table: Any) -> str | None:
    """Return a column of vectors with a usual name: lists of numbers, bytes or JSON; None without one."""
    for name in VECTOR_NAMES:
        if name not in table.column_names:
            continue
        column = table[name]
        if _is_vector(column.type):
            return name
        if is_string(column.type) and len(column):
            first = (column[0].as_py() or "").strip()
            if first.startswith("[") and first.endswith("]"):
                return name
    return None


def read_features(
    source: Any, names: Sequence[str] | None, where: Where = None
) -> tuple[FloatArray, Any]:
    """Read the features (n_samples, n_features) that a router of numbers takes, and their table.

    ``names`` are the columns of these; None takes the column of vectors.
    """
    table = read_table(source)
    row_numbers = None
    if where:
        selected = matching_rows(table, where)
        table, row_numbers = table.filter(selected), np.flatnonzero(selected)
    columns = list(table.column_names)
    if names is None:
        vectors = find_vectors(table)
        if vectors is None:
            raise DataFileError(f"there must be a column of vectors; found {listed(columns)}.")
        return read_vectors(table, vectors, row_numbers), table
    for name in names:
        if name not in columns:
            raise DataFileError(
                f"there must be a column {name!r}, which the router reads; found {listed(columns)}."
            )
    X = number_matrix(table, names)
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, column = bad[0].tolist()
        raise DataFileError(
            f"features must be finite; column {names[column]!r} is {X[row, column]} in row "
            f"{row_number(row, row_numbers)} ({ROW_ONE}).",
            parameter="features",
        )
    return X, table


def read_vectors(table: Any, name: str, row_numbers: IntArray | None = None) -> FloatArray:
    """Read vectors as (n_samples, n_features) float32; all must be finite and equally long.

    A CSV holds them as JSON: ``"[0.5, 1.0]"``. ``row_numbers`` are the row numbers in the file, where they
    differ from those of the table.
    """
    choose_columns("vectors", [name], list(table.column_names))
    column = table[name]
    if is_string(column.type):
        column = _parse(name, column, row_numbers)
    if not _is_vector(column.type):
        raise no_vectors(name, column.type)
    if pa.types.is_fixed_size_binary(column.type) and column.type.byte_width % 4:
        raise DataFileError(
            f"vectors as fixed-size binary must be float32, 4 bytes per number; column {name!r} holds "
            f"{column.type.byte_width} bytes each."
        )
    length = _common_length(name, column, row_numbers)
    # Copied, so that it can be written to.
    vectors: FloatArray = np.concatenate(
        [vector_matrix(chunk, length) for chunk in column.chunks if len(chunk)]
    )
    bad_rows = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad_rows.size:
        raise DataFileError(
            f"vectors must be finite; this does not hold in {count_noun(bad_rows.size, 'row')} of column "
            f"{name!r}, such as row {row_number(bad_rows[0], row_numbers)} ({ROW_ONE})."
        )
    return vectors


def _common_length(name: str, column: Any, row_numbers: IntArray | None) -> int:
    """Return the length that all vectors of a column have; raise an error if they differ."""
    lengths = np.concatenate([vector_lengths(chunk) for chunk in column.chunks])
    odd_rows = np.flatnonzero((lengths != lengths[0]) | (lengths == 0))
    if odd_rows.size:
        odd_row = odd_rows[0]
        raise DataFileError(
            f"vectors must all have the same length; this does not hold in "
            f"{count_noun(odd_rows.size, 'row')} of column {name!r}, such as row "
            f"{row_number(odd_row, row_numbers)} with {lengths[odd_row]} where row "
            f"{row_number(0, row_numbers)} has {lengths[0]} ({ROW_ONE})."
        )
    return int(lengths[0])


def no_vectors(name: str, kind: Any) -> DataFileError:
    """Return the error for a column whose type cannot hold vectors."""
    return DataFileError(
        f"vectors must be lists of numbers, or float32 as fixed-size binary; column {name!r} holds {kind}.",
        parameter="vectors",
    )


def vector_lengths(array: Any) -> NDArray[Any]:
    """Return the length of each vector of a column; 0 if it is missing."""
    import pyarrow.compute as pc

    if pa.types.is_fixed_size_binary(array.type):
        known = pc.is_valid(array).to_numpy(zero_copy_only=False)
        return np.where(known, array.type.byte_width // 4, 0)
    lengths: NDArray[Any] = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths


def vector_matrix(array: Any, width: int, single: bool = True) -> NDArray[Any]:
    """Return vectors as a matrix (n, width), without a copy if Arrow stores them side by side.

    Rows that are null hold anything; nulls within a row are NaN.
    """
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        start = array.offset * kind.byte_width
        flat = np.frombuffer(array.buffers()[1], "<f4", len(array) * width, start)
        return flat.reshape(len(array), width)
    if pa.types.is_fixed_size_list(kind):
        values = array.values.slice(array.offset * width, len(array) * width)
    elif array.null_count:
        # A null has no values in a list of lists: zeros take their place.
        values = array.fill_null(pa.scalar([0] * width, kind)).flatten()
    else:
        values = array.flatten()
    number_type = pa.float64()
    if single:
        number_type = pa.float32()
    numbers = values.cast(number_type, safe=False)
    matrix: NDArray[Any] = numbers.to_numpy(zero_copy_only=False).reshape(len(array), width)
    return matrix


def _is_vector(kind: Any) -> bool:
    """Return whether an Arrow type holds vectors; lists of booleans do not count."""
    if is_list(kind) and pa.types.is_boolean(kind.value_type):
        return False
    return column_kind(kind) == "vectors"


def _parse(name: str, column: Any, row_numbers: IntArray | None) -> Any:
    """Parse a column of JSON texts into lists of numbers."""
    rows = []
    for row, text in enumerate(column.to_pylist()):
        try:
            rows.append(json.loads(text or ""))
        except ValueError as error:
            raise DataFileError(
                f"vectors must be lists of numbers; column {name!r} holds {short(text)} in row "
                f"{row_number(row, row_numbers)} ({ROW_ONE})."
            ) from error
    try:
        return pa.chunked_array([pa.array(rows, pa.list_(pa.float32()))])
    except (pa.ArrowException, TypeError) as error:
        raise DataFileError(
            f"vectors must be lists of numbers; column {name!r} holds other things, too."
        ) from error

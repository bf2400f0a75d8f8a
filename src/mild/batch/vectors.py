"""A column of vectors as a matrix, without a copy where Arrow holds the numbers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mild.exceptions import DataFileError
from mild.tables.arrow import is_numeric
from mild.tables.queries import is_list

__all__ = ["RowError", "as_column", "as_texts", "check_vectors", "vector_rows"]


class RowError(DataFileError):
    """A row that cannot be read; who knows where the batch lies in its file says which one it is.

    Parameters
    ----------
    sentence : about "it", the row
    row : its place in the batch
    """

    def __init__(self, sentence: str, row: int = 0) -> None:
        super().__init__(sentence)
        self.row = row


def check_vectors(name: str, kind: Any, width: int) -> None:
    """Refuse a column that cannot hold vectors of this width, as far as its type tells.

    Lists of numbers, of fixed size or not, and float32 as fixed bytes, which read several times as fast.
    """
    if pa.types.is_fixed_size_binary(kind):
        got = kind.byte_width / 4
    elif is_list(kind) and is_numeric(kind.value_type):
        got = kind.list_size if pa.types.is_fixed_size_list(kind) else width
    else:
        raise DataFileError(
            f"vectors must be lists of numbers, or float32 as fixed-size binary; column {name!r} holds "
            f"{kind}."
        )
    if got != width:
        raise DataFileError(
            f"vectors must have the {width} numbers that the router was fitted with; column {name!r} "
            f"holds {got:g} each."
        )


def vector_rows(
    array: Any, width: int, single: bool = True
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Vectors (n, width), and which rows hold none; None if all do.

    Examples
    --------
    >>> column = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    >>> rows, empty = vector_rows(column, 2)
    >>> rows[0].tolist(), empty.tolist()
    ([1.0, 2.0], [False, True])
    """
    empty = None
    if array.null_count:
        empty = pc.is_null(array).to_numpy(zero_copy_only=False)
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        data = array.buffers()[1]
        start = array.offset * kind.byte_width
        flat = np.frombuffer(data, "<f4", len(array) * width, start)
        return flat.reshape(len(array), width), empty
    if pa.types.is_fixed_size_list(kind):
        values = array.values.slice(array.offset * width, len(array) * width)
    else:
        values = _equal_lists(array, width, empty)
    wanted = pa.float32() if single else pa.float64()
    if values.type != wanted:
        values = values.cast(wanted, safe=False)
    if values.null_count:
        # Nulls among the numbers become NaN, and are seen as such.
        flat = values.to_numpy(zero_copy_only=False)
    else:
        kind = np.dtype(np.float32 if single else np.float64)
        flat = np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)
    return flat.reshape(len(array), width), empty


def as_column(values: NDArray[Any], empty: NDArray[np.bool_] | None) -> Any:
    """Numbers as an Arrow array without a copy, null where they are empty.

    ``pa.array`` does the same, and imports pandas where that is installed: half a second in every process.

    Examples
    --------
    >>> as_column(np.array([1, 2], np.int32), np.array([False, True])).to_pylist()
    [1, None]
    """
    kind = pa.from_numpy_dtype(values.dtype)
    known = None if empty is None else pa.py_buffer(np.packbits(~empty, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [known, data])


def as_texts(texts: Sequence[str]) -> Any:
    """Texts as an Arrow array, likewise.

    Examples
    --------
    >>> as_texts(["small", "large"]).to_pylist()
    ['small', 'large']
    """
    parts = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, parts)]).astype(np.int32)
    data = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(parts), data)


def _equal_lists(array: Any, width: int, empty: NDArray[np.bool_] | None) -> Any:
    lengths = pc.list_value_length(array).fill_null(width).to_numpy(zero_copy_only=False)
    odd = np.flatnonzero(lengths != width)
    if odd.size:
        raise RowError(
            f"vectors must have the {width} numbers that the router was fitted with; it holds "
            f"{lengths[odd[0]]}.",
            int(odd[0]),
        )
    if empty is None:
        return array.flatten()
    # What is missing takes no place in a list of lists: it is given one.
    filled = array.fill_null(pa.scalar([0] * width, array.type))
    return filled.flatten()

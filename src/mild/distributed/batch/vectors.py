"""A column of vectors as a matrix, and numbers and texts as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mild.data.vectors import column_kind, no_vectors, vector_lengths, vector_matrix
from mild.errors import DataFileError

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
    elif column_kind(kind) == "vectors":
        got = kind.list_size if pa.types.is_fixed_size_list(kind) else width
    else:
        raise no_vectors(name, kind)
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
    if pa.types.is_null(array.type):
        return np.zeros((len(array), width), np.float32), np.ones(len(array), bool)
    empty = None
    if array.null_count:
        empty = pc.is_null(array).to_numpy(zero_copy_only=False)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        _check_lengths(array, width, empty)
    return vector_matrix(array, width, single), empty


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


def _check_lengths(array: Any, width: int, empty: NDArray[np.bool_] | None) -> None:
    lengths = vector_lengths(array)
    wrong = lengths != width
    odd = np.flatnonzero(wrong if empty is None else wrong & ~empty)
    if odd.size:
        raise RowError(
            f"vectors must have the {width} numbers that the router was fitted with; it holds "
            f"{lengths[odd[0]]}.",
            int(odd[0]),
        )

"""Columns of vectors as matrices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from batch_cases import as_lists, make_vectors
from mild.batch.inputs import check_vectors, vector_rows
from mild.errors import DataFileError


@pytest.mark.parametrize("kind", ["fixed", "lists", "bytes"])
def test_rows_are_those_that_were_written_also_in_a_slice(kind):
    X = make_vectors(20)
    array = as_lists(X, kind)
    rows, empty = vector_rows(array.slice(3, 11), 4)
    np.testing.assert_array_equal(rows, X[3:14])
    assert empty.tolist() == [False] * 11


@pytest.mark.parametrize("kind", ["fixed", "lists", "bytes"])
def test_float32_is_not_copied(kind):
    array = as_lists(make_vectors(20), kind)
    rows, _ = vector_rows(array, 4)
    buffers = [buffer for buffer in array.buffers() if buffer is not None]
    places = [range(buffer.address, buffer.address + buffer.size) for buffer in buffers]
    assert any(rows.ctypes.data in place for place in places)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64(), 2), pa.list_(pa.int32()), pa.large_list(pa.float32())]
)
def test_other_numbers_are_converted_and_gaps_are_seen(kind):
    array = pa.array([[1, 2], None, [3, None], [5, 6]], kind)
    for single in (True, False):
        rows, empty = vector_rows(array, 2, single)
        assert rows.dtype == (np.float32 if single else np.float64)
        assert empty.tolist() == [False, True, False, False]
        assert rows[[0, 3]].tolist() == [[1, 2], [5, 6]]
        assert np.isnan(rows[2, 1])


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (pa.list_(pa.float32(), 5), "the 4 numbers .* holds 5 each"),
        (pa.binary(12), "the 4 numbers .* holds 3 each"),
        (pa.binary(17), "holds 4.25 each"),
        (pa.string(), "column 'v' holds string"),
        (pa.list_(pa.string()), "must be lists of numbers"),
    ],
)
def test_a_type_that_cannot_fit_is_refused(kind, sentence):
    with pytest.raises(DataFileError, match=sentence):
        check_vectors("v", kind, 4)

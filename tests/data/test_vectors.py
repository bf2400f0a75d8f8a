"""Vectors that stand in the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.data.tables import column_kind
from mild.data.vectors import VECTOR_NAMES
from table_cases import kinds, refused, wide


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 2), pa.large_list(pa.int8())]
)
def test_vectors_are_found_by_name_with_a_note(kind):
    table = read_outcomes(wide(embedding=pa.array([[1, 2], [3, 4], [5, 6]], kind)))
    np.testing.assert_array_equal(table.vectors, [[1, 2], [3, 4], [5, 6]])
    assert table.vectors.dtype == np.float32
    assert "vectors are column 'embedding'" in table.layout
    assert table.columns.column_names == []


def test_vectors_are_named_and_need_no_query():
    source = pa.table({"v": [[1.0], [2.0]], "correct__x": [0, 1]})
    table = read_outcomes(source, vectors="v")
    assert table.queries == ["", ""]
    assert "there is no query, only vectors" in table.layout
    assert not {"empty_queries", "duplicates"} & set(kinds(source, vectors="v"))


def test_vectors_follow_the_rows_that_are_kept():
    source = pa.table(
        {"prompt": ["a", "b"], "vector": [[1.0, 2.0], [3.0, 4.0]], "correct__x": [None, 1]}
    )
    np.testing.assert_array_equal(read_outcomes(source).vectors, [[3, 4]])


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([[1.0], [2.0, 3.0], None], "2 rows of column 'v', such as row 2 with 2 where"),
        (
            [[1.0], [float("nan")], [2.0]],
            "vectors must be finite; this does not hold in 1 row of column 'v'",
        ),
        (
            [1.0, 2.0, 3.0],
            "lists of numbers, or float32 as fixed-size binary; column 'v' holds double",
        ),
        (
            [["x"], ["y"], ["z"]],
            "lists of numbers, or float32 as fixed-size binary; column 'v' holds list",
        ),
        (pa.array([[True]] * 3), "float32 as fixed-size binary; column 'v' holds list<"),
        (pa.array([b"four"] * 3), "float32 as fixed-size binary; column 'v' holds binary."),
        (
            pa.array([bytes(6)] * 3, pa.binary(6)),
            "must be float32, 4 bytes per number; column 'v' holds 6 bytes each.",
        ),
        (
            pa.array([bytes(8), None, bytes(8)], pa.binary(8)),
            "1 row of column 'v', such as row 2 with 0 where row 1 has 2",
        ),
        (
            pa.array([bytes(4), b"\xff" * 4, bytes(4)], pa.binary(4)),
            "finite; this does not hold in 1 row of column 'v'",
        ),
        (["[1]", "[", "[2]"], "column 'v' holds '[' in row 2"),
        (["[1]", '["a"]', "[2]"], "column 'v' holds other things"),
        ([[1.0, None], [1.0, 2.0], [1.0, 2.0]], "vectors must be finite"),
    ],
)
def test_columns_that_are_not_vectors_are_refused(column, sentence):
    assert sentence in refused(wide(v=column), vectors="v")


def test_unknown_vectors_are_refused():
    assert "vectors must name columns of the file; 'w' is not one" in refused(wide(), vectors="w")


@pytest.mark.parametrize("name", VECTOR_NAMES)
def test_bytes_are_found_and_read_as_the_same_vectors_in_lists(name):
    X = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    stored = pa.array([row.tobytes() for row in X], pa.binary(20))
    chunks = pa.chunked_array([stored.slice(0, 4), stored.slice(4, 0), stored.slice(4)])
    asked = [1, 1, None, 0, 1, 1, None, 1, 0]
    found = read_outcomes(pa.table({name: chunks, "correct__x": asked}))
    np.testing.assert_array_equal(found.vectors, X[[0, 1, 3, 4, 5, 7, 8]])
    lists = read_outcomes(pa.table({name: list(X), "correct__x": asked}))
    assert found.vectors.tobytes() == lists.vectors.tobytes()
    assert found.recipe.vectors == name


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([pa.int8(), pa.float64(), pa.bool_()], "numbers"),
        ([pa.string(), pa.large_string()], "text"),
        ([pa.list_(pa.float32()), pa.list_(pa.float64(), 3), pa.binary(12)], "vectors"),
        ([pa.list_(pa.string()), pa.large_list(pa.large_string())], "lists of texts"),
        ([pa.null()], "nothing"),
        ([pa.binary()], "binary"),
    ],
)
def test_the_kind_of_a_column_does_not_depend_on_how_it_is_stored(kinds, said):
    assert {column_kind(kind) for kind in kinds} == {said}

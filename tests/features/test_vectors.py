"""Precomputed vectors pass through, and nothing else does."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from mild.errors import InvalidInputError, UnsupportedError
from mild.features import VectorFeatures


@pytest.fixture
def features():
    return VectorFeatures(column="embedding").fit(np.ones((5, 3)))


def test_vectors_pass_through_unchanged(features):
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(features.transform(given), given)
    np.testing.assert_array_equal(features.transform_one([1, 2, 3]), [1, 2, 3])
    np.testing.assert_array_equal(features.transform(list(given)), given)


def test_the_width_is_that_of_the_fitted_vectors(features):
    assert features.n_features_ == 3
    with pytest.raises(
        InvalidInputError, match=r"in column 'embedding' must have 3 numbers .* got 2"
    ):
        features.transform([[1.0, 2.0]])
    assert features.fit(np.ones((2, 4))).n_features_ == 4
    with pytest.raises(InvalidInputError, match="must have 3 numbers each; got 4"):
        VectorFeatures(3).fit(np.ones((2, 4)))


def test_a_given_width_needs_no_fit():
    assert VectorFeatures(3).transform([[1, 2, 3]]).tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    "make",
    [
        pd.DataFrame,
        pl.DataFrame,
        lambda rows: pa.table(pd.DataFrame(rows)),
        lambda rows: pd.Series(rows.tolist()),
        lambda rows: pl.Series(rows.tolist()),
        lambda rows: pa.array(rows.tolist()),
    ],
)
def test_vectors_come_as_a_frame_or_as_a_column_of_lists(features, make):
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(features.transform(make(rows)), rows)


def test_a_text_is_refused_with_a_remedy(features):
    for texts in (["hello"], "hello"):
        with pytest.raises(UnsupportedError, match="vectors in column 'embedding'"):
            features.transform(texts)
    with pytest.raises(UnsupportedError, match="give it the vector"):
        features.transform_one("hello")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([[1.0, np.nan, 0.0]], r"finite; got vectors\[0, 1\] = nan"),
        ([1.0, 2.0, 3.0], r"shape \(n, width\)"),
        ([[1.0], [1.0, 2.0]], "rows of numbers"),
        ([[None, "a", 1]], "rows of numbers"),
    ],
)
def test_vectors_must_be_a_matrix_of_finite_numbers(features, values, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        features.transform(values)


def test_the_state_is_width_and_column(features):
    settings, tensors = features.state()
    assert settings == {"n_features": 3, "column": "embedding"}
    assert tensors == {}

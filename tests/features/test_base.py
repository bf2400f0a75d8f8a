"""What the features of every kind do, and how texts are checked."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from mild.errors import InvalidInputError
from mild.features import FEATURES
from mild.features.base import check_texts

of_texts = pytest.mark.parametrize(
    "case", ["hashing", "encoder", "hashing+encoder", "onnx"], indirect=True
)


@pytest.fixture
def fitted(case):
    return case.features.fit(case.inputs())


def test_rows_are_float32_of_the_promised_width(case, fitted):
    rows = fitted.transform(case.inputs())
    assert rows.dtype == np.float32
    assert rows.shape == (60, fitted.n_features_)
    assert np.isfinite(rows).all()


def test_one_text_has_the_row_that_it_has_among_others(case, fitted):
    inputs = case.inputs()
    rows = fitted.transform(inputs)
    for place in (0, 7, 59):
        np.testing.assert_allclose(fitted.transform_one(inputs[place]), rows[place], atol=1e-4)


@of_texts
def test_training_rows_are_centred_with_mean_variance_one(case, fitted):
    rows = fitted.transform(case.inputs()).astype(float)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-4)
    assert 0.5 < rows.var(axis=0).mean() < 1.5


def test_features_come_back_from_their_state(case, fitted):
    settings, tensors = fitted.state()
    again = FEATURES[fitted.kind].from_state(json.loads(json.dumps(settings)), tensors)
    again.take_files(fitted.files())
    rows, wanted = (one.transform(case.inputs()) for one in (again, fitted))
    np.testing.assert_array_equal(rows, wanted)
    assert again.n_features_ == fitted.n_features_
    assert again.state()[0] == settings


@of_texts
def test_texts_never_seen_empty_texts_and_no_texts_have_finite_rows(case, fitted):
    assert np.isfinite(fitted.transform(["", "zebra quux", "\ud800"])).all()
    assert fitted.transform([]).shape == (0, fitted.n_features_)


def test_fitting_on_no_texts_is_refused(case):
    with pytest.raises(InvalidInputError) as caught:
        case.features.fit([])
    assert caught.value.code in ("invalid_texts", "invalid_vectors")


@pytest.mark.parametrize(
    "make",
    [
        tuple,
        iter,
        np.array,
        pd.Series,
        pl.Series,
        pa.array,
        lambda texts: pa.chunked_array([texts]),
    ],
)
def test_any_column_of_texts_is_accepted(make):
    assert check_texts(make(["one", "two"])) == ["one", "two"]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("one string", "a list of strings; got one str"),
        (b"bytes", "a list of strings; got one bytes"),
        (3, "a list of strings; got int"),
        (["good", None], "got NoneType at place 1"),
        (pd.Series(["good", None]), "got float at place 1"),
        (pa.array(["good", None]), "got NoneType at place 1"),
        (pd.DataFrame({"query": ["good"]}), "got a DataFrame; pass its column"),
        (pl.DataFrame({"query": ["good"]}), "got a DataFrame; pass its column"),
        (pa.table({"query": ["good"]}), "got a Table; pass its column"),
        ({"query": ["good"]}, "got a dict; pass its column"),
        (np.array([["good"]]), "got a ndarray; pass its column"),
    ],
)
def test_anything_but_a_column_of_strings_is_refused(texts, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        check_texts(texts)
    assert caught.value.code == "invalid_texts"
    assert "\n" not in str(caught.value)

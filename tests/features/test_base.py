"""What every feature step does, and how texts are checked."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.features import FEATURES, HashingFeatures, StaticFeatures, VectorFeatures
from mild.features.base import check_texts


@pytest.fixture(params=["hashing", "static", "static embedded"])
def fitted(request, texts):
    if request.param == "hashing":
        return HashingFeatures(dimensions=8).fit(texts)
    folder = request.getfixturevalue("static_folder")
    return StaticFeatures(folder, embed=request.param == "static embedded").fit(texts)


def test_rows_are_float32_of_the_promised_width(fitted, texts):
    rows = fitted.transform(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (len(texts), fitted.n_features)
    assert np.isfinite(rows).all()


def test_one_text_has_the_row_that_it_has_among_others(fitted, texts):
    rows = fitted.transform(texts)
    for place in (0, 7, 299):
        one = fitted.transform_one(texts[place])
        assert one.shape == (fitted.n_features,)
        np.testing.assert_allclose(one, rows[place], atol=1e-5)


def test_training_rows_are_centred_with_mean_variance_one(fitted, texts):
    rows = fitted.transform(texts).astype(float)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-4)
    assert 0.5 < rows.var(axis=0).mean() < 1.5


def test_a_step_comes_back_from_its_state_bit_for_bit(fitted, texts):
    settings, tensors = fitted.state()
    again = FEATURES[fitted.kind].from_state(json.loads(json.dumps(settings)), tensors)
    np.testing.assert_array_equal(again.transform(texts), fitted.transform(texts))
    assert again.n_features == fitted.n_features
    assert again.state()[0] == settings


def test_texts_never_seen_and_empty_texts_have_finite_rows(fitted):
    rows = fitted.transform(["", "zebra quux", "\ud800"])
    assert np.isfinite(rows).all()


def test_no_texts_have_no_rows(fitted):
    assert fitted.transform([]).shape == (0, fitted.n_features)


def test_any_iterable_of_texts_will_do(fitted, texts):
    np.testing.assert_array_equal(
        fitted.transform(text for text in texts[:5]), fitted.transform(tuple(texts[:5]))
    )


def test_fit_and_transform_in_one_step_agree_with_two(texts):
    together = HashingFeatures(dimensions=8).fit_transform(texts)
    apart = HashingFeatures(dimensions=8).fit(texts).transform(texts)
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("texts", ["one string", b"bytes"])
def test_one_string_in_place_of_a_list_is_refused(texts):
    with pytest.raises(InvalidInputError, match="list of strings; got one"):
        check_texts(texts)


def test_what_is_no_list_is_refused():
    with pytest.raises(InvalidInputError, match="list of strings; got int"):
        check_texts(3)


@pytest.mark.parametrize("wrong", [None, 3, b"x", float("nan")])
def test_a_text_that_is_no_string_is_named_by_its_place(wrong):
    with pytest.raises(InvalidInputError, match=f"got {type(wrong).__name__} at place 1") as caught:
        check_texts(["good", wrong])
    assert caught.value.code == "invalid_texts"


@pytest.mark.parametrize("features", [HashingFeatures(), StaticFeatures(), VectorFeatures()])
def test_a_step_that_was_never_fitted_says_so(features):
    for action in (
        lambda: features.transform(["x"]),
        lambda: features.transform_one("x"),
        features.state,
    ):
        with pytest.raises(InvalidInputError, match="must be fitted before"):
            action()


@pytest.mark.parametrize("features", [HashingFeatures(), StaticFeatures()])
def test_no_texts_cannot_be_learned_from(features):
    with pytest.raises(InvalidInputError, match="at least one text"):
        features.fit([])

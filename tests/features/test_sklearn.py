"""Features of every kind as scikit-learn transformers; check_estimator skips estimators of strings."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from mild import KNNRouter, LinearRouter, RouterCV
from mild.errors import InvalidInputError
from mild.features import HashingFeatures, TextFeatures
from mild.routers import RidgeRouter


def plain(params):
    return {name: value for name, value in params.items() if not isinstance(value, TextFeatures)}


def make_costs(n=60):
    return np.random.default_rng(1).random((n, 3))


def test_parameters_are_checked_in_fit_only(case):
    features = case.features.set_params(**case.bad)
    copied = clone(features)
    assert plain(copied.get_params()) == plain(features.get_params())
    if case.bad:
        with pytest.raises(InvalidInputError) as caught:
            copied.fit(case.inputs())
        (name,) = case.bad
        assert caught.value.code in (f"invalid_{name.removeprefix('encoder__')}", "invalid_input")


def test_a_clone_is_unfitted_and_has_the_parameters(case):
    features = case.features.fit(case.inputs())
    copied = clone(features)
    assert plain(copied.get_params()) == plain(features.get_params())
    assert repr(copied) == repr(features)
    assert type(features).__name__ in repr(features)
    with pytest.raises(NotFittedError):
        check_is_fitted(copied)
    check_is_fitted(features)


def test_fit_changes_no_parameter_and_returns_the_features(case):
    before = plain(case.features.get_params())
    assert case.features.fit(case.inputs(), y=make_costs()) is case.features
    assert plain(case.features.get_params()) == before


def test_unfitted_features_raise_not_fitted_error(case):
    one = case.inputs(1)
    for use in (
        lambda: case.features.transform(one),
        lambda: case.features.transform_one(one[0]),
        case.features.get_feature_names_out,
        case.features.state,
    ):
        with pytest.raises(NotFittedError):
            use()
    assert not hasattr(case.features, "n_features_") or case.features.n_features_ == 0


def test_an_unknown_parameter_is_refused(case):
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        case.features.set_params(nonsense=3)


def test_a_second_fit_equals_the_first(case):
    first, second = case.inputs(40, seed=5), case.inputs(60)
    fresh = clone(case.features).fit(second).transform(second)
    np.testing.assert_array_equal(case.features.fit(first).fit(second).transform(second), fresh)


@pytest.mark.parametrize("duplicate", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
def test_copies_give_the_same_rows(case, duplicate):
    inputs = case.inputs()
    features = case.features.fit(inputs)
    rows = features.transform(inputs)
    np.testing.assert_array_equal(duplicate(features).transform(inputs), rows)


def test_fit_and_transform_in_one_step_agree_with_two(case):
    inputs = case.inputs()
    apart = clone(case.features).fit(inputs).transform(inputs)
    np.testing.assert_array_equal(case.features.fit_transform(iter(inputs), make_costs()), apart)


def test_transform_returns_a_frame_if_asked(case):
    inputs = case.inputs()
    features = case.features.fit(inputs)
    rows, names = features.transform(inputs), features.get_feature_names_out().tolist()
    assert len(set(names)) == len(names) == features.n_features_
    index = range(7, 67)
    frame = features.set_output(transform="pandas").transform(pd.Series(inputs, index=index))
    assert (frame.columns.tolist(), frame.index.tolist()) == (names, list(index))
    np.testing.assert_array_equal(frame.to_numpy(), rows)
    assert isinstance(clone(features).fit_transform(inputs), pd.DataFrame)
    features.set_output(transform="default")
    assert isinstance(features.transform(inputs), np.ndarray)


def test_the_global_output_applies_to_transform_only(texts):
    features = HashingFeatures(n_components=2)
    with sklearn.config_context(transform_output="polars"):
        assert isinstance(features.fit_transform(texts), pl.DataFrame)
        assert isinstance(features.vectorize(texts), np.ndarray)


def test_scikit_learn_tags_describe_the_input(case):
    tags = get_tags(case.features)
    assert tags.input_tags.string == (case.kind != "vectors")
    assert tags.transformer_tags is not None
    assert not tags.target_tags.required
    if case.kind == "vectors":
        assert case.features.fit(case.inputs()).n_features_in_ == 5


def test_every_kind_works_in_a_pipeline(case):
    inputs, costs = case.inputs(), make_costs()
    pipeline = make_pipeline(case.features, StandardScaler(), LinearRouter())
    scores = cross_val_score(pipeline, inputs, costs, cv=2, error_score="raise")
    assert np.isfinite(scores).all()
    pipeline.fit(inputs, costs)
    fresh = clone(case.features).fit(inputs)
    X = StandardScaler().fit_transform(fresh.transform(inputs))
    router = LinearRouter().fit(X, costs)
    np.testing.assert_allclose(pipeline.predict_proba(inputs), router.predict_proba(X), rtol=1e-5)
    assert pipeline.score(inputs, costs) == pytest.approx(router.score(X, costs))
    assert type(case.features).__name__ in pipeline._repr_html_()


COLUMNS = {
    "list": list,
    "objects": lambda texts: np.array(texts, object),
    "strings": np.array,
    "pandas": pd.Series,
    "polars": pl.Series,
    "pyarrow": pa.array,
    "chunked": lambda texts: pa.chunked_array([texts[:20], texts[20:]]),
}


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
def test_every_column_of_texts_works_in_model_selection(make, texts):
    given, costs = texts[:60], make_costs()
    column = make(given)
    pipeline = make_pipeline(HashingFeatures(n_components=4), LinearRouter())
    wanted = clone(pipeline).fit(given, costs)
    np.testing.assert_array_equal(
        pipeline.fit(column, costs).predict(column), wanted.predict(given)
    )
    options = {"cv": 2, "method": "predict_proba", "params": {"y": costs}}
    held_out = cross_val_predict(pipeline, column, **options)
    np.testing.assert_allclose(held_out, cross_val_predict(pipeline, given, **options))
    scores = cross_val_score(pipeline, column, costs, cv=2, error_score="raise")
    np.testing.assert_allclose(scores, cross_val_score(pipeline, given, costs, cv=2))


@pytest.mark.parametrize(
    "router",
    [
        RouterCV(alphas=[0.1], margin_factors=[1.0], cv=2),
        RidgeRouter(),
        KNNRouter(n_neighbors=5),
    ],
    ids=lambda router: type(router).__name__,
)
def test_parameters_of_features_are_searched_with_those_of_a_router(texts, router):
    given, costs = pd.Series(texts[:60]), make_costs()
    pipeline = make_pipeline(HashingFeatures(), router)
    grid = {"hashingfeatures__n_components": np.array([2, 5])}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(given, costs)
    best = int(search.best_params_["hashingfeatures__n_components"])
    alone = clone(pipeline).set_params(hashingfeatures__n_components=best).fit(given, costs)
    np.testing.assert_array_equal(search.predict(given), alone.predict(given))
    assert search.best_estimator_[0].n_features_ == best + 9


def test_metadata_is_routed_past_the_features(texts):
    given, costs, weight = texts[:60], make_costs(), np.arange(60.0)
    with sklearn.config_context(enable_metadata_routing=True):
        router = LinearRouter().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(HashingFeatures(n_components=4), router)
        pipeline.fit(given, costs, sample_weight=weight)
    X = HashingFeatures(n_components=4).fit_transform(given)
    wanted = LinearRouter().fit(X, costs, weight).predict_proba(X)
    np.testing.assert_allclose(pipeline.predict_proba(given), wanted, rtol=1e-5)


def test_texts_and_numbers_of_a_frame_are_used_together(texts):
    frame = pd.DataFrame({"query": texts, "length": [len(text) for text in texts]})
    columns = ColumnTransformer(
        [
            ("text", HashingFeatures(n_components=3), "query"),
            ("numbers", StandardScaler(), ["length"]),
        ]
    ).set_output(transform="pandas")
    rows = columns.fit_transform(frame)
    assert rows.shape == (300, 13)
    assert rows.columns[[0, -1]].tolist() == ["text__hashing0", "numbers__length"]
    both = FeatureUnion([("a", HashingFeatures(n_components=2)), ("b", HashingFeatures())]).fit(
        texts
    )
    assert both.get_feature_names_out()[0] == "a__hashing0"

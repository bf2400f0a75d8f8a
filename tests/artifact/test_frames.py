"""Results come back as frames of the library that the user brought."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mild.data import as_frame, frame_library
from mild.errors import InvalidInputError
from mild.routers import RouterCV
from small_router_cases import priced_router, scored_router

LIBRARIES = ("pandas", "polars", "pyarrow")
TEXTS = ["one", "two", "three"]


def column_of(library, values):
    module = pytest.importorskip(library)
    if library == "pandas":
        return module.Series(values, index=[7, 5, 3])
    return module.array(values) if library == "pyarrow" else module.Series(values)


def columns_of(frame):
    """The columns of a frame of any library."""
    if hasattr(frame, "to_pydict"):
        return frame.to_pydict()
    return frame.to_dict("list") if hasattr(frame, "iloc") else frame.to_dict(as_series=False)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_column_of_texts_is_routed_to_a_frame_of_its_kind(library):
    router = priced_router()
    frame = router.route_table(column_of(library, TEXTS))
    assert type(frame).__module__.startswith(library)
    assert columns_of(frame) == router.route_table(TEXTS)
    if library == "pandas":
        assert frame.index.tolist() == [7, 5, 3]


def test_a_list_of_texts_is_routed_to_columns():
    router = priced_router()
    found = router.route_table(TEXTS)
    decisions = router.decide(router.features(TEXTS))
    assert found["expert"] == router.route(TEXTS)
    np.testing.assert_allclose(found["p__large"], decisions.probabilities[:, 1])
    np.testing.assert_allclose(found["expected_cost__small"], decisions.costs[:, 0])
    assert not any(name.startswith("expected") for name in scored_router().route_table(TEXTS))


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_results_of_a_search_become_a_frame(library):
    rng = np.random.default_rng(0)
    X, costs = rng.normal(size=(60, 2)), rng.random((60, 2))
    search = RouterCV(families=["linear", "knn"], cv=2).fit(X, costs)
    frame = as_frame(search.cv_results_, like=column_of(library, TEXTS))
    found = columns_of(frame)
    assert found["mean_cost"] == search.cv_results_["mean_cost"]
    first = search.cv_results_["params"][0]
    assert json.loads(found["params"][0]) == first | {"margins": list(first["margins"])}


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_become_a_frame_with_missing_entries(library):
    rows = [{"name": "a", "shares": [0.5, 0.5]}, {"name": "b", "shares": [1.0, 0.0], "more": "x"}]
    found = columns_of(as_frame(rows, like=column_of(library, TEXTS)))
    assert found["name"] == ["a", "b"]
    assert [list(shares) for shares in found["shares"]] == [[0.5, 0.5], [1.0, 0.0]]
    assert found["more"][1] == "x"
    assert found["more"][0] is None or found["more"][0] != found["more"][0]


@pytest.mark.parametrize("library", LIBRARIES)
def test_integers_beside_floats_are_floats_and_numbers_of_numpy_stay_numbers(library):
    params = {"k": np.int64(3), "safe": np.bool_(True), "alphas": np.array([0.5])}
    rows = [
        {"a": 1, "b": np.int64(1), "c": [1], "params": params},
        {"a": 2.5, "b": 2.5, "c": [2.5]},
    ]
    found = columns_of(as_frame(rows, like=column_of(library, TEXTS)))
    assert found["a"] == found["b"] == [1.0, 2.5]
    assert [list(values) for values in found["c"]] == [[1.0], [2.5]]
    assert json.loads(found["params"][0]) == {"k": 3, "safe": True, "alphas": [0.5]}


@pytest.mark.parametrize("kind", ["Index", "array"])
def test_texts_of_pandas_without_an_index_are_routed_to_a_frame(kind):
    pandas = pytest.importorskip("pandas")
    router = priced_router()
    frame = router.route_table(getattr(pandas, kind)(TEXTS))
    assert frame.to_dict("list") == router.route_table(TEXTS)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_column_of_any_library_is_routed_to_names(library):
    router = priced_router()
    column = column_of(library, TEXTS)
    assert router.route(column) == router.route(TEXTS)
    np.testing.assert_array_equal(router.predict_texts(column), router.predict_texts(TEXTS))
    np.testing.assert_array_equal(router.features(column), router.features(TEXTS))


@pytest.mark.parametrize("method", ["route", "predict_texts", "route_table", "features"])
def test_a_table_is_not_a_column_of_texts(method):
    table = {"query": TEXTS}
    with pytest.raises(InvalidInputError) as refused:
        getattr(priced_router(), method)(table)
    assert refused.value.code == "invalid_texts"


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_frames_of_the_first_frame_that_was_given(library):
    column = column_of(library, TEXTS)
    assert frame_library(None, "log.csv", column, column_of("pyarrow", TEXTS)) == library


def test_results_about_files_are_frames_of_pandas_if_it_is_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert frame_library("log.csv") == frame_library() == "pandas"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert frame_library("log.csv") == "pyarrow"

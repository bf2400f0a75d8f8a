"""Wrong arguments of the public functions: an error of mild with its code, and nothing is written."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import mild
from mild.data import Outcomes
from mild.datasets import load_outcomes
from mild.errors import InvalidInputError, MildError

X = np.random.default_rng(0).normal(size=(60, 2))
COSTS = np.stack([X[:, 0] > 0, X[:, 0] < 0], axis=1).astype(float)
NUMBERS = Outcomes.from_arrays(X, COSTS, experts=["a", "b"])
LINEAR = {"search": mild.RouterCV(families="linear", alphas=[0.01], cv=3, n_jobs=1)}
METHODS = {"methods": "tdef", "n_splits": 2, "n_jobs": 1}


@pytest.fixture(scope="module")
def table():
    return load_outcomes()[range(90)]


@pytest.fixture(scope="module")
def router(table):
    return mild.fit(table, price_weight=50)


@pytest.fixture(scope="module")
def numbers():
    return mild.fit(NUMBERS)


def code_of(call, *arguments, **options):
    with pytest.raises(MildError) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value.code


@pytest.mark.parametrize("what", ["query", "experts", "scores", "prices", "vectors", "where"])
def test_columns_are_named_by_texts(what):
    frame = pa.table({"prompt": ["a", "b"], "correct__x": [0, 1], "correct__y": [1, 0]})
    assert code_of(mild.read_outcomes, frame, **{what: 3}) == f"invalid_{what}"


def test_a_source_must_be_known():
    assert code_of(mild.read_outcomes, []) == "invalid_source"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"test_size": "a"}, "test_size"),
        ({"test_size": 1}, "test_size"),
        ({"groups": 3}, "groups"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": None}, "random_state"),
    ],
)
def test_a_split_refuses(table, options, code):
    assert code_of(table.split, **options) == f"invalid_{code}"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"router": 3}, "router"),
        ({"router": mild.LinearRouter}, "router"),
        ({"text": 3}, "text"),
        ({"random_state": "a"}, "random_state"),
        ({"los": "tdef"}, "los"),
    ],
)
def test_fit_refuses(table, options, code):
    assert code_of(mild.fit, table, **options) == f"invalid_{code}"


@pytest.mark.parametrize("cv", ["a", 2.5])
def test_tune_takes_a_number_of_folds(table, cv):
    assert code_of(mild.tune, table, search=mild.RouterCV(cv=cv)) == "invalid_cv"


@pytest.mark.parametrize("call", [mild.fit, mild.tune])
def test_a_misspelled_argument_is_recognised(table, call):
    with pytest.raises(MildError, match="Did you mean 'price_weight'"):
        call(table, price_wieght=50)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"methods": 3}, "methods"),
        ({"n_splits": 0}, "n_splits"),
        ({"test_size": "a"}, "test_size"),
        ({"search": mild.RouterCV()}, "search"),
        ({"random_state": "a"}, "random_state"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_compare_refuses(table, options, code):
    assert code_of(mild.compare, table, **METHODS | options) == f"invalid_{code}"


@pytest.mark.parametrize(
    ("data", "code"),
    [(["a"] * 60, "X"), (X[:, 0], "X"), (X * np.nan, "X")],
    ids=["texts", "1d", "nan"],
)
def test_features_with_costs_are_finite_numbers(data, code):
    assert code_of(Outcomes.from_arrays, data, COSTS) == f"invalid_{code}"


def test_evaluate_refuses(table, router):
    assert code_of(mild.evaluate, router, table, confidence="a") == "invalid_confidence"
    assert code_of(mild.evaluate, router, table, random_state="a") == "invalid_random_state"


def test_a_router_refuses(router, tmp_path):
    assert code_of(router.route, None) == code_of(router.route, 3) == "invalid_texts"
    assert code_of(router.without, None) == code_of(router.without, 1.5) == "invalid_expert"
    assert code_of(router.with_target, max_dolars=1) == "invalid_target"
    assert code_of(router.with_target, 1) == "invalid_target"
    assert code_of(router.save, None) == code_of(mild.load, None) == "invalid_folder"


@pytest.mark.parametrize(
    ("call", "name", "meant"),
    [
        (mild.read_outcomes, "qurey", "query"),
        (mild.compare, "n_splts", "n_splits"),
        (mild.evaluate, "confidnce", "confidence"),
        (mild.save, "overwrit", "overwrite"),
        (mild.Outcomes.split, "tset_size", "test_size"),
        (mild.Outcomes.costs, "price_wieght", "price_weight"),
        (mild.Outcomes.describe, "bta", "beta"),
    ],
)
def test_misspelled_arguments_are_recognised_everywhere(call, name, meant):
    with pytest.raises(MildError, match=f"Did you mean '{meant}'") as caught:
        call(**{name: 1})
    assert caught.value.code == f"invalid_{name}"


@pytest.mark.parametrize("call", [mild.read_outcomes, mild.compare, mild.evaluate])
def test_missing_arguments_have_a_code(call):
    assert code_of(call) == "invalid_arguments"


@pytest.mark.parametrize("rows", [[1000], [-1], [0.5], ["a"], [[0]], 3, None, [True, False]])
def test_rows_that_are_not_there_cannot_be_taken(table, rows):
    assert code_of(table.__getitem__, rows) == "invalid_rows"


def test_a_table_is_no_sequence_of_rows(table):
    with pytest.raises(TypeError):
        iter(table)


def test_rows_are_taken_by_number_by_mask_by_slice_and_not_at_all(table):
    assert table[[2, 0]].queries == [table.queries[2], table.queries[0]]
    assert len(table[np.arange(90) < 3]) == 3
    assert table[-2:].queries == table.queries[-2:]
    assert len(table[[]]) == 0


@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_a_report_needs_a_name(table, router, tmp_path):
    judged = mild.evaluate(router, table)
    assert code_of(judged.write_report, None) == "invalid_path"
    assert code_of(judged.write_report, tmp_path / "r.html", titel="x") == "invalid_titel"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plot", ["plot_frontier", "plot_calibration", "plot_shares"])
@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_a_plot_needs_axes(table, router, plot):
    pytest.importorskip("matplotlib")
    assert code_of(getattr(mild.evaluate(router, table), plot), ax=3) == "invalid_ax"


@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_a_frontier_needs_scores(numbers):
    pytest.importorskip("matplotlib")
    assert code_of(mild.evaluate(numbers, NUMBERS).plot_frontier) == "invalid_data"


@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_results_are_ready_for_json(table, router, numbers):
    found = mild.tune(table, **LINEAR)
    judged = mild.evaluate(router, table), mild.evaluate(numbers, NUMBERS)
    for result in (found, *judged, mild.compare(table, **METHODS), router, table.describe()):
        fields = result.as_dict()
        assert json.loads(json.dumps(fields, allow_nan=False)) == fields


def test_save_takes_what_read_outcomes_takes(table, router, tmp_path):
    folder = mild.save(router, tmp_path / "router", table=table.to_frame(), price_weight=50)
    assert mild.load(folder).experts == table.experts


def test_names_are_a_list(router, tmp_path):
    code = code_of(mild.save, router, tmp_path / "router", experts="abc")
    assert code == "invalid_experts"
    assert not list(tmp_path.iterdir())


def test_a_table_is_no_array():
    router = mild.LinearRouter().fit(X, COSTS)
    for action in (lambda: router.predict(NUMBERS), lambda: router.fit(X, NUMBERS)):
        with pytest.raises(InvalidInputError):
            action()

"""``mild.tune``, ``mild.fit`` and ``mild.save``: from a table to a router in memory."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mild
from mild.data import Outcomes
from mild.datasets import load_outcomes
from mild.errors import DegenerateDataWarning, InvalidInputError, MildWarning, OutputExistsError
from mild.features import EncoderFeatures, HashingFeatures
from mild.routers.cost_models import KNNRouter
from mild.tuning.fitting import make_text_features
from outcome_cases import EXPERTS, make_columns

SEARCH = mild.RouterCV(families="linear", alphas=[0.01], margin_factors=[1.0], cv=3)
FAST = {"search": SEARCH}
QUERIES = ["What is 17 * 23?", "What is the capital of France?"]


@pytest.fixture(scope="module")
def parts():
    return load_outcomes().split(test_size=0.3, random_state=0)


@pytest.fixture(scope="module")
def found(parts):
    return mild.tune(parts[0], price_weight=50, **FAST)


def test_the_router_that_was_found_is_the_one_that_is_loaded(found, parts, tmp_path):
    folder = found.router.save(tmp_path / "router")
    loaded = mild.load(folder)
    assert type(loaded) is type(found.router) is mild.Router
    queries = parts[1].queries
    assert loaded.route(queries) == found.router.route(queries)
    np.testing.assert_array_equal(
        loaded.predict(loaded.features(queries)), found.router.predict_texts(queries)
    )
    assert loaded.info.cost == found.router.info.cost
    assert loaded.info.table == found.router.info.table
    with pytest.raises(OutputExistsError):
        found.router.save(folder)


def test_the_result_says_what_was_found(found):
    assert found.verdict.pays is True
    assert found.decides_as == "linear"
    assert found.verdict.sentence in repr(found)
    assert found.verdict.sentence in found._repr_html_()
    frame = found.candidates
    assert isinstance(frame, pd.DataFrame)
    assert frame["mean_cost"].is_monotonic_increasing
    assert frame["taken"].sum() == 1
    content = json.loads(json.dumps(found.as_dict(), default=list))
    assert content["verdict"]["pays"] is True
    assert content["cost"]["price_weight"] == 50
    assert len(content["candidates"]) == len(frame)


def test_frames_come_back_as_the_kind_that_was_given():
    table = load_outcomes().to_frame()
    assert isinstance(table, pd.DataFrame)
    kinds = {pd.DataFrame: table, pl.DataFrame: pl.from_pandas(table), pa.Table: pa.table(table)}
    for kind, frame in kinds.items():
        outcomes = mild.read_outcomes(frame)
        assert isinstance(outcomes.to_frame(), kind)
        assert isinstance(outcomes.describe().to_frame(), kind)
        assert outcomes.fingerprint() == load_outcomes().fingerprint()
    assert isinstance(mild.tune(kinds[pl.DataFrame], **FAST).candidates, pl.DataFrame)


def test_a_target_decides_and_is_stated(parts):
    found = mild.tune(parts[0], max_dollars=1, **FAST)
    assert found.target is not None
    assert found.target.sentence in found.sentences
    assert found.router.info.target.target == {"max_dollars": 1}
    assert found.as_dict()["target"]["target"] == {"max_dollars": 1}


def test_a_guarantee_keeps_rows_for_calibration(parts):
    found = mild.tune(parts[0], max_quality_loss=0.2, guarantee=0.8, **FAST)
    assert found.target.certified
    assert any("kept for calibration" in note for note in found.notes)
    assert found.router.info.table.rows == len(parts[0])


def with_holes(table, what):
    """The table without any price (or latency) in two rows, and without one of them in another."""
    values = getattr(table, what).copy()
    values[[3, 17]] = np.nan
    values[5, 0] = np.nan
    return replace(table, **{what: values})


def test_a_row_without_a_price_counts_where_no_price_is_needed(parts):
    table = with_holes(parts[0][np.arange(240)], "prices")
    found = mild.tune(table, price_weight=0, **FAST)
    assert found.notes == ()
    assert found.router.info.table.rows == 240
    whole = mild.tune(parts[0][np.arange(240)], price_weight=0, **FAST)
    assert found.verdict.estimate == whole.verdict.estimate
    assert found.router.has_prices, "the heads are learned from the rows with prices"


@pytest.mark.parametrize(
    "options",
    [
        {"price_weight": 50},
        {"latency_weight": 0.1},
        {"keep_quality": 0.9},
        {"max_quality_loss": 0.1, "guarantee": 0.9},
    ],
    ids=str,
)
def test_rows_without_any_price_are_left_out_where_one_is_needed(parts, options):
    what = "latencies" if "latency_weight" in options else "prices"
    table = with_holes(parts[0][np.arange(240)], what)
    found = mild.tune(table, **options, **FAST)
    assert found.notes[0].startswith("2 rows without any")
    assert ("1 more answer" in found.notes[0]) == ("weight" in str(options))
    assert found.as_dict()["notes"] == list(found.notes)
    assert found.router.info.table.rows == 238


def test_every_function_leaves_out_rows_without_any_price(parts):
    table = with_holes(parts[0][np.arange(240)], "prices")
    for kind in ("linear", "priced", "knn", "ridge", "constant"):
        with pytest.warns(DegenerateDataWarning, match="2 rows without any price"):
            router = mild.fit(table, kind, price_weight=50)
        assert router.info.table.rows == 238
    judged = mild.evaluate(mild.fit(parts[1], price_weight=50), table)
    assert judged.notes[0].startswith("2 rows without any price")
    assert judged.as_dict()["rows"] == 238
    found = mild.compare(table, price_weight=50, methods=["mild"], n_splits=2)
    assert found.notes[0].startswith("2 rows without any price")
    assert found.n_rows == 238
    described = table.describe(price_weight=50).as_dict()
    finding = next(one for one in described["findings"] if one["kind"] == "unknown_losses")
    assert finding["count"] == 7
    assert described["compared"]["rows"] == 237
    assert described["rows"] == 240
    kept = table[np.setdiff1d(np.arange(240), [3, 5, 17])].describe(price_weight=50).as_dict()
    assert described["headroom"] == pytest.approx(kept["headroom"])


def test_a_table_without_anything_to_route_gives_the_constant():
    table = mild.read_outcomes(
        pa.table({"prompt": ["a", "b", "c"], "correct__x": [1, 1, 1], "correct__y": [0, 1, 0]})
    )
    found = mild.tune(table)
    assert found.routes_as_constant
    assert found.verdict.pays is False
    assert found.decides_as == "always x"
    assert found.router.route(["a"]) == ["x"]
    assert "nothing to route" in found.notes[0]
    assert found.as_dict()["verdict"]["constant"] == "x"


def test_numbers_are_tuned_with_their_names(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    costs = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0]).astype(float)
    names = {"experts": ["small", "large"], "feature_names": ["length", "age"]}
    table = Outcomes.from_arrays(X, costs, **names)
    found = mild.tune(table, search=mild.RouterCV(alphas=[0.01], cv=3))
    loaded = mild.load(found.router.save(tmp_path / "r"))
    assert loaded.experts == table.experts
    assert loaded.feature_names == ["length", "age"]
    assert loaded.text is None
    np.testing.assert_array_equal(loaded.predict(X), found.router.predict(X))
    assert found.as_dict()["cost"]["words"] == "given cost"
    assert found.verdict.constant in ("small", "large")
    for asked in ({"keep_quality": 0.9}, {"cascade": True}, {"beta": {"small": 0.1}}):
        with pytest.raises(InvalidInputError, match="needs a table with scores"):
            mild.tune(table, **asked)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_keep_their_type(dtype):
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(dtype)
    costs = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0]).astype(float)
    table = Outcomes.from_arrays(X, costs)
    assert table.vectors.dtype == dtype
    router = mild.fit(table, standardize=False)
    model = mild.LinearRouter(random_state=0, ties="mean").fit(X, costs)
    scores = router.decision_function(X)
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"price_weight": -1}, "invalid_price_weight"),
        ({"keep_quality": 95}, "invalid_keep_quality"),
        ({"guarantee": 0.9}, "invalid_guarantee"),
        ({"keep_quality": 0.9, "target_probability": 1}, "invalid_target_probability"),
        ({"search": mild.RouterCV(cv=1)}, "invalid_cv"),
        ({"search": mild.RouterCV(cv=KFold(3))}, "invalid_cv"),
        ({"search": mild.RouterCV(confidence=2)}, "invalid_confidence"),
        ({"search": mild.LinearRouter()}, "invalid_search"),
        ({"search": mild.RouterCV}, "invalid_search"),
        ({"random_state": -1}, "invalid_random_state"),
        ({"groups": "nowhere"}, "invalid_groups"),
        ({"search": mild.RouterCV(cv=2000)}, "invalid_cv"),
        ({"time": "nowhere"}, "invalid_time"),
        ({"price_weight": "50"}, "invalid_price_weight"),
        ({"keep_quality": 0.9, "price_weight": 50}, "invalid_price_weight"),
        ({"max_dollars": 2, "beta": {"rules": 0.1}}, "invalid_beta"),
        ({"max_quality_loss": 0.1, "latency_weight": 2}, "invalid_latency_weight"),
        ({"text": "hash"}, "invalid_text"),
        ({"neighbours": 3}, "invalid_neighbours"),
    ],
)  # fmt: skip
def test_bad_arguments_have_codes(parts, options, code):
    with pytest.raises(mild.errors.MildError) as error:
        mild.tune(parts[0], **FAST | options)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"price_weight": "50"}, "price_weight must be a number; got '50'."),
        (
            {"search": mild.RouterCV(cv=2000)},
            "cv must be at most the number of different queries, 1,050; got 2,000 folds.",
        ),
        (
            {"groups": "sorce"},
            "groups must be the name of a column; there is no column 'sorce'. "
            "Found options, source, grade. Did you mean 'source'?",
        ),
        (
            {"keep_quality": 0.9, "price_weight": 50},
            "price_weight must not be given together with a target; got keep_quality 0.9 as well. "
            "A target is met by errors and dollars alone: give the target, or the terms of the cost.",
        ),
    ],
)
def test_bad_arguments_are_explained(parts, options, sentence):
    with pytest.raises(mild.errors.MildError) as error:
        mild.tune(parts[0], **FAST | options)
    assert str(error.value) == sentence


def test_progress_is_reported(parts):
    calls = []
    mild.tune(parts[0], progress=lambda *call: calls.append(call), **FAST)
    assert calls[-1][0] == calls[-1][1]


def test_one_router_is_fitted_by_name_or_as_an_object(parts):
    train, test = parts
    by_name = mild.fit(train, "knn", n_neighbors=7)
    as_object = mild.fit(train, KNNRouter(n_neighbors=7))
    assert by_name.route(test.queries[:50]) == as_object.route(test.queries[:50])
    tdef = mild.fit(train, loss="tdef", text=HashingFeatures(n_components=8))
    assert tdef.n_features == 17
    assert tdef.info.estimator.params["loss"] == "tdef"
    with pytest.raises(InvalidInputError) as error:
        mild.fit(train, "knn", alpha=1)
    assert error.value.code == "invalid_alpha"
    with pytest.raises(InvalidInputError):
        mild.fit(train, KNNRouter(), alpha=1)


def test_a_pipeline_is_saved_with_what_the_table_says(parts, tmp_path):
    train, test = parts
    pipeline = make_pipeline(
        HashingFeatures(n_components=16), StandardScaler(), mild.RouterCV(cv=3)
    )
    costs = pd.DataFrame(train.costs(price_weight=50), columns=list(train.experts))
    pipeline.fit(train.queries, costs)
    folder = mild.save(pipeline, tmp_path / "r", table=train, price_weight=50)
    loaded = mild.load(folder)
    assert loaded.experts == train.experts
    assert loaded.predict_texts(test.queries).tolist() == pipeline.predict(test.queries).tolist()
    assert loaded.info.cost.price_weight == 50
    assert loaded.info.table.fingerprint == train.fingerprint()
    judged = mild.evaluate(loaded, test)
    assert judged.overlap == {
        "same_data_as_fit": False, "seen_in_fit": {"queries": 0, "checked": len(test)}
    }  # fmt: skip
    with pytest.warns(MildWarning, match="optimistic"):
        mild.evaluate(loaded, train)
    assert (
        judged.verdict.estimate == mild.evaluate(pipeline, test, price_weight=50).verdict.estimate
    )


def test_a_table_that_does_not_fit_the_router_is_refused(parts, tmp_path):
    train, _ = parts
    two = train.select(["smollm2", "rules"])
    pipeline = make_pipeline(HashingFeatures(n_components=16), mild.LinearRouter())
    pipeline.fit(two.queries, two.costs())
    with pytest.raises(InvalidInputError, match="2 experts"):
        mild.save(pipeline, tmp_path / "r", table=train)
    with pytest.raises(InvalidInputError, match="price_weight"):
        mild.save(pipeline, tmp_path / "r", price_weight=50)
    numbers = mild.LinearRouter().fit(np.eye(3), np.eye(3))
    with pytest.raises(InvalidInputError, match="fitted on numbers"):
        mild.save(numbers, tmp_path / "r", table=train)
    assert not (tmp_path / "r").exists()


def table_of(columns):
    return mild.read_outcomes(pa.table(columns))


def test_by_default_every_kind_of_router_is_tried():
    found = mild.tune(
        table_of(make_columns(150)),
        search=mild.RouterCV(cv=3, alphas=[0.01], margin_factors=[1.0]),
    )
    tried = {row["family"] for row in found.rows}
    assert {"linear", "ridge", "knn", "stack"} <= tried


def test_the_search_says_what_is_tried_and_is_left_as_it_was(parts):
    linear = mild.LinearRouter(loss="tdef")
    search = mild.RouterCV(linear, families="linear", alphas=[0.01, 0.1], cv=3, confidence=0.8)
    given = search.get_params()
    calls = []
    table = parts[0][np.arange(200)]
    goal = {"price_weight": 0, "search": search, "random_state": 3}
    found = mild.tune(table, **goal, progress=lambda *call: calls.append(call))
    assert search.get_params() == given
    assert not hasattr(search, "policy_")
    assert found.n_folds == 3
    assert found.verdict.confidence == 0.8
    assert calls
    params = found.router.info.estimator.params
    assert params["estimator"]["params"]["loss"] == "tdef"
    assert params["random_state"] == 3
    again = mild.tune(table, **goal)
    assert again.as_dict() == found.as_dict()


def test_further_candidates_of_a_search_are_tried_and_saved(parts, tmp_path):
    train, test = parts
    search = mild.RouterCV(families="stack", candidates=[KNNRouter(n_neighbors=5)], cv=2)
    found = mild.tune(train[np.arange(200)], price_weight=0, search=search)
    assert [row["family"] for row in found.rows] == ["knnrouter"]
    loaded = mild.load(found.router.save(tmp_path / "router"))
    assert loaded.route(test.queries[:20]) == found.router.route(test.queries[:20])


def test_groups_times_and_equal_queries_count_as_what_they_are():
    table = table_of(make_columns(150))
    by_group = mild.tune(table, groups="subject", **FAST).verdict
    assert (by_group.n_rows, by_group.n_groups) == (150, 6)
    assert mild.tune(table, time="day", **FAST).verdict.n_rows < 150
    repeated = {name: list(values) * 3 for name, values in make_columns(50).items()}
    found = mild.tune(table_of(repeated), **FAST).verdict
    assert (found.n_rows, found.n_groups) == (150, 50)


@pytest.mark.parametrize(
    "options", [{"price_weight": 0}, {"price_weight": 0.1}, {"max_dollars": 1.0}]
)
@pytest.mark.parametrize("family", ["ridge", "knn"])
def test_a_tuned_router_explains_its_choices_and_takes_other_prices(family, options):
    table = table_of(make_columns(160, noise=0.05, prices=True))
    router = mild.tune(table, search=mild.RouterCV(families=family, cv=2), **options).router
    for one in (router, router.with_prices(price_weight=3.0)):
        for query in (table.queries[0], "zzz qqq"):
            found = one.explain(query)
            assert set(found.expected_costs) == set(EXPERTS)
            assert all(0 <= share <= 1 for share in (found.right or {}).values())
    dear = router.with_prices(price_weight=1e9)
    assert set(dear.route(table.queries)) == {"adder"}


def test_where_one_expert_is_always_right_a_target_still_saves_dollars():
    columns = make_columns(80, noise=0.0, prices=True) | {"correct__cook": np.ones(80, int)}
    found = mild.tune(table_of(columns), keep_quality=0.8, **FAST)
    assert found.verdict.target.dollars_saved.estimate > 0


def test_a_verdict_is_in_dollars_where_every_expert_has_a_price():
    columns = make_columns(150, prices=True)
    assert (
        0
        < abs(
            mild.tune(table_of(columns), price_weight=0, **FAST).as_dict()["verdict"][
                "dollars_per_1000"
            ]
        )
        < 2
    )
    del columns["cost__cook"]
    found = mild.tune(table_of(columns), **FAST)
    assert found.as_dict()["verdict"]["dollars_per_1000"] is None
    with pytest.raises(InvalidInputError) as error:
        mild.tune(table_of(make_columns(40)), max_dollars=0.5, **FAST)
    assert error.value.parameter == "max_dollars"


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("run", [mild.tune, mild.compare])
def test_too_few_rows_are_refused(run, rows):
    columns = {"prompt": ["a b", "c d"], "correct__x": [0, 1], "correct__y": [1, 0]}
    with pytest.raises(InvalidInputError) as error:
        run(table_of({name: values[:rows] for name, values in columns.items()}))
    assert error.value.code == "invalid_table"


def test_where_there_is_nothing_to_route_one_router_is_the_constant_too():
    columns = make_columns(40) | {f"correct__{name}": [1] * 40 for name in EXPERTS}
    assert mild.fit(table_of(columns)).policy.kind == "constant"


def test_a_router_that_learns_prices_needs_a_table_of_outcomes():
    with pytest.raises(InvalidInputError) as error:
        mild.fit(Outcomes.from_arrays(np.eye(3), np.eye(3)), "priced")
    assert error.value.code == "invalid_router"


def test_routers_and_features_that_are_given_stay_as_they_are():
    table = load_outcomes()[np.arange(100)]
    router, features = mild.LinearRouter(), HashingFeatures(n_components=8)
    assert mild.fit(table, router, text=features).n_features == 17
    assert not hasattr(router, "policy_")
    assert not hasattr(features, "n_features_")
    assert make_text_features(table, EncoderFeatures(progress=print)).progress is print

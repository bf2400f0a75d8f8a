"""Settings, scenarios, methods, and a whole run."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

import experiments.digits.run as run
from experiments.digits.figures import radial_features
from experiments.digits.run import (
    METHODS,
    REGION_CASE,
    DigitsSettings,
    run_cells,
    run_digits,
    run_methods,
    scenarios,
)
from mild.core.costs import cheapest
from mild.core.margins import expert_mass, theory_margins
from mild.datasets import digits_scenario, regions
from mild.errors import ConvergenceWarning, InvalidInputError, OptionError
from mild.metrics import best_constant, deferral_loss, oracle_loss
from mild.routers.linear import LinearRouter


def test_changes_come_in_the_usual_order_and_once():
    changed = DigitsSettings().changed(setups=["severe", "I", "I"], costs=["error"], seeds=2)
    assert changed == DigitsSettings(setups=("I", "severe"), costs=("error",), seeds=2)
    assert DigitsSettings().changed(setups=[], experts=None) == DigitsSettings()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"seeds": 0}, "invalid_seeds"),
        ({"jobs": 0}, "invalid_jobs"),
        ({"experts": ("human",)}, "invalid_experts"),
        ({"costs": ()}, "invalid_costs"),
    ],
)
def test_bad_settings_are_refused(fields, code):
    with pytest.raises(InvalidInputError) as caught:
        DigitsSettings(**fields)
    assert caught.value.code == code


def test_unknown_names_are_refused():
    with pytest.raises(OptionError, match="Did you mean 'severe'"):
        DigitsSettings().changed(setups=["sever"])


def test_every_scenario_and_seed_is_there_and_the_longest_come_first():
    todo = scenarios(DigitsSettings(seeds=3))
    assert len(todo) == len(set(todo)) == 4 * 2 * 3 + 3
    assert todo[0][0] == "III"
    assert [setup for setup, _, _ in todo[-3:]] == [REGION_CASE] * 3


def test_one_scenario_serves_both_cost_types_on_the_same_rows(small_settings):
    error, priced = run_cells(("severe", "synthetic", 1), small_settings)
    assert (error.cost, priced.cost) == ("error", "error+coverage")
    assert np.array_equal(error.result.groups, priced.result.groups)
    assert np.allclose(priced.result.costs - error.result.costs, [0.9, 0.1])


def test_region_rows_of_different_seeds_are_different_rows(small_settings, monkeypatch):
    monkeypatch.setattr(run, "run_methods", lambda *_: {})
    cells = [run_cells((REGION_CASE, "by region", s), small_settings)[0] for s in (0, 1)]
    rows = [cell.result.groups for cell in cells]
    assert not set(rows[0]) & set(rows[1])


def test_warnings_of_training_are_kept_in_the_cell(small_settings, monkeypatch):
    def warn(*_):
        warnings.warn("stopped early", ConvergenceWarning, stacklevel=1)
        return {}

    monkeypatch.setattr(run, "run_methods", warn)
    assert run_cells(("severe", "synthetic", 0), small_settings)[0].warned == ("stopped early",)


def test_radial_features_approximate_the_kernel():
    X = np.random.default_rng(0).random((60, 2))
    features = radial_features(X, gamma=2.0, n_components=60).transform(X)
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    assert features @ features.T == pytest.approx(np.exp(-2.0 * distance), abs=1e-6)


@pytest.fixture(scope="module")
def scenario():
    return digits_scenario("I", random_state=0)


@pytest.fixture(scope="module")
def routed(scenario, small_settings):
    return run_methods(
        scenario.train, scenario.test, small_settings, 1.0 + scenario.train.betas.max()
    )


def test_every_method_of_the_table_decides_for_every_row(scenario, routed):
    assert list(routed) == [key for key, *_ in METHODS if key != "label"]
    for routing in routed.values():
        assert routing.chosen.shape == (len(scenario.test.X),)
    assert routed["knn"].search_params == {"n_neighbors": 5}
    assert all(
        type(value) is float for value in routed["mild_tuned_stationary"].search_params["margins"]
    )


def test_oracle_and_constant_are_the_yardsticks(scenario, routed):
    costs = scenario.test.costs
    assert deferral_loss(costs, routed["oracle"].chosen) == pytest.approx(oracle_loss(costs))
    assert set(routed["constant"].chosen) == {best_constant(scenario.train.costs).expert}


@pytest.mark.parametrize(
    ("key", "router"),
    [
        ("tdef", LinearRouter("tdef", alpha=1e-4, cost_scale=1.0)),
        ("mild_theory_argmax", LinearRouter("mild", counts="best", alpha=1e-4, decision="argmax")),
    ],
)
def test_a_linear_method_is_the_router_that_its_row_says(scenario, routed, key, router):
    router.fit(scenario.train.X, scenario.train.costs)
    assert np.array_equal(routed[key].chosen, router.predict(scenario.test.X))


def test_theory_margins_come_from_best_counts_and_the_rules_differ(scenario, routed):
    mass = expert_mass(scenario.train.costs, counts="best")
    argmax, stationary = routed["mild_theory_argmax"], routed["mild_theory_stationary"]
    for one in (argmax, stationary):
        assert one.search_params["margins"] == pytest.approx(theory_margins(mass))
    assert not np.array_equal(argmax.chosen, stationary.chosen)


def test_label_row_asks_the_cheapest_expert_of_each_class(small_settings):
    train, test = regions(400, random_state=0).halves()
    routed = run_methods(train, test, small_settings, 1.0, by_label=True)
    means = np.array([train.costs[train.labels == y].mean(axis=0) for y in range(4)])
    assert np.array_equal(routed["label"].chosen, cheapest(means)[test.labels])


def test_there_is_one_block_per_scenario_in_order(small_results):
    document = small_results.document
    found = [(block["setup"], block["experts"], block["cost"]) for block in document["blocks"]]
    assert found == [
        ("III", "synthetic", "error"),
        ("III", "synthetic", "error+coverage"),
        ("severe", "synthetic", "error"),
        ("severe", "synthetic", "error+coverage"),
    ]
    assert document["region_case"]["setup"] == "regions"


def test_nothing_beats_the_oracle_and_routing_beats_the_constant(small_results, row_of):
    document = small_results.document
    for block in (*document["blocks"], document["region_case"]):
        oracle = row_of(block, "oracle")["mean"]
        assert all(row["mean"] >= oracle for row in block["rows"])
        assert row_of(block, "mild_tuned_stationary")["mean"] < row_of(block, "constant")["mean"]


def test_argmax_with_unequal_margins_fails_where_stationary_does_not(small_results, row_of):
    block = small_results.document["blocks"][0]
    assert row_of(block, "mild_theory_argmax")["mean"] > 0.4
    assert row_of(block, "mild_theory_stationary")["mean"] < 0.1


def test_labels_say_nothing_in_the_region_case_and_inputs_much(small_results, row_of):
    block = small_results.document["region_case"]
    label, constant = (row_of(block, key)["mean"] for key in ("label", "constant"))
    assert label == pytest.approx(constant, abs=0.03)
    assert row_of(block, "mild_tuned_stationary")["mean"] < 0.5 * label


def test_progress_ends_with_all_and_numbers_do_not_depend_on_the_number_of_jobs():
    steps = []
    settings = DigitsSettings(
        setups=("severe",),
        experts=("synthetic",),
        costs=("error",),
        seeds=1,
        alphas=(1e-4,),
        margin_factors=(1.0,),
        neighbours=(5,),
        folds=2,
        region_samples=200,
        tail_draws=2,
        jobs=1,
    )
    alone = run_digits(settings, lambda done, total, text: steps.append((done, total)))
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]
    together = run_digits(dataclasses.replace(settings, jobs=2))
    pairs = zip(alone.document["blocks"], together.document["blocks"], strict=True)
    for first, second in pairs:
        for row, other in zip(first["rows"], second["rows"], strict=True):
            assert {**row, "seconds": 0} == {**other, "seconds": 0}
    assert alone.document["long_tail"] == together.document["long_tail"]

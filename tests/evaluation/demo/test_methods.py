"""The methods: all there, fitted as their rows say."""

from __future__ import annotations

import numpy as np
import pytest

from mild.core.costs import cheapest
from mild.core.margins import expert_mass, theory_margins
from mild.data.datasets import digits_scenario, regions
from mild.evaluation.demo.run import METHODS, run_methods
from mild.metrics import best_constant, deferral_loss, oracle_loss
from mild.routers.linear import LinearRouter


@pytest.fixture(scope="module")
def scenario():
    return digits_scenario("I", random_state=0)


@pytest.fixture(scope="module")
def routed(scenario, small_settings):
    return run_methods(scenario.train, scenario.test, small_settings, scenario.largest_cost)


@pytest.mark.no_cover
def test_every_method_of_the_table_decides_for_every_row(scenario, routed):
    assert list(routed) == [key for key, *_ in METHODS if key != "label"]
    for routing in routed.values():
        assert routing.chosen.shape == (len(scenario.test.X),)


def test_oracle_and_constant_are_the_yardsticks(scenario, routed):
    costs = scenario.test.costs
    assert deferral_loss(costs, routed["oracle"].chosen) == pytest.approx(oracle_loss(costs))
    expert = best_constant(scenario.train.costs).expert
    assert set(routed["constant"].chosen) == {expert}


def test_tdef_is_the_linear_router_with_the_problem_s_cost_scale(scenario, routed):
    router = LinearRouter("tdef", alpha=1e-4, cost_scale=1.0)
    router.fit(scenario.train.X, scenario.train.costs)
    assert np.array_equal(routed["tdef"].chosen, router.predict(scenario.test.X))


def test_theory_margins_come_from_best_counts(scenario, routed):
    mass = expert_mass(scenario.train.costs, counts="best")
    for key in ("mild_theory_argmax", "mild_theory_stationary"):
        assert routed[key].found["margins"] == pytest.approx(theory_margins(mass))


def test_argmax_and_stationary_differ_with_theory_margins_only_in_the_decision(scenario, routed):
    router = LinearRouter("mild", counts="best", alpha=1e-4, decision="argmax")
    router.fit(scenario.train.X, scenario.train.costs)
    assert np.array_equal(routed["mild_theory_argmax"].chosen, router.predict(scenario.test.X))
    assert not np.array_equal(
        routed["mild_theory_argmax"].chosen, routed["mild_theory_stationary"].chosen
    )


def test_label_row_asks_the_cheapest_expert_of_each_class(small_settings):
    train, test = regions(400, random_state=0).halves()
    routed = run_methods(train, test, small_settings, 1.0, by_label=True)
    means = np.array([train.costs[train.labels == y].mean(axis=0) for y in range(4)])
    assert np.array_equal(routed["label"].chosen, cheapest(means)[test.labels])


def test_searched_values_are_plain_numbers(routed):
    assert routed["knn"].found == {"n_neighbors": 5}
    assert all(type(value) is float for value in routed["mild_tuned_stationary"].found["margins"])

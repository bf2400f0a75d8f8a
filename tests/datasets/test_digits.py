"""The digits scenarios: who knows what, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest

from mild.datasets import SETUPS, digits_scenario
from mild.errors import InvalidInputError


def owners(setup: str) -> np.ndarray:
    return np.repeat(np.arange(len(SETUPS[setup])), SETUPS[setup])


@pytest.mark.parametrize("setup", SETUPS)
def test_synthetic_experts_are_always_right_on_their_classes(setup):
    data = digits_scenario(setup, "synthetic", random_state=3).test
    assert (data.n_experts, sum(SETUPS[setup])) == (len(SETUPS[setup]), 10)
    owner = owners(setup)[data.labels]
    assert (data.predictions[np.arange(len(owner)), owner] == data.labels).all()


@pytest.mark.parametrize("setup", ["I", "severe"])
def test_synthetic_experts_guess_uniformly_over_all_ten_classes_elsewhere(setup):
    scenario = digits_scenario(setup, "synthetic", random_state=0)
    answers, labels = (
        np.concatenate([getattr(scenario.train, name), getattr(scenario.test, name)])
        for name in ("predictions", "labels")
    )
    elsewhere = owners(setup)[labels] != len(SETUPS[setup]) - 1
    guesses = answers[elsewhere, -1]
    share = np.bincount(guesses, minlength=10) / len(guesses)
    # Five standard errors of a share of 1/10.
    assert np.abs(share - 0.1).max() < 5 * np.sqrt(0.09 / len(guesses))
    assert abs((guesses == labels[elsewhere]).mean() - 0.1) < 5 * np.sqrt(0.09 / len(guesses))


@pytest.mark.parametrize("setup", ["I", "severe"])
def test_real_experts_know_their_own_classes_much_better(setup):
    data = digits_scenario(setup, "real", random_state=0).test
    owner = owners(setup)[data.labels]
    right = data.predictions == data.labels[:, None]
    for k in range(data.n_experts):
        assert right[owner == k, k].mean() > 0.9
        assert right[owner != k, k].mean() < 0.7


def test_real_experts_have_seen_every_class():
    data = digits_scenario("III", "real", random_state=0)
    answered = np.unique(np.concatenate([data.train.predictions, data.test.predictions]))
    assert set(answered) == set(range(10))


def test_error_costs_are_zero_or_one_and_coverage_adds_the_known_share():
    scenario = digits_scenario("II", "synthetic", "error", random_state=1)
    assert set(np.unique(scenario.test.costs)) == {0.0, 1.0}
    priced = digits_scenario("II", "synthetic", "error+coverage", random_state=1)
    added = priced.test.costs - scenario.test.costs
    assert np.allclose(added, [0.5, 0.2, 0.2, 0.1])


def test_the_same_seed_gives_the_same_data_and_another_seed_another_split():
    first, again, other = (digits_scenario("I", random_state=seed) for seed in (4, 4, 5))
    assert np.array_equal(first.train.costs, again.train.costs)
    assert not np.array_equal(first.train.rows, other.train.rows)


def test_halves_are_disjoint_stratified_and_complete():
    scenario = digits_scenario("I", random_state=0)
    rows = np.concatenate([scenario.train.rows, scenario.test.rows])
    assert np.array_equal(np.sort(rows), np.arange(1797))
    train, test = (np.bincount(part.labels) for part in (scenario.train, scenario.test))
    assert np.abs(train - test).max() <= 1
    assert (scenario.train.X.min(), scenario.train.X.max()) == (0, 1)
    assert len(digits_scenario("I", test_size=0.2).test.X) == 360


def test_unknown_options_are_refused():
    for options in ({"setup": "IV"}, {"experts": "syntetic"}, {"cost": "x"}, {"test_size": 1.5}):
        with pytest.raises(InvalidInputError) as caught:
            digits_scenario(**options)
        assert caught.value.code == f"invalid_{next(iter(options))}"

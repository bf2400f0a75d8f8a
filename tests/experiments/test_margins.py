"""The populations behind the page on the paper's errors, and what unequal margins do on them."""

import numpy as np
import pytest

from experiments.theory.margins import (
    CLASS_SHARES,
    PRICES,
    ideal_routers,
    language_models,
    ratio,
    synthetic_experts,
    theory_margins,
)
from mild import core


def test_the_language_models_answer_as_the_papers_rows_say():
    right, priced = language_models()
    _, unpriced = language_models((0.0, 0.0, 0.0))
    assert priced.weights.sum() == pytest.approx(1)
    assert priced.weights.min() > 0
    for population, shares in ((unpriced, (0.822, 0.128, 0.05)), (priced, (0.312, 0.12, 0.568))):
        oracle = np.bincount(core.cheapest(population.costs), population.weights)
        np.testing.assert_allclose(oracle, shares, atol=1e-12)
    assert unpriced.weights @ unpriced.costs[:, 0] == pytest.approx(0.438)
    np.testing.assert_array_equal(priced.costs, 1 - right + np.array(PRICES))


@pytest.mark.parametrize("with_shares", [False, True])
def test_exact_margins_are_those_of_many_drawn_rows(with_shares):
    rng = np.random.default_rng(0)
    coverage = np.array([0.5, 0.2, 0.2, 0.1])
    owner = rng.choice(4, 100_000, p=coverage)
    right = (rng.random((len(owner), 4)) < 0.1) | (owner[:, None] == np.arange(4))
    costs = 1.0 - right + coverage * with_shares
    population = synthetic_experts("II", "CIFAR-10", with_shares)
    assert population.weights.sum() == pytest.approx(1)
    for counts in ("reward", "best"):
        drawn = core.theory_margins(core.expert_mass(costs, counts=counts), total=1.0)
        np.testing.assert_allclose(theory_margins(population, counts), drawn, rtol=0.02)


def test_with_two_experts_and_errors_the_margins_are_cube_roots_of_the_shares():
    # A row that both answer weighs nothing, every other row counts for the expert that is right.
    for name in ("CIFAR-10", "CIFAR-100", "Tiny ImageNet"):
        assert ratio(synthetic_experts("severe", name, False), "reward") == pytest.approx(
            9 ** (1 / 3)
        )
    last = CLASS_SHARES["SVHN"][-1]
    expected = ((1 - last) / last) ** (1 / 3)
    assert ratio(synthetic_experts("severe", "SVHN", False), "reward") == pytest.approx(expected)


def test_an_ideal_router_loses_by_unequal_margins_unless_it_decides_by_the_stationary_rule():
    routers = ideal_routers(1.5, seed=0, n_inputs=200)
    best = routers["equal, argmax"]
    for routed in routers.values():
        assert (routed.costs >= best.costs - 1e-12).all()
    for counts in ("reward", "best"):
        stationary = routers[f"theory, {counts} counts, stationary"]
        np.testing.assert_array_equal(stationary.chosen, best.chosen)
        assert routers[f"theory, {counts} counts, argmax"].costs.mean() > best.costs.mean() + 0.01

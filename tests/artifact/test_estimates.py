"""Expected costs lie in their possible range and agree with the decisions."""

from dataclasses import replace

import numpy as np
import pytest

from mild.artifact import Router
from mild.artifact.info import CostInfo, RouterInfo, TargetInfo
from mild.core.decisions import argmax_last
from mild.policies import (
    ConstantPolicy,
    LinearCostPolicy,
    PricedPolicy,
    StandardizedPolicy,
    TradeoffPolicy,
)

NAMES = ["a", "b", "c"]
BETA = {"a": 0.0, "b": 0.1, "c": 0.4}


def linear(rng):
    return LinearCostPolicy(rng.normal(size=(3, 4)), rng.uniform(size=3))


def priced(rng, kind="ridge"):
    heads = rng.normal(size=(2, 3, 4))
    free = np.zeros(3)
    return PricedPolicy(heads[0], np.full(3, 0.5), heads[1] / 10, free, free, 2.0, kind)


def router_of(policy, **terms):
    cost = CostInfo("", *(terms.get(name) for name in ("beta", "price_weight", "latency_weight")))
    return Router(policy, NAMES, info=RouterInfo(cost=cost))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_errors_are_shares(rng):
    router, X = router_of(linear(rng)), 3 * rng.normal(size=(500, 4))
    raw, found = router.policy.expected_costs(X), router.expected_costs(X)
    assert raw.min() < 0 < 1 < raw.max()
    np.testing.assert_allclose(found, np.clip(raw, 0, 1))


def test_an_expert_costs_its_beta_at_least_and_an_error_more_at_most(rng):
    router, X = router_of(linear(rng), beta=BETA), 3 * rng.normal(size=(500, 4))
    found, betas = router.expected_costs(X), np.array(list(BETA.values()))
    assert (found >= betas).all()
    assert (found <= 1 + betas.max()).all()
    raw = router.policy.expected_costs(X)
    # Beyond its own range an expert is level with one that the router prefers to it.
    for i, k in np.argwhere(found > 1 + betas):
        assert any(found[i, j] == found[i, k] for j in range(3) if raw[i, j] < raw[i, k])


def test_dollars_have_no_upper_end(rng):
    router, X = router_of(linear(rng), price_weight=50.0), 3 * rng.normal(size=(500, 4))
    found = router.expected_costs(X)
    assert found.min() == 0
    assert found.max() > 1


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_a_head_of_errors_leaves_the_prices_as_they_are(rng, kind, scaled):
    policy, X = priced(rng, kind), 3 * rng.normal(size=(500, 4))
    if scaled:
        policy = StandardizedPolicy(np.ones(4), np.full(4, 2.0), policy)
    router = router_of(policy, price_weight=2.0)
    paid = 2 * policy.expected_prices(X)
    found, raw = router.expected_costs(X), policy.expected_costs(X)
    assert (found >= paid - 1e-12).all()
    assert (found.max(axis=1) <= 1 + paid.max(axis=1) + 1e-12).all()
    clipped = np.clip(raw, paid, paid + 1)
    order = np.argsort(raw, axis=1)
    agrees = (np.diff(np.take_along_axis(clipped, order, axis=1), axis=1) >= 0).all(axis=1)
    assert agrees.mean() > 0.5
    np.testing.assert_allclose(found[agrees], clipped[agrees])


def test_costs_of_arrays_are_only_not_negative(rng):
    router, X = Router(linear(rng), NAMES), 3 * rng.normal(size=(500, 4))
    raw = router.policy.expected_costs(X)
    np.testing.assert_allclose(router.expected_costs(X), np.maximum(raw, 0))


@pytest.mark.parametrize("terms", [{}, {"beta": BETA}, {"price_weight": 5.0}])
def test_the_choice_is_that_of_the_policy_and_has_the_least_cost(rng, terms):
    router, X = router_of(linear(rng), **terms), 3 * rng.normal(size=(1000, 4))
    found = router.decide(X)
    raw = router.policy.expected_costs(X)
    np.testing.assert_array_equal(found.chosen, argmax_last(-raw))
    np.testing.assert_array_equal(found.values, -raw)
    order = np.argsort(raw, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(found.costs, order, axis=1), axis=1) >= 0).all()
    own = found.costs[np.arange(len(X)), found.chosen]
    np.testing.assert_array_equal(own, found.costs.min(axis=1))


def test_types_are_kept(rng):
    policy = LinearCostPolicy(*(np.float32(x) for x in (rng.normal(size=(3, 4)), np.ones(3))))
    found = router_of(policy, beta=BETA).expected_costs(rng.normal(size=(9, 4)).astype(np.float32))
    assert found.dtype == np.float32


def test_a_named_expert_need_not_be_the_cheapest():
    policy = ConstantPolicy(np.array([0.1, 0.5, 0.3]), 4, named=1)
    found = router_of(policy).decide(np.zeros((1, 4)))
    assert (found.chosen.tolist(), found.by) == ([1], "constant")


def test_where_a_target_is_met_by_one_expert_costs_are_errors():
    router = router_of(ConstantPolicy(np.array([0.1, 0.05, 0.3]), 4, named=1), beta=BETA)
    heads = priced(np.random.default_rng(0))
    target = TargetInfo({"max_dollars": 1.0}, None, None, "b", True, None, "b", "")
    router = replace(
        router,
        policy=TradeoffPolicy(router.policy, heads),
        info=replace(router.info, target=target),
    )
    np.testing.assert_allclose(router.expected_costs(np.zeros((1, 4))), [[0.1, 0.05, 0.3]])

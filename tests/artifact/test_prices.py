"""Prices after fitting."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.gateway_cases import priced_router
from mild.artifact import RouterInfo, load
from mild.errors import InvalidInputError, UnsupportedError


def test_nothing_said_changes_nothing(folders):
    router = load(folders("linear"))
    assert router.with_prices() is router
    assert not router.has_prices
    assert load(folders("priced")).has_prices


def test_betas_by_name_are_those_in_the_order_of_the_experts(folders):
    router = load(folders("priced"))
    X = np.random.default_rng(0).normal(size=(50, router.n_features))
    named = router.with_prices({"cook": 2.0, "adder": 1.0})
    ordered = router.with_prices([1.0, 2.0, 0.0], 1.0)
    np.testing.assert_array_equal(named.expected_costs(X), ordered.expected_costs(X))


def test_a_router_with_one_head_says_why_not(folders):
    for prices in ({"betas": {"cook": 2.0}}, {"price_weight": 2.0}):
        with pytest.raises(UnsupportedError, match="one head"):
            load(folders("linear")).with_prices(**prices)


def test_a_weight_needs_prices_in_dollars(folders):
    router = load(folders("priced"))
    for prices in ({"price_weight": 2.0}, {"betas": {"cook": 1.0}, "price_weight": 2.0}):
        with pytest.raises(InvalidInputError) as caught:
            router.with_prices(**prices, in_dollars=True)
        assert caught.value.code == "invalid_price_weight"
    assert router.with_prices(price_weight=2.0).policy.price_weight == 2.0
    router.info = RouterInfo(price_head="dollars")
    assert router.with_prices(price_weight=2.0, in_dollars=True).policy.price_weight == 2.0


def test_an_unknown_expert_is_refused(folders):
    with pytest.raises(InvalidInputError, match="baker"):
        load(folders("priced")).with_prices({"baker": 1.0})


def test_under_other_prices_a_router_has_no_target():
    info = priced_router().info.with_notes({"target": {"t": 3.0}})
    router = priced_router()
    router.info = info
    assert router.with_prices().info.target.t == 3.0
    assert router.with_prices(price_weight=2.0).info.target is None

"""Prices after fitting."""

from __future__ import annotations

import numpy as np
import pytest

from mild.artifact import RouterInfo, load
from mild.artifact.info import CostInfo, SharesInfo
from mild.artifact.router import with_betas
from mild.errors import InvalidInputError, UnsupportedError
from small_router_cases import priced_router


def test_without_new_prices_nothing_changes(folders):
    router = load(folders("linear"))
    assert router.with_prices() is router
    assert not router.has_prices
    assert load(folders("priced")).has_prices


def test_betas_replace_all_prices(folders):
    router = load(folders("priced"))
    X = np.random.default_rng(0).normal(size=(50, router.n_features))
    repriced = with_betas(router, {"cook": 2.0, "adder": 1.0, "poet": 0.0})
    np.testing.assert_allclose(
        repriced.expected_costs(X),
        repriced.policy.expected_errors(X) + np.array([1.0, 2.0, 0.0]),
        rtol=1e-6,
    )


def test_a_router_with_one_head_says_why_it_takes_no_weight(folders):
    with pytest.raises(UnsupportedError, match="one head"):
        load(folders("linear")).with_prices(price_weight=2.0)


def test_a_weight_needs_prices_in_dollars(folders):
    router = load(folders("priced"))
    for info in (router.info, RouterInfo()):
        router.info = info
        with pytest.raises(InvalidInputError) as caught:
            router.with_prices(price_weight=2.0)
        assert caught.value.code == "invalid_price_weight"
    router.info = RouterInfo(price_head="dollars")
    assert router.with_prices(price_weight=2.0).policy.price_weight == 2.0


def test_prices_by_name_are_no_longer_taken(folders):
    for prices in ({"betas": {"cook": 1.0}}, {"in_dollars": True}):
        with pytest.raises(InvalidInputError):
            load(folders("priced")).with_prices(**prices)


def test_under_other_prices_a_router_has_no_target():
    info = priced_router().info.with_notes({"target": {"t": 3.0}})
    router = priced_router()
    router.info = info
    assert router.with_prices().info.target.t == 3.0
    assert router.with_prices(price_weight=2.0).info.target is None


def test_the_recorded_cost_is_the_new_one(folders):
    router = load(folders("priced"))
    router.info = RouterInfo(
        cost=CostInfo.of_dollars(50.0), constant="cook", shares=SharesInfo(10, {"cook": 1.0})
    )
    dear = router.with_prices(price_weight=100)
    assert dear.info.cost == CostInfo("error + 100 × dollars", None, 100.0, None)
    assert dear.info.constant is None
    assert dear.info.shares is None
    assert router.with_prices(price_weight=50).info.constant == "cook"
    fixed = with_betas(router, {"adder": 1.0, "cook": 2.0, "poet": 0.0})
    assert fixed.info.cost.beta == {"adder": 1.0, "cook": 2.0, "poet": 0.0}
    # Now the prices are in wrong answers, and a dollar has no weight among them.
    with pytest.raises(InvalidInputError, match="only if dollars"):
        fixed.with_prices(price_weight=3.0)


def test_without_a_recorded_cost_none_is_invented(folders):
    router = load(folders("priced"))
    router.info = RouterInfo(price_head="dollars")
    assert router.with_prices(price_weight=2.0).info.cost is None

"""Prices after fitting."""

from __future__ import annotations

import pytest

from mild.artifact import load
from mild.artifact.prices import Prices, is_priced, new_prices
from mild.errors import InvalidInputError, UnsupportedError


def test_nothing_said_changes_nothing(folders):
    router = load(folders("linear"))
    assert new_prices(router) == Prices()
    assert Prices().on(router) is router
    assert not is_priced(router)
    assert is_priced(load(folders("priced")))


def test_betas_come_in_the_order_of_the_experts(folders):
    assert new_prices(load(folders("priced")), {"cook": 2.0, "adder": 1.0}) == Prices(
        (1.0, 0.0, 2.0), 1.0
    )


def test_a_router_with_one_head_says_why_not(folders):
    with pytest.raises(UnsupportedError, match="one head"):
        new_prices(load(folders("linear")), {"cook": 2.0})
    with pytest.raises(UnsupportedError, match="one head"):
        new_prices(load(folders("linear")), price_weight=2.0)


def test_a_weight_needs_dollars_in_fitting(folders):
    with pytest.raises(InvalidInputError, match="fitted with it alone"):
        new_prices(load(folders("priced")), price_weight=2.0)
    with pytest.raises(InvalidInputError, match="together with beta"):
        new_prices(load(folders("priced")), {"cook": 1.0}, 2.0)


def test_an_unknown_expert_is_refused(folders):
    with pytest.raises(InvalidInputError, match="baker"):
        new_prices(load(folders("priced")), {"baker": 1.0})

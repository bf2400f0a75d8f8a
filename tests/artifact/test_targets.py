"""Targets that are chosen after fitting, from the trade-offs that a router records."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.gateway_cases import priced_router, trading_router
from mild.artifact.targets import Target
from mild.errors import ArtifactError, InvalidInputError, UnsupportedError
from mild.metrics.curves import TradeoffCurve
from mild.policies import PricedPolicy, TradeoffPolicy

NAMES = ["small", "large"]


def curve():
    """Three trade-offs and two experts: 0.9 for $10, 0.85 for $4, 0.6 for $1."""
    return TradeoffCurve(
        np.array([0.0, 5.0, 50.0, np.nan, np.nan]),
        np.array([-1, -1, -1, 0, 1]),
        np.array([0.9, 0.85, 0.6, 0.6, 0.88]),
        np.array([10.0, 4.0, 1.0, 1.0, 10.0]),
        np.array([0.9, 0.3, 0.0, 0.0, 1.0]),
        1,
    )


@pytest.mark.parametrize(
    ("wanted", "index", "met"),
    [
        ({"keep_quality": 0.95}, 1, True),
        ({"max_quality_loss": 0.0}, 0, True),
        ({"max_dollars": 4.0}, 1, True),
        ({"save_dollars": 0.8}, 2, True),
        ({"strong_share": 0.3}, 1, True),
        ({"keep_quality": 0.95, "max_dollars": 20.0}, 1, True),
        ({"max_dollars": 0.5}, 2, False),
        ({"keep_quality": 1.2}, 0, False),
    ],
)
def test_the_setting_is_the_one_that_was_asked_for(wanted, index, met):
    found, reached = Target(**wanted).choose(curve())
    assert (curve().quality[found], reached) == (curve().quality[index], met)


def test_a_curve_is_the_same_after_json():
    again = TradeoffCurve.from_dict(curve().as_dict(NAMES), NAMES)
    for name, values in vars(curve()).items():
        np.testing.assert_array_equal(getattr(again, name), values)


@pytest.mark.parametrize(
    "change",
    [
        {"t": [0.0]},
        {"t": ["x"] * 5},
        {"t": [-1.0, 5.0, 50.0, None, None]},
        {"expert": [None] * 5},
        {"expert": 3},
        {"quality": [float("nan")] * 5},
        {"best_expert": "nobody"},
        {"strong_share": None},
    ],
)
def test_a_damaged_record_is_refused(change):
    with pytest.raises(ArtifactError):
        TradeoffCurve.from_dict(curve().as_dict(NAMES) | change, NAMES)


def test_a_router_decides_at_the_trade_off_of_a_target():
    router = trading_router()
    cheap = router.with_target(max_dollars=4.0)
    assert isinstance(cheap.policy, PricedPolicy)
    assert cheap.policy.price_weight == 5.0
    assert cheap.info.target.t == 5.0
    assert router.info.target is None, "the router itself is as before"


def test_a_single_expert_that_meets_a_target_can_still_be_reweighed():
    always = trading_router(best=0.95).with_target(keep_quality=1.0)
    assert isinstance(always.policy, TradeoffPolicy)
    assert always.route(["x", "y"]) == ["large", "large"]
    assert isinstance(always.with_prices(price_weight=50.0).policy, PricedPolicy)


def test_a_target_that_cannot_be_met_is_refused_with_the_nearest():
    with pytest.raises(InvalidInputError) as refused:
        trading_router().with_target(max_dollars=0.5)
    assert refused.value.code == "invalid_target"
    assert "$1 per 1,000 queries" in str(refused.value)


def test_a_router_without_a_record_is_refused():
    with pytest.raises(UnsupportedError) as refused:
        priced_router().with_target(Target(max_dollars=2.0))
    assert refused.value.parameter == "target"
    with pytest.raises(InvalidInputError) as empty:
        trading_router().with_target()
    assert empty.value.parameter == "target"


@pytest.mark.parametrize("value", ["2", True, [2.0], np.True_])
def test_a_target_that_is_no_number_is_refused(value):
    with pytest.raises(InvalidInputError) as refused:
        Target(max_dollars=value)
    assert refused.value.code == "invalid_max_dollars"


def test_numbers_of_numpy_are_targets():
    wanted = Target(max_dollars=np.float32(2), strong_share=np.int64(1)).wanted
    assert wanted == {"max_dollars": 2, "strong_share": 1}


def test_a_guarantee_cannot_be_given_after_the_fit():
    with pytest.raises(InvalidInputError) as refused:
        trading_router().with_target(max_quality_loss=0.1, guarantee=0.99)
    assert refused.value.code == "invalid_guarantee"

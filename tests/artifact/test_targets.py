"""Targets that are chosen after fitting, from the trade-offs that a router records."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gateway.gateway_cases import priced_router, trading_router
from mild.artifact.targets import Target, upper_quantile
from mild.errors import ArtifactError, InvalidInputError, UnsupportedError
from mild.metrics.curves import CurveErrors, TradeoffCurve
from mild.policies import PricedPolicy, TradeoffPolicy

NAMES = ["small", "large"]


def curve():
    """Three trade-offs and two experts: 0.9 for $10, 0.85 for $4, 0.6 for $1."""
    return TradeoffCurve(
        np.array([0.0, 5.0, 50.0, np.nan, np.nan]),
        np.array([-1, -1, -1, 0, 1]),
        np.array([0.9, 0.85, 0.6, 0.6, 0.88]),
        np.array([10.0, 4.0, 1.0, 1.0, 10.0]),
        1,
    )


@pytest.mark.parametrize(
    ("wanted", "index", "met"),
    [
        ({"keep_quality": 0.95}, 1, True),
        ({"max_quality_loss": 0.0}, 0, True),
        ({"max_dollars": 4.0}, 1, True),
        ({"max_dollars": 2.0}, 2, True),
        ({"keep_quality": 0.95, "max_dollars": 20.0}, 1, True),
        ({"max_dollars": 0.5}, 2, False),
        ({"keep_quality": 1.2}, 0, False),
    ],
)
def test_the_setting_is_the_one_that_was_asked_for(wanted, index, met):
    found = Target(**wanted).choose(curve())
    assert (curve().quality[found.index], found.met) == (curve().quality[index], met)
    assert (found.likely, found.margins) == (met, {})


def with_errors(loss=0.01, dollars=0.5, folds=5):
    """The same, with errors of the trade-offs' quality and dollars; experts have fixed prices."""
    learned = curve().experts < 0
    quality, price = np.where(learned, loss, 0.02), np.where(learned, dollars, 0.0)
    difference = np.where(curve().experts == 1, 0.0, quality)
    errors = CurveErrors(quality, difference, price, folds)
    return replace(curve(), errors=errors)


@pytest.mark.parametrize(
    ("wanted", "weight"),
    [
        ({"keep_quality": 0.95}, 5.0),  # 0.014 better than asked for
        ({"keep_quality": 0.95, "target_probability": 0.95}, 0.0),
        ({"max_quality_loss": 0.03, "target_probability": 0.5}, 5.0),
        ({"max_quality_loss": 0.03}, 0.0),
        ({"max_dollars": 4.0}, 50.0),
        ({"max_dollars": 4.0, "target_probability": 0.5}, 5.0),
        ({"keep_quality": 0.95, "max_dollars": 5.0}, 5.0),
    ],
)
def test_a_margin_is_taken_where_the_errors_are_known(wanted, weight):
    found = Target(**{"target_probability": 0.8, **wanted}).choose(with_errors())
    assert found.likely
    assert found.met
    assert with_errors().weights[found.index] == weight
    assert set(found.margins) == set(wanted) - {"target_probability"}


def test_always_the_best_expert_needs_no_margin():
    best = with_errors().best_index
    for wanted in ({"max_quality_loss": 0.0}, {"keep_quality": 1.0}):
        found = Target(**wanted, target_probability=0.8).choose(with_errors(loss=0.1))
        assert (found.index, found.likely) == (best, True)
        assert list(found.margins.values()) == [0.0]


def test_a_trade_off_behind_one_without_its_margin_is_not_taken():
    lucky = with_errors()
    quality = lucky.quality.copy()
    quality[:3] = 0.9, 0.8, 0.9
    lucky = replace(lucky, quality=quality)
    assert lucky.weights[Target(keep_quality=0.95).choose(lucky).index] == 0.0
    assert Target(keep_quality=0.95).choose(replace(lucky, errors=None)).index == 2


def test_where_no_setting_has_the_margin_the_nearest_that_meets_the_target_is_taken():
    found = Target(keep_quality=1.02, target_probability=0.8).choose(with_errors())
    assert (found.index, found.met, found.likely) == (0, True, False)
    assert found.margins["keep_quality"] > 0


def test_fewer_folds_and_more_targets_ask_for_larger_margins():
    target = Target(keep_quality=0.9, target_probability=0.8)
    many, few = (target.choose(with_errors(folds=folds)) for folds in (10, 3))
    assert many.index == few.index
    assert many.margins["keep_quality"] < few.margins["keep_quality"]
    both = replace(target, max_dollars=9.0).choose(with_errors(folds=10))
    assert both.index == many.index
    assert many.margins["keep_quality"] < both.margins["keep_quality"]


@pytest.mark.parametrize("make", [curve, with_errors])
def test_a_curve_is_the_same_after_json(make):
    again = TradeoffCurve.from_dict(json.loads(json.dumps(make().as_dict(NAMES))), NAMES)
    for name, values in vars(make()).items():
        if name != "errors" or values is None:
            np.testing.assert_array_equal(getattr(again, name), values)
        else:
            for column, errors in vars(values).items():
                np.testing.assert_array_equal(getattr(again.errors, column), errors)


@pytest.mark.parametrize("freedom", [None, 1, 2, 3, 4, 9, 30])
def test_quantiles_are_those_of_scipy(freedom):
    from scipy import stats

    other = stats.norm() if freedom is None else stats.t(freedom)
    for probability in (0.5, 0.8, 0.99):
        assert upper_quantile(probability, freedom) == pytest.approx(other.ppf(probability))


@pytest.mark.parametrize(
    "change", [{"loss": [0.1]}, {"quality": [-1.0] * 5}, {"folds": None}, {"dollars": None}]
)
def test_damaged_errors_are_refused(change):
    content = with_errors().as_dict(NAMES)
    with pytest.raises(ArtifactError):
        TradeoffCurve.from_dict(content | {"errors": content["errors"] | change}, NAMES)


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
        {"dollars_per_1000": None},
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
    assert cheap.without(0).info.target is None, "the target was that of all experts"


def test_an_old_router_without_errors_takes_no_margin_and_says_so():
    found = trading_router().with_target(max_dollars=4.0, target_probability=0.99).info.target
    assert found.t == 5.0
    assert (found.probability, found.likely, found.margins) == (None, None, None)
    assert "No margin" in found.sentence


def test_a_router_with_errors_takes_the_margin_of_the_probability():
    router = trading_router()
    record = with_errors().as_dict(NAMES)
    router = replace(router, info=replace(router.info, tradeoffs=record))
    found = router.with_target(max_dollars=4.0, target_probability=0.8).info.target
    assert (found.t, found.probability, found.likely) == (50.0, 0.8, True)
    assert found.margins["max_dollars"] > 0
    assert "with probability 80 %, with a margin of" in found.sentence
    near = router.with_target(keep_quality=1.02, target_probability=0.8).info.target
    assert (near.met, near.likely) == (True, False)


def test_by_default_a_target_is_expected_to_be_met_without_a_margin():
    router = trading_router()
    record = with_errors().as_dict(NAMES)
    router = replace(router, info=replace(router.info, tradeoffs=record))
    found = router.with_target(max_dollars=4.0).info.target
    assert (found.t, found.probability, found.likely) == (5.0, 0.5, True)
    assert found.margins == {"max_dollars": 0.0}
    assert (
        "expected to be met on the same number of new queries; for more certainty" in found.sentence
    )
    assert "margin of" not in found.sentence


@pytest.mark.parametrize("value", [0.49, 1.0, float("nan"), "0.8", None, True])
def test_a_probability_outside_its_range_is_refused(value):
    with pytest.raises(InvalidInputError) as refused:
        Target(max_dollars=1.0, target_probability=value)
    assert refused.value.code == "invalid_target_probability"


def test_a_single_expert_that_meets_a_target_can_still_be_reweighed():
    always = trading_router(best=0.95).with_target(keep_quality=1.0)
    assert isinstance(always.policy, TradeoffPolicy)
    assert always.route(["x", "y"]) == ["large", "large"]
    assert isinstance(always.with_prices(price_weight=50.0).policy, PricedPolicy)


def test_a_target_that_cannot_be_met_is_refused_with_the_nearest():
    with pytest.raises(InvalidInputError) as refused:
        trading_router().with_target(max_dollars=0.5)
    assert refused.value.code == "invalid_target"
    assert "$1.00 per 1,000 queries" in str(refused.value)


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
    wanted = Target(max_dollars=np.float32(2), max_quality_loss=np.int64(1)).wanted
    assert wanted == {"max_quality_loss": 1, "max_dollars": 2}


def test_a_guarantee_cannot_be_given_after_the_fit():
    with pytest.raises(InvalidInputError) as refused:
        trading_router().with_target(max_quality_loss=0.1, guarantee=0.99)
    assert refused.value.code == "invalid_guarantee"

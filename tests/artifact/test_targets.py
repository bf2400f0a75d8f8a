"""Targets that are chosen after fitting, from the frontier that a router records."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from frontier_cases import EXPERT_NAMES, frontier_of, small_frontier, trade_off
from mild.artifact import load
from mild.artifact.info import CostInfo
from mild.artifact.targets import Target, policy_at, target_info
from mild.errors import InvalidInputError, RouterFileError, UnsupportedError
from mild.metrics.operating_points import CASCADE, COLUMNS, Frontier, Setting
from mild.policies import CascadePolicy, MixPolicy, PricedPolicy, TradeoffPolicy
from mild.policies.cascade import AgreementTable
from small_router_cases import priced_router, trading_router

PROBABILITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def noisy_frontier(quality_error=0.02, loss_error=0.01, dollars_error=0.5):
    return small_frontier(
        quality_error=quality_error, loss_error=loss_error, dollars_error=dollars_error
    )


@pytest.mark.parametrize(
    ("wanted", "quality", "dollars"),
    [
        # 0.836 is 0.944 of the way from 0.6 to 0.85, and so are the dollars from $1 to $4.
        ({"keep_quality": 0.95}, 0.836, 3.832),
        ({"keep_quality": 0.95, "max_dollars": 20.0}, 0.836, 3.832),
        ({"max_quality_loss": 0.0}, 0.88, 7.6),
        ({"max_dollars": 4.0}, 0.85, 4.0),
        ({"max_dollars": 2.5}, 0.725, 2.5),
        ({"max_dollars": 1.0}, 0.6, 1.0),
        ({"max_dollars": 99.0}, 0.9, 10.0),
    ],
)
def test_the_point_is_the_one_that_was_asked_for(wanted, quality, dollars):
    choice = Target(**wanted).choose(small_frontier())
    assert (choice.met, choice.likely) == (True, True)
    assert choice.point.quality == pytest.approx(quality)
    assert choice.point.dollars == pytest.approx(dollars)


@pytest.mark.parametrize("quality", np.linspace(0.605, 0.895, 30))
def test_between_two_settings_the_expected_quality_is_what_was_asked_for(quality):
    frontier = small_frontier()
    choice = Target(keep_quality=quality / 0.88).choose(frontier)
    point = choice.point
    assert point.is_mix
    assert point.quality == pytest.approx(quality)
    # A share of the queries is decided by the second setting, with its quality and dollars.
    ends = {50.0: (0.6, 1.0), 5.0: (0.85, 4.0), 0.0: (0.9, 10.0)}
    first_quality, first_dollars = ends[point.first.number]
    second_quality, second_dollars = ends[point.second.number]
    mixed_quality = first_quality + point.share * (second_quality - first_quality)
    mixed_dollars = first_dollars + point.share * (second_dollars - first_dollars)
    assert point.quality == pytest.approx(mixed_quality)
    assert point.dollars == pytest.approx(mixed_dollars)


@pytest.mark.parametrize(
    ("wanted", "quality"), [({"max_dollars": 0.5}, 0.6), ({"keep_quality": 1.2}, 0.9)]
)
def test_the_nearest_point_is_taken_where_a_target_cannot_be_met(wanted, quality):
    choice = Target(**wanted).choose(small_frontier())
    assert (choice.met, choice.likely) == (False, False)
    assert choice.point.quality == quality


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_a_margin_is_a_quantile_of_the_error(probability):
    quantile = NormalDist().inv_cdf(probability)
    frontier = noisy_frontier()
    quality = Target(max_quality_loss=0.03, target_probability=probability).choose(frontier)
    assert quality.likely
    assert quality.margins == {"max_quality_loss": pytest.approx(quantile * 0.01)}
    assert quality.point.quality == pytest.approx(0.85 + quantile * 0.01)
    dollars = Target(max_dollars=6.0, target_probability=probability).choose(
        noisy_frontier(loss_error=0.0)
    )
    assert dollars.margins == {"max_dollars": pytest.approx(quantile * 0.5)}
    assert dollars.point.dollars == pytest.approx(6.0 - quantile * 0.5)


def test_at_one_half_no_margin_is_taken_however_many_targets_there_are():
    frontier = noisy_frontier(quality_error=0.1, loss_error=0.1, dollars_error=3.0)
    half = {"target_probability": 0.5}
    one = Target(keep_quality=0.95, **half).choose(frontier)
    two = Target(keep_quality=0.95, max_dollars=6.0, **half).choose(frontier)
    three = Target(0.95, 0.044, 6.0, **half).choose(frontier)
    for choice in (one, two, three):
        assert choice.point.quality == pytest.approx(0.95 * 0.88)
        assert choice.point.dollars == pytest.approx(one.point.dollars)
        assert set(choice.margins.values()) == {0.0}
        assert choice.likely


@pytest.mark.parametrize("wanted", [{"keep_quality": 0.93}, {"max_dollars": 5.0}])
def test_a_higher_probability_never_chooses_a_less_safe_point(wanted):
    dollars = []
    for probability in PROBABILITIES:
        target = Target(**wanted, target_probability=probability)
        dollars.append(target.choose(noisy_frontier()).point.dollars)
    steps = np.diff(dollars)
    if "max_dollars" in wanted:
        steps = -steps
    assert (steps >= -1e-12).all()
    assert dollars[0] != dollars[-1]


def test_always_the_best_expert_needs_no_margin():
    for wanted in ({"max_quality_loss": 0.0}, {"keep_quality": 1.0}):
        target = Target(**wanted, target_probability=0.8)
        choice = target.choose(noisy_frontier(loss_error=0.1, quality_error=0.1))
        assert (choice.point.expert, choice.likely) == (1, True)
        assert list(choice.margins.values()) == [0.0]


def test_single_experts_are_judged_by_the_same_margin():
    # The middle expert is expected to keep 0.95, but only just.
    experts = [(0.5, 1.0), (0.96, 2.0), (1.0, 10.0)]
    path = [(trade_off(9.0), 0.965, 3.0), (trade_off(1.0), 1.0, 9.0)]
    frontier = frontier_of(experts, path, quality_error=0.02, loss_error=0.02)
    target = Target(max_quality_loss=0.05, target_probability=0.5)
    assert target.choose(frontier).point.expert == 1
    # A setting with less than the margin of 0.0168 above the limit is passed over, an expert as well.
    careful = replace(target, target_probability=0.8).choose(frontier).point
    assert careful.expert is None
    assert careful.quality == pytest.approx(0.95 + NormalDist().inv_cdf(0.8) * 0.02)
    assert target.probability_of(frontier, frontier.alone(1)) == pytest.approx(
        NormalDist().cdf(0.01 / 0.02)
    )


def test_where_no_point_has_the_margin_the_nearest_that_meets_the_target_is_taken():
    choice = Target(keep_quality=1.02, target_probability=0.8).choose(noisy_frontier())
    assert (choice.met, choice.likely) == (True, False)
    assert choice.point.quality == 0.9
    assert choice.margins["keep_quality"] > 0


def test_a_budget_is_used_for_the_best_quality():
    experts = [(0.80, 2.0), (0.81, 9.0)]
    path = [(trade_off(3.0), 0.79, 3.0), (trade_off(1.0), 0.815, 8.0)]
    target = Target(max_dollars=9.5)
    for error in (0.0, 0.02, 0.2):
        # The cheap expert is worse by 0.015; whether by chance, or not, there is money for more.
        assert target.choose(frontier_of(experts, path, loss_error=error)).point.quality == 0.815


def test_of_equal_points_the_cheaper_and_of_equal_dollars_the_better_one_is_taken():
    experts = [(0.7, 1.0), (0.9, 4.0), (0.9, 2.0)]
    frontier = frontier_of(experts)
    assert Target(keep_quality=1.0).choose(frontier).point.expert == 2
    assert Target(max_dollars=4.0).choose(frontier).point.expert == 2


def test_a_frontier_is_the_same_after_json():
    frontier = noisy_frontier()
    record = json.loads(json.dumps(frontier.as_dict(EXPERT_NAMES)))
    again = Frontier.from_dict(record, EXPERT_NAMES)
    assert again.settings == frontier.settings
    assert (again.best_expert, again.n_queries) == (frontier.best_expert, frontier.n_queries)
    for name in COLUMNS:
        assert_array_equal(getattr(again, name), getattr(frontier, name))
    # In another order of the experts it is about the same experts.
    turned = Frontier.from_dict(record, EXPERT_NAMES[::-1])
    assert turned.best_expert == 0
    assert turned.alone(0).quality == frontier.alone(1).quality


@pytest.mark.parametrize(
    "change",
    [
        {"share": [0.0]},
        {"share": [2.0] * 5},
        {"first": [9] * 5},
        {"first": ["x"] * 5},
        {"path": [0] * 5},
        {"settings": 3},
        {"settings": [{"trade_off": -1.0}] * 5},
        {"settings": [{"expert": "nobody"}] * 5},
        {"settings": [{"dice": 1.0}] * 5},
        {"quality": [float("nan")] * 5},
        {"loss_error": [-1.0] * 5},
        {"best_expert": "nobody"},
        {"n_queries": 0},
        {"can_mix": None, "n_queries": None},
        {"dollars": None},
    ],
)
def test_a_damaged_record_is_refused(change):
    with pytest.raises(RouterFileError):
        Frontier.from_dict(noisy_frontier().as_dict(EXPERT_NAMES) | change, EXPERT_NAMES)


def test_a_router_decides_at_the_trade_off_of_a_target():
    router = trading_router()
    cheap = router.with_target(max_dollars=4.0)
    assert isinstance(cheap.policy, TradeoffPolicy)
    assert isinstance(cheap.policy.inner, PricedPolicy)
    assert cheap.policy.inner.price_weight == 5.0
    assert cheap.info.target.t == 5.0
    assert cheap.info.target.setting == "a trade-off"
    assert router.info.target is None, "the router itself is as before"
    assert cheap.without(0).info.target is None, "the target was that of all experts"


def test_a_target_between_two_trade_offs_is_met_by_a_mix_of_them():
    mixed = trading_router().with_target(max_dollars=2.5)
    assert isinstance(mixed.policy, MixPolicy)
    assert mixed.policy.share == pytest.approx(0.5)
    weights = [part.inner.price_weight for part in (mixed.policy.first, mixed.policy.second)]
    assert weights == [50.0, 5.0]
    target = mixed.info.target
    assert (target.t, target.expert) == (None, None)
    assert target.setting == "a mix of two trade-offs (50 % and 50 %)"
    assert target.dollars_per_1000 == pytest.approx(2.5)
    # Another target is chosen from the same frontier, whatever the router is set to.
    assert mixed.with_target(max_dollars=4.0).info.target.t == 5.0
    single = trading_router().with_target(max_dollars=1.0)
    assert single.with_target(max_dollars=2.5).info.target == target


def test_a_router_takes_the_margin_of_the_probability():
    router = trading_router(quality_error=0.02, loss_error=0.01, dollars_error=0.5)
    target = router.with_target(max_dollars=4.0, target_probability=0.8).info.target
    assert (target.probability, target.likely) == (0.8, True)
    margin = NormalDist().inv_cdf(0.8) * 0.5
    assert target.margins == {"max_dollars": pytest.approx(margin)}
    assert "with probability 80 %, with a margin of" in target.sentence
    near = router.with_target(keep_quality=1.02, target_probability=0.8).info.target
    assert (near.met, near.likely) == (True, False)
    assert "would need a margin of" in near.sentence


def test_by_default_a_target_is_a_floor_and_at_one_half_a_median():
    router = trading_router(dollars_error=0.5)
    target = router.with_target(max_dollars=4.0).info.target
    assert (target.probability, target.likely) == (0.8, True)
    assert target.margins["max_dollars"] == pytest.approx(NormalDist().inv_cdf(0.8) * 0.5, rel=0.2)
    assert target.dollars_per_1000 <= 4.0 - target.margins["max_dollars"] + 1e-9
    target = router.with_target(max_dollars=4.0, target_probability=0.5).info.target
    assert (target.t, target.probability, target.likely) == (5.0, 0.5, True)
    assert target.margins == {"max_dollars": 0.0}
    assert "margin of" not in target.sentence


def cascade_of(steps, heads):
    table = AgreementTable.of_rows(np.zeros((4, 2), int), np.ones((4, 2)), np.ones(4))
    return CascadePolicy("number", steps, 0.5, table, heads)


def test_a_cascade_comes_with_a_setting_that_meets_the_target_without_answers():
    heads = priced_router().policy
    tuned = TradeoffPolicy(heads, heads, [cascade_of([[0], [1]], heads)])
    path = [(trade_off(50.0), 0.6, 1.0), (trade_off(0.0), 0.9, 10.0)]
    cascades = [(Setting(CASCADE, 0), 0.85, 2.0), (Setting("expert", 1), 0.88, 10.0)]
    frontier = frontier_of([(0.6, 1.0), (0.88, 10.0)], path, cascades)
    # A single cascade.
    target = Target(max_quality_loss=0.03)
    choice = target.choose(frontier)
    assert choice.point.uses_cascade
    policy = policy_at(tuned, frontier, choice.point, target)
    assert isinstance(policy, CascadePolicy)
    assert policy.steps == [[0], [1]]
    assert policy.direct.inner.price_weight == 0.0, "the better end of the mix without answers"
    # A mix of a cascade and a single expert.
    target = Target(max_quality_loss=0.015)
    choice = target.choose(frontier)
    assert choice.point.is_mix
    policy = policy_at(tuned, frontier, choice.point, target)
    assert isinstance(policy, MixPolicy)
    assert [part.steps for part in policy.cascades] == [[[0], [1]], [[1]]]
    # From there, a setting without a cascade can be chosen again, and the other way round.
    cheap = Target(max_dollars=1.0)
    alone = policy_at(policy, frontier, cheap.choose(frontier).point, cheap)
    assert isinstance(alone, TradeoffPolicy)
    back = policy_at(alone, frontier, choice.point, target)
    assert [part.steps for part in back.cascades] == [[[0], [1]], [[1]]]


def test_without_cascades_the_other_points_remain():
    path = [(trade_off(50.0), 0.6, 1.0), (trade_off(0.0), 0.9, 10.0)]
    cascades = [(Setting(CASCADE, 0), 0.85, 2.0), (Setting("expert", 1), 0.88, 10.0)]
    frontier = frontier_of([(0.6, 1.0), (0.88, 10.0)], path, cascades)
    left = frontier.without_cascades()
    assert len(left) == 4
    assert not any(left.point(index).uses_cascade for index in range(4))
    assert left.reference == frontier.reference


@pytest.mark.parametrize("value", [0.49, 1.0, float("nan"), "0.8", None, True])
def test_a_probability_outside_its_range_is_refused(value):
    with pytest.raises(InvalidInputError) as refused:
        Target(max_dollars=1.0, target_probability=value)
    assert refused.value.code == "invalid_target_probability"


def test_a_single_expert_that_meets_a_target_can_still_be_reweighed():
    always = trading_router(best=0.95).with_target(keep_quality=1.0)
    assert isinstance(always.policy, TradeoffPolicy)
    assert always.info.target.expert == "large"
    assert always.route(["x", "y"]) == ["large", "large"]
    assert isinstance(always.with_prices(price_weight=50.0).policy, PricedPolicy)


def test_without_its_single_expert_a_target_is_dropped_and_costs_stay_errors():
    router = trading_router(best=0.95)
    always = router.with_target(keep_quality=1.0)
    assert always.without("small").info.target == always.info.target
    others = always.without("large")
    assert others.info.target is None
    assert router.info.cost != CostInfo.of_errors()
    assert others.info.cost == CostInfo.of_errors()


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda router: router.with_prices(price_weight=3.0), "for other prices"),
        (lambda router: router.without("small"), "with expert small"),
        (lambda router: router.without(1).with_prices(price_weight=3.0), "with expert large"),
    ],
)
def test_settings_of_other_prices_or_experts_are_not_used(change, reason, tmp_path):
    router = trading_router().with_target(max_dollars=4.0)
    changed = change(router)
    assert changed.info.frontier is None
    for refusing in (changed, load(changed.save(tmp_path / "router"))):
        with pytest.raises(
            UnsupportedError, match=f"were recorded {reason}. Use the router that"
        ) as refused:
            refusing.with_target(max_dollars=2.5)
        assert refused.value.code == "invalid_target"
    assert router.with_target(max_dollars=2.5).info.target.met, "the router itself is as before"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"keep_quality": 0.95}, "got keep_quality 0.95."),
        ({"max_quality_loss": 0.1, "max_dollars": 2}, "got max_quality_loss 0.1, max_dollars 2."),
        ({}, "got no target."),
    ],
)
def test_the_error_names_the_targets_that_came_with_a_guarantee(given, words):
    with pytest.raises(InvalidInputError) as refused:
        Target(**given, guarantee=0.9)
    assert str(refused.value).endswith(words)
    assert refused.value.code == "invalid_guarantee"


@pytest.mark.parametrize("value", ["2", True, [2.0], np.True_])
def test_a_target_that_is_not_a_number_is_refused(value):
    with pytest.raises(InvalidInputError) as refused:
        Target(max_dollars=value)
    assert refused.value.code == "invalid_max_dollars"


def test_numbers_of_numpy_are_targets():
    wanted = Target(max_dollars=np.float32(2), max_quality_loss=np.int64(1)).limits_by_name
    assert wanted == {"max_quality_loss": 1, "max_dollars": 2}


def test_a_guarantee_cannot_be_given_after_the_fit():
    with pytest.raises(InvalidInputError) as refused:
        trading_router().with_target(max_quality_loss=0.1, guarantee=0.99)
    assert refused.value.code == "invalid_guarantee"


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"keep_quality": 0.0}, "keep_quality"),
        ({"max_quality_loss": -0.1}, "max_quality_loss"),
        ({"max_dollars": float("inf")}, "max_dollars"),
        ({"max_quality_loss": 1.1}, "max_quality_loss"),
        ({"max_quality_loss": 0.1, "guarantee": 1.0}, "guarantee"),
        ({"guarantee": 0.9}, "guarantee"),
        ({"keep_quality": 0.9, "guarantee": 0.9}, "guarantee"),
    ],
)
def test_targets_outside_their_range_are_refused(given, parameter):
    with pytest.raises(InvalidInputError) as refused:
        Target(**given)
    assert refused.value.code == f"invalid_{parameter}"


@pytest.mark.parametrize(
    ("given", "priced", "parameter"),
    [
        ({"keep_quality": 0.9}, False, "keep_quality"),
        ({"keep_quality": 95}, True, "keep_quality"),
        ({}, True, "target"),
    ],
)
def test_targets_that_a_table_cannot_have_are_refused(given, priced, parameter):
    with pytest.raises(InvalidInputError) as refused:
        Target(**given).check(priced)
    assert refused.value.parameter == parameter


def test_a_target_that_is_not_finite_is_refused_as_such():
    with pytest.raises(ValueError, match="must be at least 0 and finite; got inf"):
        Target(max_dollars=float("inf"))


def test_a_router_of_vectors_has_no_mix():
    frontier = replace(noisy_frontier(), can_mix=False)
    again = Frontier.from_dict(frontier.as_dict(EXPERT_NAMES), EXPERT_NAMES)
    assert not again.can_mix
    for quality in np.linspace(0.61, 0.89, 8):
        choice = Target(keep_quality=quality / 0.88).choose(again)
        assert not choice.point.is_mix
        assert choice.point.quality >= quality
    for dollars in (1.5, 3.9, 9.9):
        choice = Target(max_dollars=dollars).choose(again)
        assert not choice.point.is_mix
        assert choice.point.dollars <= dollars


def test_more_certainty_is_not_recommended_for_always_the_best_expert():
    frontier = noisy_frontier(loss_error=0.1, quality_error=0.1)
    target = Target(keep_quality=1.0, target_probability=0.8)
    info = target_info(target, frontier, target.choose(frontier), EXPERT_NAMES)
    assert info.expert == info.best_expert
    assert info.sentence.endswith("Nothing cheaper is expected to meet the target.")

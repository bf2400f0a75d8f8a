"""The curve for two experts."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mild.errors import InvalidInputError
from mild.metrics import two_expert_curve

NAN = float("nan")
SEEDS = st.integers(0, 2**32 - 1)
LEVELS = (0.0, 0.2, 0.5, 0.8, 1.0)


def two_experts(seed, n=None):
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(1, 30))
    weak, strong = rng.integers(0, 3, n) / 2, rng.integers(0, 3, n) / 2
    assume(strong.mean() > weak.mean())
    return rng.integers(-4, 5, n).astype(float), weak, strong


@given(st.integers(0, 2**32 - 1))
def test_every_threshold_is_a_point_of_the_curve(seed):
    preference, weak, strong = two_experts(seed)
    curve = two_expert_curve(preference, weak, strong)
    thresholds = [np.inf, *sorted(set(preference), reverse=True)]
    assert len(curve.quality) == len(thresholds)
    for share, quality, t in zip(curve.strong_share, curve.quality, thresholds, strict=True):
        assert share == pytest.approx(np.mean(preference >= t))
        assert quality == pytest.approx(np.where(preference >= t, strong, weak).mean())


@given(st.integers(0, 2**32 - 1))
def test_monotone_transforms_of_the_preference_change_nothing(seed):
    preference, weak, strong = two_experts(seed)
    curve = two_expert_curve(preference, weak, strong)
    for moved in (3 * preference + 1, np.exp(preference), preference**3):
        other = two_expert_curve(moved, weak, strong)
        assert (other.apgr, other.auc) == (curve.apgr, curve.auc)
        assert [other.cpt(level) for level in LEVELS] == [curve.cpt(level) for level in LEVELS]


@given(st.integers(0, 2**32 - 1))
def test_no_preference_beats_the_gain_itself_and_none_falls_below_its_reverse(seed):
    preference, weak, strong = two_experts(seed)
    best = two_expert_curve(strong - weak, weak, strong).apgr
    worst = two_expert_curve(weak - strong, weak, strong).apgr
    assert worst - 1e-9 <= two_expert_curve(preference, weak, strong).apgr <= best + 1e-9
    assert best >= 0.5 - 1e-9


@given(st.integers(0, 2**32 - 1))
def test_apgr_is_the_auc_between_those_of_the_weak_and_the_strong(seed):
    curve = two_expert_curve(*two_experts(seed))
    gap = curve.quality[-1] - curve.quality[0]
    assert curve.apgr == pytest.approx((curve.auc - curve.quality[0]) / gap)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_cpt_is_where_the_level_is_first_reached(seed, level):
    curve = two_expert_curve(*two_experts(seed))
    share = curve.cpt(level)
    assert np.interp(share, curve.strong_share, curve.pgr) == pytest.approx(level, abs=1e-6) or (
        level == 0 and share == 0
    )
    below = curve.strong_share < share
    assert (curve.pgr[below] < level).all()


def test_a_random_preference_recovers_half_and_the_perfect_one_more():
    rng = np.random.default_rng(0)
    weak, strong = (rng.random((2, 50_000)) < [[0.5], [0.8]]).astype(float)
    assert two_expert_curve(rng.random(50_000), weak, strong).apgr == pytest.approx(0.5, abs=0.02)
    assert two_expert_curve(strong - weak, weak, strong).apgr > 0.9


def test_a_constant_preference_is_the_straight_line():
    curve = two_expert_curve(np.zeros(10), np.zeros(10), np.ones(10))
    np.testing.assert_array_equal(curve.strong_share, [0, 1])
    assert curve.apgr == 0.5
    assert [curve.cpt(level) for level in LEVELS] == pytest.approx(LEVELS)


def test_infinite_preferences_are_ordinary_ties():
    curve = two_expert_curve([np.inf, np.inf, 0.0, -np.inf], [0, 0, 0, 1], [1, 1, 0, 1])
    np.testing.assert_array_equal(curve.strong_share, [0, 0.5, 0.75, 1])


@pytest.mark.parametrize(
    ("preference", "weak", "strong", "message"),
    [
        ([0.0], [1.0], [1.0], "higher than quality_weak on average; got 1 and 1"),
        ([0.0, 1.0], [0.0], [1.0], "preference_for_strong must have shape"),
        ([np.nan], [0.0], [1.0], "1 NaN"),
        ([0.0], [0.0], [np.nan], "quality_strong must be finite"),
        ([], [], [], "at least one row"),
    ],
)
def test_two_expert_inputs_that_break_a_rule_are_refused(preference, weak, strong, message):
    with pytest.raises(InvalidInputError, match=message):
        two_expert_curve(preference, weak, strong)


@pytest.mark.parametrize("level", [-0.1, 1.1, np.nan])
def test_levels_outside_the_unit_interval_are_refused(level):
    with pytest.raises(InvalidInputError, match="level"):
        two_expert_curve([0.0], [0.0], [1.0]).cpt(level)

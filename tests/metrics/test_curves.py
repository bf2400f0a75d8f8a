"""The cost-quality frontier, and the curve for two experts."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mild.errors import InvalidInputError
from mild.metrics import expert_shares, frontier, two_expert_curve

NAN = float("nan")
SEEDS = st.integers(0, 2**32 - 1)
WEIGHTS = [0.0, 0.1, 0.5, 1.0, 3.0, 1e4]


def problem(seed):
    rng = np.random.default_rng(seed)
    n, p = rng.integers(1, 20), rng.integers(1, 5)
    return rng.integers(0, 4, (n, p)) / 4, rng.integers(0, 4, (n, p)) / 2


@given(SEEDS)
def test_every_point_matches_a_plain_loop_with_ties_to_the_highest_index(seed):
    errors, prices = problem(seed)
    guess = np.random.default_rng(seed + 1).integers(0, 4, errors.shape) / 4
    for weight, point in zip(
        WEIGHTS, frontier(guess, prices, errors, prices, WEIGHTS), strict=True
    ):
        chosen = []
        for i in range(len(errors)):
            best = 0
            for k in range(errors.shape[1]):
                mine = guess[i, k] + weight * prices[i, k]
                if mine <= guess[i, best] + weight * prices[i, best]:
                    best = k
            chosen.append(best)
        rows = range(len(errors))
        assert point.weight == weight
        assert point.error == pytest.approx(np.mean([errors[i, chosen[i]] for i in rows]))
        assert point.price == pytest.approx(np.mean([prices[i, chosen[i]] for i in rows]))
        np.testing.assert_allclose(point.shares, expert_shares(chosen, errors.shape[1]))


@given(SEEDS)
def test_with_perfect_estimates_price_falls_and_error_rises_with_the_weight(seed):
    errors, prices = problem(seed)
    points = frontier(errors, prices, errors, prices, WEIGHTS)
    # At weight 0 a tie in error may be broken towards the dearer expert.
    for before, after in itertools.pairwise(points[1:]):
        assert after.price <= before.price + 1e-12
        assert after.error >= before.error - 1e-12
    assert points[0].error == pytest.approx(errors.min(axis=1).mean())
    assert points[-1].price == pytest.approx(prices.min(axis=1).mean())


@given(SEEDS)
def test_prices_per_expert_equal_the_same_prices_in_every_row(seed):
    errors, prices = problem(seed)
    flat = prices[0]
    full = np.broadcast_to(flat, errors.shape)
    for one, other in zip(
        frontier(errors, flat, errors, flat, WEIGHTS),
        frontier(errors, full, errors, full, WEIGHTS),
        strict=True,
    ):
        assert (one.error, one.price) == (other.error, other.price)
        np.testing.assert_array_equal(one.shares, other.shares)


def test_what_was_never_asked_is_refused_or_skipped():
    guess, happened = [[0.0, 1.0], [0.0, 1.0]], [[NAN, 0.0], [0.5, 0.0]]
    with pytest.raises(InvalidInputError, match=r"1 of 2 rows"):
        frontier(guess, [4.0, 1.0], happened, [4.0, 1.0], [0])
    (point,) = frontier(guess, [4.0, 1.0], happened, [4.0, 1.0], [0], missing="skip")
    assert (point.error, point.price) == (0.5, 4.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expected_errors": [[NAN, 0.0]]}, r"must be finite; got expected_errors\[0, 0\] = nan"),
        ({"expected_errors": np.empty((0, 2))}, "at least one row"),
        ({"expected_prices": [1.0]}, r"expected_prices .* \(1, 2\); got \(1, 1\)"),
        ({"errors": [[np.inf, 1.0]]}, "errors must be finite, or NaN"),
        ({"prices": [[1.0, 2.0, 3.0]]}, "prices must have shape"),
        ({"weights": [-1.0]}, "weights must be non-negative"),
    ],
)
def test_frontier_inputs_that_break_a_rule_are_refused(change, message):
    good = {
        "expected_errors": [[0.0, 1.0]],
        "expected_prices": [1.0, 2.0],
        "errors": [[0.0, 1.0]],
        "prices": [1.0, 2.0],
        "weights": [0.0],
    }
    assert len(frontier(**good)) == 1
    with pytest.raises(InvalidInputError, match=message):
        frontier(**(good | change))


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

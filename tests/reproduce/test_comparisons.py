"""Differences in standard errors and paired intervals, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mild.reproduce.comparisons import paired_t_interval, standard_errors_apart


def test_welch_by_hand() -> None:
    # sqrt(0.003^2 / 3 + 0.0022^2 / 5) = sqrt(3e-6 + 0.968e-6) = 1.99198e-3
    apart = standard_errors_apart(0.049, 0.003, 3, 0.052, 0.0022, 5)
    assert apart == pytest.approx(-0.003 / 1.99198e-3, rel=1e-5)
    assert apart == pytest.approx(-1.50604, rel=1e-5)


def test_welch_is_scipy_s_statistic() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.05, 0.002, 4), rng.normal(0.06, 0.004, 5)
    ours = standard_errors_apart(a.mean(), a.std(ddof=1), 4, b.mean(), b.std(ddof=1), 5)
    assert ours == pytest.approx(stats.ttest_ind(a, b, equal_var=False).statistic, rel=1e-12)


def test_one_seed_or_no_spread_at_all_has_no_standard_error() -> None:
    assert standard_errors_apart(0.05, None, 1, 0.06, 0.002, 5) is None
    assert standard_errors_apart(0.05, 0.0, 3, 0.06, 0.0, 5) is None


def test_the_interval_of_three_seeds_by_hand() -> None:
    # Differences -0.01, -0.02, -0.03: mean -0.02, s = 0.01, t(2; 0.975) = 4.302653.
    interval = paired_t_interval([0.04, 0.05, 0.06], [0.05, 0.07, 0.09])
    reach = 4.302653 * 0.01 / math.sqrt(3)
    assert interval.estimate == pytest.approx(-0.02)
    assert interval.low == pytest.approx(-0.02 - reach, abs=1e-8)
    assert interval.high == pytest.approx(-0.02 + reach, abs=1e-8)
    assert interval.standard_error == pytest.approx(0.01 / math.sqrt(3))
    assert (interval.n, interval.confidence, interval.decided) == (3, 0.95, False)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_interval_is_scipy_s(confidence: float) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=6), rng.normal(size=6)
    expected = stats.ttest_rel(a, b).confidence_interval(confidence)
    interval = paired_t_interval(a, b, confidence)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected), rel=1e-10)


def test_fewer_than_two_pairs_have_no_interval() -> None:
    assert paired_t_interval([], []) is None
    assert paired_t_interval([0.1], [0.2]) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0, 2.0], [2.0, 3.0]),
        ([0.0496, 0.0523, 0.0511], [0.0506, 0.0533, 0.0521]),
        ([0.1 + 0.2, 0.3], [0.2, 0.2]),
    ],
)
def test_equal_differences_have_no_spread_to_judge_by(a: list[float], b: list[float]) -> None:
    assert paired_t_interval(a, b) is None


def test_the_same_numbers_twice_are_level_whatever_rounding_made_of_them() -> None:
    for b in ([0.05, 0.06], [0.05 + 1e-17, 0.06 + 1e-16]):
        interval = paired_t_interval([0.05, 0.06], b)
        assert (interval.estimate, interval.low, interval.high) == (0.0, 0.0, 0.0)
        assert not interval.decided


def test_one_image_of_difference_is_a_spread() -> None:
    # Of 10,000 test images one more is wrong with the second seed.
    interval = paired_t_interval([0.05, 0.0601], [0.05, 0.06])
    assert interval.high > 1e-4

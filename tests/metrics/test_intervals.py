"""Paired, joint and resampled intervals, and the rows that they are computed from."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import t

from mild.errors import InvalidInputError, OptionError
from mild.metrics import (
    grouped_rows,
    joint_intervals,
    linearised_rows,
    paired_interval,
    split_intervals,
)
from mild.metrics.intervals import resampled_intervals, student_quantile


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(400):
        a, b = rng.exponential(1.0, 80), rng.exponential(1.5, 80)
        interval = paired_interval(a, b, 0.9, n_resamples=400, random_state=seed)
        covered += interval.low <= -0.5 <= interval.high
    # 90 % nominal; four standard errors of 400 trials are 0.06.
    assert 0.84 <= covered / 400 <= 0.95


@pytest.mark.parametrize("n", [500, 30_000])
@pytest.mark.parametrize("draw", ["continuous", "few values"])
def test_the_standard_error_is_that_of_the_mean(n, draw):
    rng = np.random.default_rng(1)
    d = rng.exponential(size=n) if draw == "continuous" else rng.integers(-1, 2, n).astype(float)
    interval = paired_interval(d, np.zeros(n), n_resamples=4000)
    expected = d.std() / np.sqrt(n)
    assert interval.estimate == pytest.approx(d.mean())
    assert interval.standard_error == pytest.approx(expected, rel=0.06)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * expected, rel=0.06)
    assert interval.low < interval.estimate < interval.high
    assert interval.n == n


def test_the_bootstrap_of_skewed_data_is_skewed():
    d = np.r_[np.zeros(95), np.full(5, 100.0)] + np.linspace(0, 1e-6, 100)
    interval = paired_interval(d, np.zeros(100))
    assert interval.high - interval.estimate > 1.1 * (interval.estimate - interval.low)


@pytest.mark.parametrize("n_groups", [50, 25_000])
def test_copies_in_one_group_add_no_certainty(n_groups):
    rng = np.random.default_rng(2)
    d = rng.normal(size=n_groups)
    copied, label = np.repeat(d, 4), np.repeat(np.arange(n_groups), 4)
    alone = paired_interval(d, 0 * d, n_resamples=3000)
    together = paired_interval(copied, 0 * copied, n_resamples=3000, groups=label)
    naive = paired_interval(copied, 0 * copied, n_resamples=3000)
    assert together.standard_error == pytest.approx(alone.standard_error, rel=0.06)
    assert naive.standard_error == pytest.approx(alone.standard_error / 2, rel=0.06)


def test_groups_of_unequal_size_give_the_ratio_estimates_error():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 9, 400)
    label = np.repeat(np.arange(400), sizes).astype(str)
    d = rng.normal(size=400).repeat(sizes) + rng.normal(size=len(label))
    totals = np.array([(d[label == str(c)] - d.mean()).sum() for c in range(400)])
    expected = np.sqrt((totals**2).sum()) / len(d)
    interval = paired_interval(d, 0 * d, n_resamples=4000, groups=label)
    assert interval.standard_error == pytest.approx(expected, rel=0.06)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(-1e6, 1e6))
def test_swapping_the_sides_mirrors_and_equal_data_has_no_width(seed, value):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 5, 40), rng.integers(0, 5, 40)
    there, back = paired_interval(a, b, 0.9, 200), paired_interval(b, a, 0.9, 200)
    assert back.estimate == pytest.approx(-there.estimate)
    same = paired_interval(np.full(40, value), np.zeros(40), 0.9, 200)
    assert same.low == same.high == same.estimate == value
    assert same.standard_error == 0
    assert same.decided == (value != 0)


def test_a_seed_repeats_and_a_far_mean_costs_no_digits():
    d = np.random.default_rng(5).normal(size=300)
    one, again = paired_interval(d, 0 * d), paired_interval(d, 0 * d)
    assert one == again
    assert paired_interval(d, 0 * d, random_state=1) != one
    far = paired_interval(d + 1e9, 0 * d)
    assert far.high - far.low == pytest.approx(one.high - one.low, rel=1e-5)


@pytest.mark.parametrize("n", [4, 10, 25])
def test_few_pairs_keep_the_promise(n):
    rng = np.random.default_rng(n)
    wrong = []
    for _ in range(600):
        d = rng.normal(size=n)
        wrong.append(paired_interval(d, 0 * d, n_resamples=100).decided)
    assert np.mean(wrong) < 0.075


def test_few_groups_are_as_few_rows():
    d = np.random.default_rng(7).normal(size=12)
    rows = paired_interval(d, 0 * d, n_resamples=4000)
    copies = np.repeat(d, 50)
    groups = paired_interval(copies, 0 * copies, n_resamples=4000, groups=np.repeat(range(12), 50))
    assert (groups.low, groups.high) == pytest.approx((rows.low, rows.high), rel=0.05)


@pytest.mark.slow
def test_a_million_pairs_take_little_memory():
    rng = np.random.default_rng(6)
    a, b = rng.exponential(size=(2, 1_000_000))
    tracemalloc.start()
    interval = paired_interval(a, b)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6
    assert interval.standard_error == pytest.approx((a - b).std() / 1000, rel=0.06)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"b": [1.0, 2.0]}, r"b must have shape \(n_samples,\) = \(3,\); got \(2,\)"),
        ({"a": [1.0, np.nan, 2.0]}, r"a must be finite; got a\[1\] = nan"),
        ({"a": [1.0], "b": [0.0]}, "at least two entries to resample; got 1"),
        ({"groups": [0, 0, 0]}, "groups must name at least two entries"),
        ({"groups": [0, 1]}, "groups must have shape"),
        ({"n_resamples": 10}, "n_resamples must be at least .* = 40"),
    ],
)
def test_paired_inputs_that_break_a_rule_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        paired_interval(**({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 1.0]} | arguments))


@pytest.mark.parametrize("n", [5, 20, 2000])
def test_one_candidate_gives_students_interval(n):
    d = np.random.default_rng(0).normal(size=(n, 1))
    result = joint_intervals(d, n_draws=200_000)
    assert result.quantile == pytest.approx(stats.t.ppf(0.975, n - 1), rel=0.02)
    assert result.standard_error[0] == pytest.approx(d.std(ddof=1) / np.sqrt(n))
    one_sided = joint_intervals(d, side="upper", n_draws=200_000)
    assert one_sided.quantile == pytest.approx(stats.t.ppf(0.95, n - 1), rel=0.02)


def test_independent_candidates_need_sidaks_quantile():
    d = np.random.default_rng(1).normal(size=(20_000, 10))
    expected = stats.norm.ppf((1 + 0.95 ** (1 / 10)) / 2)
    assert joint_intervals(d, n_draws=100_000).quantile == pytest.approx(expected, rel=0.01)


def test_copies_of_a_candidate_cost_nothing():
    d = np.random.default_rng(2).normal(size=(50, 1))
    alone = joint_intervals(d, n_draws=50_000)
    many = joint_intervals(np.tile(d, 8), n_draws=50_000)
    assert many.quantile == pytest.approx(alone.quantile, rel=0.03)


@pytest.mark.parametrize("side", ["two-sided", "upper"])
def test_noise_alone_is_rarely_called_a_discovery(side):
    rng = np.random.default_rng(3)
    false, naive = 0, 0
    for seed in range(300):
        d = rng.normal(size=(60, 15)) + rng.normal(size=(60, 1))
        result = joint_intervals(d, random_state=seed, side=side, n_draws=2000)
        false += result.decided.any()
        naive += (np.abs(result.estimate) > 1.96 * result.standard_error).any()
    # 5 % nominal, standard error 1.3 %; judged one by one the best of 15 misleads far more often.
    assert 0.005 <= false / 300 <= 0.10
    assert naive / 300 > 0.15


def test_a_real_difference_is_found_on_the_side_asked_for():
    shift = np.array([-1.0, 0.0, 1.0])
    d = np.random.default_rng(4).normal(size=(500, 3)) + shift
    np.testing.assert_array_equal(joint_intervals(d).decided, [True, False, True])
    upper = joint_intervals(d, side="upper")
    np.testing.assert_array_equal(upper.decided, [True, False, False])
    assert (upper.low == -np.inf).all()
    lower = joint_intervals(d, side="lower")
    np.testing.assert_array_equal(lower.decided, [False, False, True])
    assert (lower.high == np.inf).all()


def test_constant_columns_have_no_width_and_change_nothing_else():
    d = np.random.default_rng(5).normal(size=(100, 2))
    constant = np.c_[d[:, :1], np.full(100, 0.1), np.zeros(100), d[:, 1:]]
    plain, mixed = joint_intervals(d), joint_intervals(constant)
    assert mixed.quantile == pytest.approx(plain.quantile, rel=1e-12)
    np.testing.assert_allclose(mixed.low[[0, 3]], plain.low)
    assert mixed.low[1] == mixed.high[1] == 0.1
    np.testing.assert_array_equal(mixed.decided[1:3], [True, False])
    only = joint_intervals(np.full((10, 2), 3.0))
    np.testing.assert_array_equal(only.low, only.high)
    assert only.quantile == 0


def test_standard_errors_lose_no_digits_far_from_zero():
    d = np.random.default_rng(6).normal(size=(1000, 4)) + 1e6
    found = joint_intervals(d, n_draws=500)
    np.testing.assert_allclose(found.standard_error, d.std(axis=0, ddof=1) / np.sqrt(1000))


def test_replicates_do_not_depend_on_the_size_of_a_block(monkeypatch):
    a, b = np.random.default_rng(6).normal(size=(2, 50))
    whole = paired_interval(a, b)
    monkeypatch.setattr("mild.metrics.intervals.BLOCK", 64)
    assert paired_interval(a, b) == whole


def test_joint_inputs_that_break_a_rule_are_refused():
    with pytest.raises(InvalidInputError, match="two rows; got 1"):
        joint_intervals([[1.0, 2.0]])
    with pytest.raises(InvalidInputError, match=r"got differences\[1, 0\] = nan"):
        joint_intervals([[1.0], [np.nan]])
    with pytest.raises(InvalidInputError, match="n_draws must be at least"):
        joint_intervals([[1.0], [2.0]], n_draws=3)
    with pytest.raises(OptionError, match="side must be one of"):
        joint_intervals([[1.0], [2.0]], side="left")


def test_intervals_over_splits_are_wider_than_independent_ones_would_be():
    differences = np.random.default_rng(0).normal(-0.1, 0.05, size=(10, 1))
    plain = resampled_intervals(differences, 0.0)
    corrected = resampled_intervals(differences, 0.3 / 0.7)
    ratio = (corrected.high - corrected.low) / (plain.high - plain.low)
    assert ratio[0] == pytest.approx(np.sqrt(1 + 10 * 0.3 / 0.7))


@pytest.mark.parametrize("n_splits", [2, 5, 10])
@pytest.mark.parametrize("m", [1, 10])
def test_no_method_looks_better_by_chance_more_often_than_promised(n_splits, m):
    rng, share, runs = np.random.default_rng(1), 0.3, 1500
    # Splits share a part of the rows: their differences correlate by the share of the test rows.
    common = rng.normal(size=(runs, 1, m)) * np.sqrt(share)
    own = rng.normal(size=(runs, n_splits, m)) * np.sqrt(1 - share)
    wrong = [resampled_intervals(d, share / (1 - share)).decided.any() for d in common + own]
    assert np.mean(wrong) < 0.065


def test_a_partial_table_has_the_ratio_of_whole_splits():
    """Of 1,000 rows 60 can be compared; ten splits test 30 %: a compared row is in 3 tests of 10."""
    rng, runs, n, q = np.random.default_rng(2), 2000, 1000, 0.3
    covered = {"whole splits": 0, "compared rows": 0}
    ratios = {"whole splits": q / (1 - q), "compared rows": q * 60 / ((1 - q) * n)}
    for _ in range(runs):
        difference = rng.normal(size=60)
        tested = rng.random((10, n)).argsort(axis=1)[:, :60] < q * n
        means = (tested @ difference / tested.sum(axis=1))[:, None]
        for name, ratio in ratios.items():
            covered[name] += not resampled_intervals(means, ratio).decided[0]
    # Two standard errors of the simulation are 0.01.
    assert covered["whole splits"] / runs == pytest.approx(0.95, abs=0.015)
    assert covered["compared rows"] / runs < 0.75


def test_the_standard_error_is_at_least_the_floor():
    found = resampled_intervals([[-0.1, 0.0, 0.3], [-0.1, 0.0, 0.5]], 0.5, floor=[0.02, 0.0, 1e-9])
    assert found.standard_error[0] == 0.02
    assert (found.low[1], found.high[1]) == (0, 0)
    assert found.standard_error[2] == pytest.approx(np.sqrt(0.02))
    # Two columns are open.
    assert found.quantile == pytest.approx(t.ppf(1 - 0.05 / 4, 1))


def test_quantiles_are_those_of_student():
    for freedom in (1, 2, 3, 4, 9, 28, 29, 200, 201, 1000):
        for coverage in (0.5, 0.95, 0.9995):
            expected = t.ppf((1 + coverage) / 2, freedom)
            assert student_quantile(coverage, freedom) == pytest.approx(expected, rel=5e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"differences": [[1.0]]}, "two splits"),
        ({"differences": [[1.0], [np.nan]]}, "finite"),
        ({"test_over_train": -1}, "non-negative"),
        ({"floor": [-1.0]}, "floor must be non-negative"),
        ({"floor": [1.0, 1.0]}, "floor must have shape"),
    ],
)
def test_resampled_inputs_that_break_a_rule_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        resampled_intervals(**({"differences": [[1.0], [2.0]], "test_over_train": 0.3} | arguments))


def test_complete_equally_weighted_values_are_returned_as_they_are() -> None:
    values = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_allclose(linearised_rows(values), values)


def test_means_are_the_weighted_means_of_what_is_known() -> None:
    rng = np.random.default_rng(1)
    values, weight = rng.normal(size=(50, 2)), rng.random(50)
    values[rng.random((50, 2)) < 0.4] = np.nan
    found = linearised_rows(values, weight).mean(axis=0)
    for column in range(2):
        known = ~np.isnan(values[:, column])
        expected = np.average(values[known, column], weights=weight[known])
        assert found[column] == pytest.approx(expected)


def test_a_column_that_is_never_known_is_nan() -> None:
    assert np.isnan(linearised_rows([[1.0, np.nan], [2.0, np.nan]])[:, 1]).all()


def test_the_spread_is_the_standard_error_of_the_mean_of_known_rows() -> None:
    rng = np.random.default_rng(2)
    means, errors = [], []
    for _ in range(400):
        values = rng.normal(size=(80, 1))
        values[rng.random((80, 1)) < 0.5] = np.nan
        rows = linearised_rows(values)
        means.append(rows.mean())
        errors.append(rows.std() / np.sqrt(80))
    assert np.std(means) == pytest.approx(np.mean(errors), rel=0.1)


def test_unknown_values_are_left_out_of_weighted_means() -> None:
    values = [[1.0, np.nan], [3.0, np.nan], [5.0, 2.0], [9.0, 4.0]]
    found = linearised_rows(values, [3.0, 3.0, 1.0, 1.0])
    np.testing.assert_allclose(found.mean(axis=0), [(3 * 4 + 14) / 8, 3.0])


def test_groups_and_rows_have_the_same_mean() -> None:
    d = np.random.default_rng(1).normal(size=(60, 2))
    assert grouped_rows(d, np.arange(60) % 7).mean(axis=0) == pytest.approx(d.mean(axis=0))
    twice = split_intervals([np.tile(d, (2, 1))], [np.tile(range(60), 2)])
    assert twice.standard_error == pytest.approx(joint_intervals(d).standard_error)


@pytest.mark.parametrize("m", [1, 3])
def test_one_group_or_one_split_more_does_not_change_the_way_to_an_interval(m) -> None:
    d = np.random.default_rng(1).normal(size=(90, m))
    alone = split_intervals([d], [np.arange(90)])
    # A single group has no spread: its rows count.
    single = split_intervals([d], [np.zeros(90)])
    assert (single.low, single.high) == (pytest.approx(alone.low), pytest.approx(alone.high))
    halves = split_intervals([d[:45], d[45:]], [np.arange(45), np.arange(45, 90)])
    assert halves.estimate == pytest.approx(alone.estimate)
    # Splits that agree by chance are no more certain than their rows.
    same = split_intervals([d, d], [np.arange(90)] * 2)
    assert (same.standard_error > 0).all()

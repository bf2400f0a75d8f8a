"""Paired bootstrap intervals: coverage, clusters, size, degenerate data."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild.errors import InvalidInputError
from mild.metrics import paired_interval


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


@pytest.mark.parametrize("n_clusters", [50, 25_000])
def test_copies_in_one_cluster_add_no_certainty(n_clusters):
    rng = np.random.default_rng(2)
    d = rng.normal(size=n_clusters)
    copied, label = np.repeat(d, 4), np.repeat(np.arange(n_clusters), 4)
    alone = paired_interval(d, 0 * d, n_resamples=3000)
    together = paired_interval(copied, 0 * copied, n_resamples=3000, clusters=label)
    naive = paired_interval(copied, 0 * copied, n_resamples=3000)
    assert together.standard_error == pytest.approx(alone.standard_error, rel=0.06)
    assert naive.standard_error == pytest.approx(alone.standard_error / 2, rel=0.06)


def test_clusters_of_unequal_size_give_the_ratio_estimates_error():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 9, 400)
    label = np.repeat(np.arange(400), sizes).astype(str)
    d = rng.normal(size=400).repeat(sizes) + rng.normal(size=len(label))
    totals = np.array([(d[label == str(c)] - d.mean()).sum() for c in range(400)])
    expected = np.sqrt((totals**2).sum()) / len(d)
    interval = paired_interval(d, 0 * d, n_resamples=4000, clusters=label)
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


def test_decided_means_that_zero_is_outside():
    noise = np.random.default_rng(4).normal(size=200)
    assert not paired_interval(noise - noise.mean(), np.zeros(200)).decided
    assert paired_interval(noise + 1, np.zeros(200)).decided
    assert paired_interval(noise - 1, np.zeros(200)).decided


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


def test_few_clusters_are_as_few_rows():
    d = np.random.default_rng(7).normal(size=12)
    rows = paired_interval(d, 0 * d, n_resamples=4000)
    copies = np.repeat(d, 50)
    clusters = paired_interval(
        copies, 0 * copies, n_resamples=4000, clusters=np.repeat(range(12), 50)
    )
    assert (clusters.low, clusters.high) == pytest.approx((rows.low, rows.high), rel=0.05)


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
        ({"a": [1.0, np.nan, 2.0]}, r"a must be finite; got nan in row 1 \(1 such row\(s\)\)"),
        ({"a": [1.0], "b": [0.0]}, "at least two entries to resample; got 1"),
        ({"a": [], "b": []}, "at least two entries to resample; got 0"),
        ({"clusters": [0, 0, 0]}, "clusters must name at least two entries"),
        ({"clusters": [0, 1]}, "clusters must have shape"),
        ({"confidence": 1.0}, "strictly between"),
        ({"n_resamples": 10}, "n_resamples must be at least .* = 40"),
    ],
)
def test_inputs_that_break_a_rule_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        paired_interval(**({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 1.0]} | arguments))

"""Joint intervals: the family holds together, and one candidate alone is Student's interval."""

import numpy as np
import pytest
from scipy import stats

from mild.errors import InvalidInputError, OptionError
from mild.metrics import simultaneous_intervals


@pytest.mark.parametrize("n", [5, 20, 2000])
def test_one_candidate_gives_students_interval(n):
    d = np.random.default_rng(0).normal(size=(n, 1))
    result = simultaneous_intervals(d, n_draws=200_000)
    assert result.quantile == pytest.approx(stats.t.ppf(0.975, n - 1), rel=0.02)
    assert result.standard_error[0] == pytest.approx(d.std(ddof=1) / np.sqrt(n))
    one_sided = simultaneous_intervals(d, side="upper", n_draws=200_000)
    assert one_sided.quantile == pytest.approx(stats.t.ppf(0.95, n - 1), rel=0.02)


def test_independent_candidates_need_sidaks_quantile():
    d = np.random.default_rng(1).normal(size=(20_000, 10))
    expected = stats.norm.ppf((1 + 0.95 ** (1 / 10)) / 2)
    assert simultaneous_intervals(d, n_draws=100_000).quantile == pytest.approx(expected, rel=0.01)


def test_copies_of_a_candidate_cost_nothing():
    d = np.random.default_rng(2).normal(size=(50, 1))
    alone = simultaneous_intervals(d, n_draws=50_000)
    many = simultaneous_intervals(np.tile(d, 8), n_draws=50_000)
    assert many.quantile == pytest.approx(alone.quantile, rel=0.03)


@pytest.mark.parametrize("side", ["two-sided", "upper"])
def test_noise_alone_is_rarely_called_a_discovery(side):
    rng = np.random.default_rng(3)
    false, naive = 0, 0
    for seed in range(300):
        d = rng.normal(size=(60, 15)) + rng.normal(size=(60, 1))
        result = simultaneous_intervals(d, random_state=seed, side=side, n_draws=2000)
        false += result.decided.any()
        naive += (np.abs(result.estimate) > 1.96 * result.standard_error).any()
    # 5 % nominal, standard error 1.3 %; judged one by one the best of 15 misleads far more often.
    assert 0.005 <= false / 300 <= 0.10
    assert naive / 300 > 0.15


def test_a_real_difference_is_found_on_the_side_asked_for():
    shift = np.array([-1.0, 0.0, 1.0])
    d = np.random.default_rng(4).normal(size=(500, 3)) + shift
    np.testing.assert_array_equal(simultaneous_intervals(d).decided, [True, False, True])
    upper = simultaneous_intervals(d, side="upper")
    np.testing.assert_array_equal(upper.decided, [True, False, False])
    assert (upper.low == -np.inf).all()
    lower = simultaneous_intervals(d, side="lower")
    np.testing.assert_array_equal(lower.decided, [False, False, True])
    assert (lower.high == np.inf).all()


def test_constant_columns_have_no_width_and_change_nothing_else():
    d = np.random.default_rng(5).normal(size=(100, 2))
    constant = np.c_[d[:, :1], np.full(100, 0.1), np.zeros(100), d[:, 1:]]
    plain, mixed = simultaneous_intervals(d), simultaneous_intervals(constant)
    assert mixed.quantile == pytest.approx(plain.quantile, rel=1e-12)
    np.testing.assert_allclose(mixed.low[[0, 3]], plain.low)
    assert mixed.low[1] == mixed.high[1] == 0.1
    np.testing.assert_array_equal(mixed.decided[1:3], [True, False])
    only = simultaneous_intervals(np.full((10, 2), 3.0))
    np.testing.assert_array_equal(only.low, only.high)
    assert only.quantile == 0


def test_many_rows_are_taken_in_blocks_without_changing_the_result(monkeypatch):
    d = np.random.default_rng(6).normal(size=(1000, 4)) + 1e6
    whole = simultaneous_intervals(d, n_draws=500)
    monkeypatch.setattr("mild.metrics.simultaneous.BLOCK", 64)
    np.testing.assert_allclose(
        simultaneous_intervals(d, n_draws=500).standard_error, whole.standard_error
    )
    np.testing.assert_allclose(whole.standard_error, d.std(axis=0, ddof=1) / np.sqrt(1000))


def test_permuting_candidates_permutes_estimates_and_errors():
    d = np.random.default_rng(7).normal(size=(100, 4))
    order = [2, 0, 3, 1]
    one, other = simultaneous_intervals(d), simultaneous_intervals(d[:, order])
    np.testing.assert_allclose(other.estimate, one.estimate[order])
    np.testing.assert_allclose(other.standard_error, one.standard_error[order])
    assert other.quantile == pytest.approx(one.quantile, rel=0.03)


def test_inputs_that_break_a_rule_are_refused():
    with pytest.raises(InvalidInputError, match="two rows; got 1"):
        simultaneous_intervals([[1.0, 2.0]])
    with pytest.raises(InvalidInputError, match="got nan in row 1, column 0"):
        simultaneous_intervals([[1.0], [np.nan]])
    with pytest.raises(InvalidInputError, match="n_draws must be at least"):
        simultaneous_intervals([[1.0], [2.0]], n_draws=3)
    with pytest.raises(OptionError, match="side must be one of"):
        simultaneous_intervals([[1.0], [2.0]], side="left")

"""Intervals over splits that share rows."""

import numpy as np
import pytest
from scipy.stats import t

from mild.errors import InvalidInputError
from mild.metrics import resampled_intervals
from mild.metrics.student import student_quantile


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
        ({"confidence": 1.0}, "strictly between"),
        ({"floor": [-1.0]}, "floor must be non-negative"),
        ({"floor": [1.0, 1.0]}, "floor must have shape"),
    ],
)
def test_inputs_that_break_a_rule_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        resampled_intervals(**({"differences": [[1.0], [2.0]], "test_over_train": 0.3} | arguments))

"""Rows with plain means, whatever is weighted or missing."""

from __future__ import annotations

import numpy as np
import pytest

from mild.metrics import linearised_rows


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

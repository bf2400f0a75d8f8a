"""Rows and weights: what judging a routing accepts and what it refuses."""

import numpy as np
import pytest

from mild.errors import InvalidInputError, OptionError
from mild.metrics.rows import (
    check_draws,
    evaluated_costs,
    known_rows,
    row_weights,
)

NAN = float("nan")


def test_an_expert_never_asked_is_kept_as_a_column():
    costs = np.array([[1.0, NAN], [2.0, NAN]])
    np.testing.assert_array_equal(evaluated_costs(costs), costs)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (np.empty((0, 2)), "at least one row"),
        ([[NAN, NAN], [1.0, NAN]], r"costs\[0\] is all NaN"),
        ([[-1.0, NAN]], "non-negative"),
        ([[np.inf, NAN]], "finite"),
        ([1.0, 2.0], "shape"),
    ],
)
def test_costs_that_break_a_rule_are_refused(costs, message):
    with pytest.raises(InvalidInputError, match=message):
        evaluated_costs(costs)


def test_weights_are_relative_to_the_largest_even_when_huge_or_tiny():
    np.testing.assert_array_equal(row_weights([1e308, 5e307, 0], 3), [1, 0.5, 0])
    np.testing.assert_array_equal(row_weights([5e-324, 0], 2), [1, 0])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"\(2,\); got \(1,\)"),
        ([1.0, -1.0], r"non-negative; got sample_weight\[1\] = -1"),
        ([0.0, 0.0], "positive sum"),
        ([1.0, NAN], r"finite; got sample_weight\[1\] = nan"),
        (["a", "b"], "numbers"),
    ],
)
def test_weights_that_break_a_rule_are_refused(weights, message):
    with pytest.raises(InvalidInputError, match=message):
        row_weights(weights, 2)


def test_missing_rows_are_counted_skipped_or_refused():
    values = np.array([1.0, NAN, 3.0, NAN])
    with pytest.raises(InvalidInputError, match=r"2 of 4 rows.*missing='skip'"):
        known_rows(values, "error")
    np.testing.assert_array_equal(values[known_rows(values, "skip")], [1.0, 3.0])
    with pytest.raises(InvalidInputError, match="at least one row"):
        known_rows(values[[1, 3]], "skip")
    with pytest.raises(OptionError, match="Did you mean 'skip'"):
        known_rows(values, "skipp")


def test_too_few_draws_for_the_confidence_are_refused():
    check_draws("n_draws", 40, 0.95)
    with pytest.raises(InvalidInputError, match=r"n_draws must be at least .* = 40; got 39"):
        check_draws("n_draws", 39, 0.95)
    for confidence in (0.0, 1.0, NAN):
        with pytest.raises(InvalidInputError, match="confidence must"):
            check_draws("n_draws", 1000, confidence)

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from mild.core.costs import cheapest_expected
from mild.core.rounding import ESTIMATE_TOLERANCE, first_smallest, is_less, tie_ranks

NUMBERS = st.lists(st.integers(-20, 20), min_size=1, max_size=12)


def rounded_otherwise(values, seed):
    """The values with other last digits."""
    units = np.random.default_rng(seed).integers(-4, 5, np.shape(values))
    return np.asarray(values, float) * (1 + units * np.finfo(float).eps)


@given(NUMBERS, st.integers(0, 100))
def test_ranks_are_those_of_the_different_values_whatever_their_last_digits(numbers, seed):
    values = np.array(numbers) / 7
    expected = np.unique(numbers, return_inverse=True)[1]
    assert_array_equal(tie_ranks(rounded_otherwise(values, seed)), expected)
    assert first_smallest(rounded_otherwise(values, seed)) == numbers.index(min(numbers))


def test_unknown_and_infinite_values_come_last():
    assert_array_equal(tie_ranks([np.inf, 1.0, 2.0]), [2, 0, 1])
    assert_array_equal(tie_ranks([np.nan, 1.0, 2.0]), [2, 0, 1])
    assert first_smallest([np.inf, 3.0, 2.0]) == 2
    assert first_smallest([np.nan, 3.0]) == 1
    assert tie_ranks([]).size == 0


def test_values_tie_by_their_own_size_whatever_the_largest_is():
    assert_array_equal(tie_ranks([2e-5, 1e-5, 20.0]), [1, 0, 2])
    assert_array_equal(tie_ranks([1e-17, 0.0, 1.0]), [0, 0, 1])


def test_sums_whose_terms_cancel_tie_by_the_size_of_the_terms():
    assert_array_equal(tie_ranks([1e-12, 0.0], scale=1e4), [0, 0])
    assert_array_equal(tie_ranks([1e-12, 0.0]), [1, 0])


def test_a_number_is_less_by_more_than_rounding():
    assert is_less(1.0, np.inf)
    assert is_less(-np.inf, 1.0)
    assert is_less(1.0, 1.1)
    assert is_less(-1.1, -1.0)
    assert not is_less(1.0, 1.0 + 1e-12)
    assert not is_less(1.1, 1.0)


@given(
    st.lists(NUMBERS.filter(lambda row: len(row) >= 3), min_size=1, max_size=6), st.integers(0, 9)
)
def test_of_the_lowest_expected_costs_the_last_is_chosen(rows, seed):
    costs = np.array([row[:3] for row in rows]) / 7
    expected = [2 - int(np.argmin(row[::-1])) for row in np.array([row[:3] for row in rows])]
    for dtype in (np.float64, np.float32):
        found = cheapest_expected(rounded_otherwise(costs, seed).astype(dtype))
        assert_array_equal(found, expected)


def test_costs_of_any_size_tie_by_their_own_size():
    for size in (1e-6, 1.0, 1e6):
        costs = size * np.array(
            [[1.0, 1.0 + ESTIMATE_TOLERANCE / 2, 1.1], [1.0, 1.0 + 3 * ESTIMATE_TOLERANCE, 1.1]]
        )
        assert_array_equal(cheapest_expected(costs), [1, 0])

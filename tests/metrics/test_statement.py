"""One rule for every verdict."""

import math

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.metrics import count_judged, state, state_choices

NAMES = ("small", "large")


@pytest.mark.parametrize(
    ("interval", "pays", "start"),
    [
        (
            (-0.1, -0.2, -0.01),
            True,
            "Routing pays: the mean loss of r is 0.1000 lower than that of always c (",
        ),
        ((0.1, 0.05, 0.3), False, "Routing does not pay: the mean loss of r is 0.1000 higher than"),
        ((0.1, 0.0, 0.3), False, "Routing does not pay"),
        (
            (0.1, -0.2, 0.3),
            None,
            "It cannot be told whether routing pays: the mean loss of r is 0.1000 higher",
        ),
        (
            (-0.1, -0.3, 0.1),
            None,
            "It cannot be told whether routing pays: the mean loss of r is 0.1000 lower",
        ),
        ((-0.1, -0.2, 0.0), None, "It cannot be told"),
        (
            (0.0, -0.2, 0.2),
            None,
            "It cannot be told whether routing pays: the mean loss of r is equal to",
        ),
        (
            (0.0, 0.0, 0.0),
            False,
            "Routing does not pay: the mean loss of r is equal to that of always c (",
        ),
    ],
)
def test_a_statement_says_what_the_interval_says(interval, pays, start):
    found = state("r", "c", interval, rows=100)
    assert found.pays is pays
    assert found.sentence.startswith(start)
    assert ("within the noise" in found.sentence) == (pays is None)
    assert (found.rows_needed is not None) == (pays is None and interval[0] < 0)


def test_few_units_are_no_ground_however_many_rows_they_have():
    sure = (-0.2, -0.3, -0.1)
    found = state("r", "c", sure, rows=1000, units=29, unit="group")
    assert found.pays is None
    assert "but 29 groups are too few to judge by, which takes 30" in found.sentence
    assert "1,000 rows in 29 groups" in found.sentence
    assert "about 30 groups would show it" in found.sentence
    assert state("r", "c", sure, rows=1000, units=30, unit="group").pays is True
    assert "1 row is too few" in state("r", "c", sure, rows=1).sentence


@pytest.mark.parametrize(("splits", "needed"), [(1, 400), (2, None), (4, None), (5, 400)])
def test_with_few_splits_more_splits_are_needed_before_more_rows(splits, needed):
    found = state("r", "c", (-0.1, -0.3, 0.1), rows=100, splits=splits)
    assert (found.pays, found.rows_needed) == (None, needed)
    assert ("5 or more" in found.sentence) == (needed is None)


def test_choices_that_are_the_constant_s_need_no_rows():
    assert state("r", "c", (0.0, 0.0, 0.0), rows=5, identical=True).pays is False
    assert state("r", "c", (0.0, 0.0, 0.0), rows=5).pays is None


@pytest.mark.parametrize("high", [0.0, 1e-6, 0.01, 0.5])
def test_what_is_needed_is_more_than_there_is_and_looks_towards_zero(high):
    found = state("r", "c", (-0.1, -0.9, high), rows=500, units=200, unit="query")
    assert found.rows_needed > 200
    assert found.rows_needed == max(201, math.ceil(200 * ((high + 0.1) / 0.1) ** 2 - 1e-9))
    assert f"about {found.rows_needed:,} distinct queries would show it" in found.sentence
    assert "500 rows of 200 distinct queries" in found.sentence


def test_a_gain_that_would_not_show_yet_shows_with_what_is_said_to_be_needed():
    d = np.random.default_rng(0).normal(-0.1, 1, size=200)
    costs = np.column_stack([d - d.mean() - 0.1, np.zeros(200)]) + 5
    found = state_choices(costs, np.zeros(200, int), 1, NAMES)
    assert found.pays is None
    times = -(-found.rows_needed // 200) + 1
    again = state_choices(np.tile(costs, (times, 1)), np.zeros(200 * times, int), 1, NAMES)
    assert again.pays is True


def test_with_strata_the_estimate_is_the_mean_over_strata():
    strata = np.repeat(["a", "b"], [90, 10])
    gain = np.where(strata == "a", -1.0, 5.0)
    noise = np.random.default_rng(0).normal(0, 0.1, size=100)
    costs = np.column_stack([5 + gain + noise, np.full(100, 5.0)])
    rows = state_choices(costs, np.zeros(100, int), 1, NAMES)
    alike = state_choices(costs, np.zeros(100, int), 1, NAMES, strata=strata)
    assert (rows.pays, alike.pays) == (True, False)
    means = [(costs[:, 0] - 5)[strata == name].mean() for name in "ab"]
    assert alike.estimate == pytest.approx(np.mean(means))
    # What strata differ by is no noise.
    assert alike.high - alike.low < 0.2 < rows.high - rows.low
    # As units, the two strata are too few to judge by.
    units = state_choices(costs, np.zeros(100, int), 1, NAMES, bundle=strata == "a", strata=strata)
    assert units.pays is None
    assert units.high - units.low > 10


def test_unknown_costs_are_not_rows():
    costs = np.tile([[0.0, 1.0]], (500, 1))
    costs[20:, 1] = np.nan
    found = state_choices(costs, np.zeros(500, int), 1, NAMES)
    assert (found.rows, found.units, found.pays) == (20, 20, None)
    costs[1:, 1] = np.nan
    bare = state_choices(costs, np.zeros(500, int), 1, NAMES)
    assert math.isnan(bare.estimate)
    assert "too few rows (1) have a known cost" in bare.sentence
    assert count_judged(~np.isnan(costs), np.zeros(500)) == (1, 1)


def test_a_unit_is_a_row_a_query_or_a_group():
    with pytest.raises(InvalidInputError, match="unit must be one of"):
        state("r", "c", (0.0, 0.0, 0.0), rows=5, unit="user")


def test_intervals_that_overflow_need_no_number_of_rows():
    found = state("r", "c", (-1e160, -float("inf"), float("inf")), rows=50)
    assert (found.pays, found.rows_needed) == (None, None)

"""One rule for every verdict."""

import html
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.metrics import Verdict, count_judged, judge_cost

NAMES = ("small", "large")


def make(interval, rows=100, groups=None, **facts):
    estimate, low, high = interval
    return Verdict(
        estimate=estimate,
        low=low,
        high=high,
        constant="c",
        n_rows=rows,
        n_groups=groups or rows,
        **facts,
    )


@pytest.mark.parametrize(
    ("interval", "pays", "gap"),
    [
        ((-0.1, -0.2, -0.01), True, "0.1000 lower than"),
        ((0.1, 0.05, 0.3), False, "0.1000 higher than"),
        ((0.1, 0.0, 0.3), False, "0.1000 higher than"),
        ((0.1, -0.2, 0.3), None, "0.1000 higher than"),
        ((-0.1, -0.3, 0.1), None, "0.1000 lower than"),
        ((-0.1, -0.2, 0.0), None, "0.1000 lower than"),
        ((0.0, -0.2, 0.2), None, "equal to"),
        ((0.0, 0.0, 0.0), False, "equal to"),
    ],
)
def test_the_sentence_says_what_the_interval_says(interval, pays, gap):
    found = make(interval)
    assert found.pays is pays
    start = {True: "Routing pays", False: "Routing does not pay"}.get(pays, "It is not clear")
    assert found.sentence.startswith(start)
    assert f"the mean loss of the router is {gap} that of always c" in found.sentence
    assert ("within the noise" in found.sentence) == (pays is None)
    # With an upper end of 0 the formula gives the rows that are there.
    needs_more = pays is None and interval[0] < 0 < interval[2]
    assert (found.rows_needed is not None) == needs_more


def test_few_groups_are_no_ground_however_many_rows_they_have():
    found = make((-0.2, -0.3, -0.1), rows=1000, groups=29, unit="group")
    assert (found.pays, found.rows_needed) == (None, 30)
    assert "1,000 rows in 29 groups" in found.sentence
    assert replace(found, n_groups=30).pays is True


@pytest.mark.parametrize(("splits", "needed"), [(1, 400), (2, None), (4, None), (5, 400)])
def test_with_few_splits_more_splits_are_needed_before_more_rows(splits, needed):
    found = make((-0.1, -0.3, 0.1), n_splits=splits)
    assert (found.pays, found.rows_needed) == (None, needed)
    assert ("5 or more" in found.sentence) == (needed is None)


def test_choices_that_are_the_constant_s_need_no_rows():
    found = make((0.0, 0.0, 0.0), rows=5)
    assert found.pays is None
    assert replace(found, identical=True).pays is False


def test_no_number_is_said_where_as_many_queries_are_there_already():
    found = make((-0.1, -0.9, 0.0), rows=250, groups=250)
    assert (found.pays, found.rows_needed) == (None, None)
    assert "would show it" not in found.sentence


@pytest.mark.parametrize("high", [1e-6, 0.01, 0.5])
def test_what_is_needed_is_more_than_there_is_and_looks_towards_zero(high):
    found = make((-0.1, -0.9, high), rows=500, groups=200, unit="query")
    assert found.rows_needed == math.ceil(200 * ((high + 0.1) / 0.1) ** 2 - 1e-9)
    assert found.rows_needed > 200
    assert f"about {found.rows_needed:,} distinct queries" in found.sentence


def test_intervals_that_overflow_need_no_number_of_rows():
    found = make((-1e160, -math.inf, math.inf))
    assert (found.pays, found.rows_needed) == (None, None)


def test_it_prints_as_its_sentence_and_is_ready_for_json():
    found = make((-0.1, -0.2, -0.01), router="<b>", n_candidates=3).named("x & y", "query", -0.002)
    assert str(found) == repr(found) == found.sentence
    assert html.unescape(found._repr_html_()) == f"<p>{found.sentence}</p>"
    assert "<b>" not in found._repr_html_()
    assert "saves $2.00 per 1,000" in found.sentence
    fields = json.loads(json.dumps(found.as_dict()))
    assert (fields["constant"], fields["dollars_per_1000"]) == ("x & y", -2.0)
    assert (fields["rows"], fields["n_rows"], fields["units"], fields["n_units"]) == (100,) * 4


def test_what_is_counted_is_a_row_a_query_or_a_group():
    with pytest.raises(InvalidInputError) as caught:
        make((0.0, 0.0, 0.0), unit="user")
    assert caught.value.code == "invalid_unit"


def test_a_gain_that_would_not_show_yet_shows_with_what_is_said_to_be_needed():
    d = np.random.default_rng(0).normal(-0.1, 1, size=200)
    costs = np.column_stack([d - d.mean() - 0.1, np.zeros(200)]) + 5
    found = judge_cost(costs, np.zeros(200, int), 1, NAMES)
    assert found.pays is None
    times = -(-found.rows_needed // 200) + 1
    again = judge_cost(np.tile(costs, (times, 1)), np.zeros(200 * times, int), 1, NAMES)
    assert again.pays is True


def test_unknown_costs_are_not_rows():
    costs = np.tile([[0.0, 1.0]], (500, 1))
    costs[20:, 1] = np.nan
    found = judge_cost(costs, np.zeros(500, int), 1, NAMES)
    assert (found.n_rows, found.n_groups, found.pays) == (20, 20, None)
    costs[1:, 1] = np.nan
    bare = judge_cost(costs, np.zeros(500, int), 1, NAMES)
    assert math.isnan(bare.estimate)
    assert (bare.pays, bare.rows_needed, bare.as_dict()["estimate"]) == (None, None, None)
    assert "too few rows (1) have a known cost" in bare.sentence
    assert count_judged(~np.isnan(costs), np.zeros(500)) == (1, 1)

"""What is odd is counted, and said once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mild.data import read_outcomes
from table_cases import kinds


def found(**columns):
    table = read_outcomes(pa.table(columns))
    return {finding.kind: finding for finding in table.findings}


def test_duplicates_are_counted_whitespace_aside():
    findings = found(prompt=["a b", "c", "a  b ", "a b"], correct__x=[1, 0, 1, 0])
    assert findings["duplicates"].count == 2
    assert findings["duplicates"].sentence.startswith("2 queries repeat an earlier one")


def test_empty_queries_are_counted():
    findings = found(prompt=["a", " \n", None, ""], correct__x=[1, 0, 1, 0])
    assert findings["empty_queries"].count == 3


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([1, 1, 1], "y is always right"),
        ([0, 0, None], "y is always wrong"),
        ([0.5, 0.5, 0.5], "y is at 0.5 in every row"),
    ],
)
def test_an_expert_that_never_varies_is_named(scores, words):
    findings = found(prompt=["a", "b", "c"], correct__x=[1, 0, 1], score__y=scores)
    assert findings["constant"].sentence == f"1 expert never varies: {words}."
    assert "constant" not in found(prompt=["a", "b"], correct__x=[1, 0], correct__y=[1, None])


def test_rows_in_which_all_tie_are_counted():
    findings = found(
        prompt=["a", "b", "c", "d"], correct__x=[1, 0, 1, 0], correct__y=[1, 0, 0, None]
    )
    assert findings["ties"].count == 2
    assert "2 rows are ties (50.0 %)" in findings["ties"].sentence


def test_unknown_prices_are_kept_and_counted_where_an_answer_is():
    findings = found(
        prompt=["a", "b"],
        correct__x=[1, None],
        correct__y=[0, 1],
        cost__x=[None, None],
        cost__y=[0.5, 0.25],
    )
    assert findings["unknown_prices"].count == 1


def test_experts_whose_prices_are_known_in_part_are_named():
    findings = found(
        prompt=["a", "b", "c"],
        correct__some=[1, 0, 1],
        correct__all=[1, 0, 1],
        correct__none=[1, 0, 1],
        correct__asked=[None, 0, 1],
        cost__some=[0.5, None, None],
        cost__all=[0.5, 0.5, 0.5],
        cost__none=[None, None, None],
        cost__asked=[None, 0.5, 0.5],
    )
    finding = findings["unknown_prices"]
    assert finding.count == 5
    assert "Dollars of some (2 of 3 unknown) are means" in finding.sentence
    bare = found(prompt=["a", "b"], correct__x=[1, 0], correct__y=[0, 1], cost__y=[0.5, 0.25])
    assert "means" not in getattr(bare.get("unknown_prices"), "sentence", "")


# Prices


def prices_of(large):
    rows = len(large)
    columns = {"prompt": [f"q{i}" for i in range(rows)]}
    columns |= {"correct__x": [1] * rows, "correct__large": [0] * rows}
    return pa.table(columns | {"cost__x": [0.002] * rows, "cost__large": large})


@pytest.mark.parametrize(
    ("large", "row"),
    [
        ([0.02, 0.02, 50.0, 0.02], 3),  # a single row
        ([20.0, 21.0, 20.0, 20.0], 2),  # an expert in another unit
        ([0.0, 0.0, 0.0, 9.0], 4),  # what costs nothing is no median
    ],
)
def test_a_price_far_above_the_median_is_questioned(large, row):
    found = kinds(prices_of(large))["large_prices"]
    assert f"'large' in row {row}" in found.sentence
    assert "cents" in found.sentence
    assert found.count == sum(price > 2 for price in large)
    described = read_outcomes(prices_of(large)).describe()
    assert found.sentence in described.sentences


@pytest.mark.parametrize("large", [[0.02, 0.02, 1.9, 0.02], [0.0] * 4, [None] * 4])
def test_other_prices_are_not_questioned(large):
    assert "large_prices" not in kinds(prices_of(large))


def test_an_expert_far_below_the_others_is_compared_with_itself():
    cheap = prices_of([1e-6, 1e-6, 1e-6, 1.9e-3])
    assert "row 4" in kinds(cheap)["large_prices"].sentence

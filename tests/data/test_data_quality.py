"""What is odd is counted, and said once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mild.data import read_outcomes
from mild.data.data_quality import ScoreCounts


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


def test_one_answer_is_not_called_constant():
    assert "constant" not in found(prompt=["a", "b"], correct__x=[1, 0], correct__y=[1, None])


def test_rows_in_which_all_tie_are_counted():
    findings = found(
        prompt=["a", "b", "c", "d"], correct__x=[1, 0, 1, 0], correct__y=[1, 0, 0, None]
    )
    assert findings["ties"].count == 2
    assert "2 rows are ties (50.0 %)" in findings["ties"].sentence


CELLS = st.sampled_from([0.0, 0.5, 1.0, np.nan])


@given(scores=arrays(np.float64, (7, 3), elements=CELLS), cut=st.integers(0, 7))
def test_counts_of_pieces_add_up_to_those_of_the_table(scores, cut):
    names = ["x", "y", "z"]
    pieces = ScoreCounts.of(scores[:cut]) + ScoreCounts.of(scores[cut:])
    assert pieces.findings(names) == ScoreCounts.of(scores).findings(names)


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


def test_findings_are_ready_for_json():
    findings = found(prompt=["a", "a"], correct__x=[1, 0])
    assert findings["duplicates"].as_dict() == {
        "kind": "duplicates",
        "count": 1,
        "sentence": "1 query repeats an earlier one, apart from whitespace: keep them on the same "
        "side of a split.",
    }

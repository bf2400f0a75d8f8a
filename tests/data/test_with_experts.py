"""A table held to a router's experts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import InvalidInputError
from outcome_cases import EXPERTS, make_columns


def test_experts_are_selected_and_stay_sorted():
    table = read_outcomes(pa.table(make_columns(10, prices=True)))
    found = table.with_experts(["poet", "adder"])
    assert found.expert_names == ["adder", "poet"]
    np.testing.assert_array_equal(found.scores, table.scores[:, [0, 2]])
    np.testing.assert_array_equal(found.prices, table.prices[:, [0, 2]])
    assert table.with_experts(EXPERTS[::-1]) is table
    assert table.with_experts(EXPERTS) is table


def test_an_expert_that_is_missing_is_named_in_one_sentence():
    table = read_outcomes(pa.table(make_columns(10)))
    with pytest.raises(InvalidInputError, match="trained on adder, baker; the table has no baker"):
        table.with_experts(["adder", "baker"])


def test_rows_that_asked_none_of_them_are_left_out():
    columns = make_columns(10)
    columns["correct__adder"] = [None] * 3 + [1] * 7
    table = read_outcomes(pa.table(columns))
    assert table.with_experts(["adder"]).rows == 7

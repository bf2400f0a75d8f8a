"""A table held to a router's experts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import InvalidInputError
from mild.tuning.training_rows import with_router_experts
from outcome_cases import EXPERTS, make_columns
from small_router_cases import priced_router


def test_experts_are_selected_and_stay_sorted():
    table = read_outcomes(pa.table(make_columns(10, prices=True)))
    found = table.select(["poet", "adder"])
    assert found.experts == ["adder", "poet"]
    np.testing.assert_array_equal(found.scores, table.scores[:, [0, 2]])
    np.testing.assert_array_equal(found.prices, table.prices[:, [0, 2]])
    assert table.select(EXPERTS[::-1]) is table
    assert table.select(EXPERTS) is table


def test_an_expert_that_is_missing_is_named_in_one_sentence():
    table = read_outcomes(pa.table(make_columns(10)))
    with pytest.raises(InvalidInputError) as caught:
        table.select(["adder", "baker"])
    assert str(caught.value) == "the table has no expert 'baker'; it has adder, cook, poet."
    assert caught.value.code == "invalid_experts"


@pytest.mark.parametrize("names", ["adder", []])
def test_names_must_be_a_list_of_at_least_one(names):
    table = read_outcomes(pa.table(make_columns(10)))
    with pytest.raises(InvalidInputError, match="experts must be a list of at least one expert"):
        table.select(names)


def test_a_table_without_an_expert_of_a_router_names_the_router():
    router = priced_router()
    table = read_outcomes(pa.table(make_columns(10)))
    experts = ", ".join(router.experts)
    message = f"the router was trained on {experts}; the table has no {experts}, only adder"
    with pytest.raises(InvalidInputError, match=message):
        with_router_experts(router, table)


def test_rows_that_asked_none_of_them_are_left_out():
    columns = make_columns(10)
    columns["correct__adder"] = [None] * 3 + [1] * 7
    table = read_outcomes(pa.table(columns))
    assert len(table.select(["adder"])) == 7

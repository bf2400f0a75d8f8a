"""Costs in the user's words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError
from outcome_cases import make_columns


def test_terms_survive_json():
    terms = CostTerms({"a": 0.5}, 2.0, None)
    assert CostTerms.from_dict(terms.as_dict()) == terms


def test_spelled_terms_name_every_expert():
    table = read_outcomes(pa.table(make_columns(5)))
    assert CostTerms({"poet": 1.0}).spelled(table).beta == {"adder": 0, "poet": 1.0, "cook": 0}
    assert CostTerms().spelled(table) == CostTerms()


def test_an_unknown_expert_is_refused():
    table = read_outcomes(pa.table(make_columns(5)))
    with pytest.raises(InvalidInputError, match="beta"):
        CostTerms({"baker": 1.0}).costs(table)


def test_unknown_prices_are_refused_where_they_count():
    columns = make_columns(5, prices=True)
    columns["cost__poet"][2] = float("nan")
    table = read_outcomes(pa.table(columns))
    assert CostTerms().costs(table).shape == (5, 3)
    with pytest.raises(InvalidInputError, match="price of every answer"):
        CostTerms(price_weight=1.0).costs(table)

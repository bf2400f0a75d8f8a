"""Costs in the user's words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError
from mild.tuning.tasks import make_task
from outcome_cases import EXPERTS, make_columns


def test_terms_survive_json():
    terms = CostTerms({"a": 0.5}, 2.0, None)
    assert CostTerms.from_dict(terms.as_dict()) == terms


def test_spelled_terms_name_every_expert():
    table = read_outcomes(pa.table(make_columns(5)))
    assert CostTerms({"poet": 1.0}).with_full_names(table).beta == {
        "adder": 0,
        "poet": 1.0,
        "cook": 0,
    }
    assert CostTerms().with_full_names(table) == CostTerms()


def test_rows_without_a_known_loss_are_left_out_of_a_task():
    columns = make_columns(6, prices=True)
    for name in EXPERTS:
        columns[f"cost__{name}"][2] = float("nan")
    columns["cost__poet"][4] = float("nan")
    table = read_outcomes(pa.table(columns))
    whole = make_task(table, CostTerms())
    assert whole.table is table
    assert whole.left_out is None
    task = make_task(table, CostTerms(price_weight=1.0))
    assert task.table.queries == [*columns["prompt"][:2], *columns["prompt"][3:]]
    assert np.argwhere(np.isnan(task.costs)).tolist() == [[3, EXPERTS.index("poet")]]
    assert task.table.row_number(3) == 5, "the row in the file, from 1"
    assert task.table.findings == table.findings
    assert "1 row without any price is left out" in task.left_out
    assert "1 more answer" in task.left_out
    priced = make_task(table, CostTerms(), needs_prices=True)
    assert len(priced.table) == 5
    assert not np.isnan(priced.costs).any(), "the loss has no dollars"


def test_a_task_without_any_known_loss_is_refused():
    columns = make_columns(4, prices=True)
    for name in EXPERTS:
        columns[f"latency_ms__{name}"] = np.full(4, 100.0)
        columns[f"cost__{name}"][:2] = columns[f"latency_ms__{name}"][2:] = float("nan")
    table = read_outcomes(pa.table(columns))
    with pytest.raises(InvalidInputError) as caught:
        make_task(table, CostTerms(price_weight=1.0, latency_weight=1.0))
    assert caught.value.code == "invalid_table"


def test_rows_without_latency_and_rows_without_price_are_both_left_out():
    columns = make_columns(40, prices=True)
    for name in list(columns):
        if name.startswith("cost__"):
            columns[name] = np.where(np.arange(40) == 3, np.nan, columns[name])
            columns[f"latency_ms__{name[6:]}"] = np.where(np.arange(40) == 5, np.nan, 10.0)
    found = make_task(
        read_outcomes(pa.table(columns)), CostTerms(latency_weight=0.1), needs_prices=True
    )
    assert len(found.table) == 38
    assert "latency" in found.left_out
    assert "price" in found.left_out

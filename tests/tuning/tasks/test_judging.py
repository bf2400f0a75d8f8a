"""Choices judged by outcomes."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from figure_cases import task_figures
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.evaluation.figures import minority_recall
from mild.metrics import paired_interval
from mild.tuning.tasks import make_task
from outcome_cases import make_columns


def task_of(columns, terms=None, group=None):
    return make_task(read_outcomes(pa.table(columns)), terms or CostTerms(), group)


def best(task):
    return task.outcomes.oracle()


def test_the_oracle_pays_and_says_so():
    task = task_of(make_columns(200))
    found = task_figures(task, best(task))
    assert found.verdict.pays is True
    assert found.verdict.sentence.startswith("Routing pays: the mean loss of the router is")
    assert found.summary["loss"] == found.summary["oracle_loss"]
    assert found.minority_recall == 1


def test_a_constant_does_not_pay():
    task = task_of(make_columns(200))
    losses = task_figures(task, best(task)).constant_losses
    found = task_figures(task, np.full(200, int(np.argmin(losses))))
    assert found.verdict.pays is False
    assert found.verdict.estimate == 0


def test_rows_that_hang_together_count_once():
    columns = make_columns(60)
    copies = {name: list(values) * 4 for name, values in columns.items()}
    task = task_of(copies)
    chosen = np.tile(np.arange(60) % 3, 4)
    found = task_figures(task, chosen).verdict
    constant = task_figures(task, chosen).summary["constant_expert"]
    alone = paired_interval(
        task.costs[np.arange(240), chosen], task.costs[:, constant], random_state=0
    )
    # Copies tell nothing new: the interval is about twice as wide as that of 240 rows.
    assert (found.high - found.low) / (alone.high - alone.low) == pytest.approx(2, rel=0.2)


def test_dollars_are_those_of_the_choices():
    task = task_of(make_columns(90, prices=True), CostTerms(price_weight=10.0))
    found = task_figures(task, np.zeros(90, int))
    assert found.router_price == pytest.approx(1.0)
    constant = found.summary["constant_expert"]
    assert found.constant_price == pytest.approx(constant + 1)
    np.testing.assert_allclose(found.prices, [1, 2, 3])
    if constant:
        assert f"saves ${constant}.00 per 1,000" in found.verdict.sentence


def test_unknown_prices_are_left_out_of_both_means():
    columns = make_columns(90, prices=True)
    columns["cost__adder"][:45] = np.nan
    found = task_figures(task_of(columns), np.zeros(90, int))
    assert found.router_price == pytest.approx(1.0)
    columns["cost__adder"][:] = np.nan
    assert task_figures(task_of(columns), np.zeros(90, int)).router_price is None


def test_too_few_rows_cannot_tell():
    task = task_of({name: list(values)[:1] for name, values in make_columns(3).items()})
    found = task_figures(task, np.array([0]))
    assert found.verdict.pays is None
    assert "too few distinct queries (1)" in found.verdict.sentence
    assert math.isnan(found.verdict.estimate)


def test_experts_that_were_never_asked_are_left_out_and_counted():
    columns = make_columns(60)
    asked = columns["correct__poet"].astype(float)
    asked[::2] = np.nan
    columns["correct__poet"] = asked
    found = task_figures(task_of(columns), np.ones(60, int))
    assert found.summary["n_known"] == found.verdict.n_rows == 30
    assert found.left_out == "30 of 60 rows are left out because not every expert was asked."
    assert task_figures(task_of(make_columns(60)), np.ones(60, int)).left_out is None


def test_a_table_with_holes_is_judged_on_the_rows_that_have_all():
    # The fourth and the fifth row are left out; dollars, too, are those of the other four.
    table = {
        "prompt": list("abcdef"),
        "correct__first": [1, 0, 0, 1, None, 1],
        "correct__second": [0, 1, 0, None, 1, 0],
        "cost__first": [0.001, 0.001, 0.001, 0.5, None, 0.001],
        "cost__second": [0.004, 0.004, 0.004, None, 0.5, 0.004],
    }
    found = task_figures(task_of(table), np.array([0, 1, 0, 0, 1, 1]))
    assert (found.summary["loss"], found.summary["constant_loss"]) == (0.5, 0.5)
    assert (found.summary["oracle_loss"], found.summary["shuffled_control"]) == (0.25, 0.625)
    assert found.constant_losses.tolist() == [0.5, 0.75]
    assert (found.router_price, found.constant_price) == (pytest.approx(2.5), pytest.approx(1.0))
    assert found.verdict.n_rows == 4
    assert "adds $1.50 per 1,000" in found.verdict.sentence


def test_experts_that_are_all_right_leave_nothing_to_gain():
    columns = make_columns(30)
    columns |= {name: [1] * 30 for name in columns if name.startswith("correct__")}
    found = task_figures(task_of(columns), np.arange(30) % 3)
    assert found.verdict.pays is False
    assert found.summary["headroom_captured"] is None


def test_minority_recall_is_of_the_rare_experts_alone():
    recall = np.array([0.9, 0.1, 0.3, np.nan])
    assert minority_recall(recall, np.array([0.8, 0.1, 0.1, 0.0])) == pytest.approx(0.2)
    assert math.isnan(minority_recall(np.array([1.0, 1.0]), np.array([0.5, 0.5])))


def test_choices_stand_beside_what_they_are_compared_with():
    # Expert b is right in three rows, a in one; in the last row both are, and a is cheaper.
    table = {
        "prompt": list("abcd"),
        "correct__a": [0, 0, 0, 1],
        "correct__b": [1, 1, 0, 1],
        "cost__a": [0.001] * 4,
        "cost__b": [0.003] * 4,
        "latency_ms__a": [100] * 4,
        "latency_ms__b": [300] * 4,
    }
    found = task_figures(task_of(table), np.array([1, 0, 0, 1]), best_in_fit=0)
    rows = {row.pop("key"): row for row in found.baselines}
    figures = ("loss", "accuracy", "dollars_per_1000", "seconds")
    values = {key: [row[name] for name in figures] for key, row in rows.items()}
    assert [rows[key]["expert"] for key in rows] == [None, "b", "a", None, None]
    assert values["router"] == pytest.approx([0.5, 0.5, 2.0, 0.2])
    assert values["best_single"] == pytest.approx([0.25, 0.75, 3.0, 0.3])
    assert values["fit_constant"] == pytest.approx([0.75, 0.25, 1.0, 0.1])
    assert values["same_mix"] == pytest.approx([0.5, 0.5, 2.0, 0.2])
    # Ties of loss go to the cheaper expert: a in the last two rows.
    assert values["perfect"] == pytest.approx([0.25, 0.75, 2.0, 0.2])
    assert found.summary["oracle_shares"] == [0.5, 0.5]
    assert found.summary["recall"] == [0.5, 0.5]


def test_figures_that_are_not_known_are_none():
    columns = {"prompt": list("abc"), "correct__a": [0, 0, 1], "correct__b": [1, 1, 0]}
    found = task_figures(task_of(columns), np.array([1, 1, 0]))
    assert [row["key"] for row in found.baselines] == [
        "router",
        "best_single",
        "same_mix",
        "perfect",
    ]
    assert {row["dollars_per_1000"] for row in found.baselines} == {None}

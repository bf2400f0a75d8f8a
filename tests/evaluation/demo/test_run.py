"""A whole run."""

from __future__ import annotations

import dataclasses

import pytest

from demo_cases import row_of
from mild.evaluation.demo.run import DemoSettings, run_demo


def test_there_is_one_block_per_scenario_in_order(small_results):
    document = small_results.document
    found = [(block["setup"], block["experts"], block["cost"]) for block in document["blocks"]]
    assert found == [
        ("III", "synthetic", "error"),
        ("III", "synthetic", "error+coverage"),
        ("severe", "synthetic", "error"),
        ("severe", "synthetic", "error+coverage"),
    ]
    assert document["region_case"]["setup"] == "regions"


def test_nothing_beats_the_oracle_and_routing_beats_the_constant(small_results):
    document = small_results.document
    for block in (*document["blocks"], document["region_case"]):
        oracle = row_of(block, "oracle")["mean"]
        assert all(row["mean"] >= oracle for row in block["rows"])
        assert row_of(block, "mild_tuned_stationary")["mean"] < row_of(block, "constant")["mean"]


def test_argmax_with_the_theory_s_unequal_margins_fails_where_stationary_does_not(small_results):
    block = small_results.document["blocks"][0]
    assert row_of(block, "mild_theory_argmax")["mean"] > 0.4
    assert row_of(block, "mild_theory_stationary")["mean"] < 0.1


def test_labels_say_nothing_in_the_region_case_and_inputs_much(small_results):
    block = small_results.document["region_case"]
    assert row_of(block, "label")["mean"] == pytest.approx(
        row_of(block, "constant")["mean"], abs=0.03
    )
    assert row_of(block, "mild_tuned_stationary")["mean"] < 0.5 * row_of(block, "label")["mean"]


@pytest.mark.no_cover
def test_progress_ends_with_all_and_numbers_do_not_depend_on_the_number_of_jobs():
    steps = []
    settings = DemoSettings(
        setups=("severe",),
        experts=("synthetic",),
        costs=("error",),
        seeds=1,
        alphas=(1e-4,),
        margin_factors=(1.0,),
        neighbours=(5,),
        folds=2,
        region_samples=200,
        tail_draws=2,
        jobs=1,
    )
    alone = run_demo(settings, lambda done, total, text: steps.append((done, total)))
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]
    together = run_demo(dataclasses.replace(settings, jobs=2))
    pairs = zip(alone.document["blocks"], together.document["blocks"], strict=True)
    for first, second in pairs:
        for row, other in zip(first["rows"], second["rows"], strict=True):
            assert {**row, "seconds": 0} == {**other, "seconds": 0}

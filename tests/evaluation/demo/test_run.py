"""A whole run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mild.evaluation.demo.run import DemoSettings, run_demo


def test_there_is_one_block_per_scenario_in_order(small_results):
    found = [(block.setup, block.experts, block.cost) for block in small_results.blocks]
    assert found == [
        ("III", "synthetic", "error"),
        ("III", "synthetic", "error+coverage"),
        ("severe", "synthetic", "error"),
        ("severe", "synthetic", "error+coverage"),
    ]
    assert small_results.region_block.setup == "regions"


def test_nothing_beats_the_oracle_and_routing_beats_the_constant(small_results):
    for block in (*small_results.blocks, small_results.region_block):
        oracle = block.row("oracle").mean
        assert all(row.mean >= oracle for row in block.rows)
        assert block.row("mild_tuned_stationary").mean < block.row("constant").mean


def test_argmax_with_the_theory_s_unequal_margins_fails_where_stationary_does_not(small_results):
    block = small_results.blocks[0]
    assert block.row("mild_theory_argmax").mean > 0.4
    assert block.row("mild_theory_stationary").mean < 0.1


def test_labels_say_nothing_in_the_region_case_and_inputs_much(small_results):
    block = small_results.region_block
    assert block.row("label").mean == pytest.approx(block.row("constant").mean, abs=0.03)
    assert block.row("mild_tuned_stationary").mean < 0.5 * block.row("label").mean


def test_progress_starts_at_none_and_ends_with_all():
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
    run_demo(settings, lambda done, total, text: steps.append((done, total)))
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_number_of_jobs(small_settings, small_results):
    again = run_demo(dataclasses.replace(small_settings, jobs=2))
    for first, second in zip(small_results.blocks, again.blocks, strict=True):
        for row, other in zip(first.rows, second.rows, strict=True):
            assert row.losses == other.losses
            assert np.array_equal(row.shares, other.shares)
            assert row.against_tdef == other.against_tdef

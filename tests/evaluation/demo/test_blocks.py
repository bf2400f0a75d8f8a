"""Blocks: what is averaged, compared and marked."""

from __future__ import annotations

import numpy as np
import pytest

from mild.evaluation.comparison import Choices
from mild.evaluation.demo.run import METHODS, Cell, gather, verdict_of
from mild.metrics import Interval

N = 400


def make_cells(right: dict[str, float], default: float = 0.5, repeats: int = 2) -> list[Cell]:
    """Two experts, the first free, the second of cost 1; ``right`` is how often a method asks it."""
    costs = np.tile([0.0, 1.0], (N, 1))
    cells = []
    for seed in range(repeats):
        choices = {}
        for place, (key, _, _) in enumerate(METHODS):
            if key == "label":
                continue
            share = 1.0 if key == "oracle" else right.get(key, default)
            order = np.random.default_rng([seed, place]).permutation(N)
            chosen = np.ones(N, dtype=np.intp)
            chosen[order[: round(share * N)]] = 0
            choices[key] = Choices(chosen, {}, 0.1)
        cells.append(
            Cell("I", "synthetic", "error", seed, ("a", "b"), costs, np.arange(N), choices, ())
        )
    return cells


def test_a_clear_winner_is_marked_and_nobody_else():
    block = gather(make_cells({"mild_tuned_stationary": 0.9}), 0.95)
    assert [row.key for row in block.rows if row.best] == ["mild_tuned_stationary"]
    assert block.leader.key == "mild_tuned_stationary"


def test_the_least_mean_alone_earns_no_mark():
    block = gather(make_cells({"mild_tuned_stationary": 0.51}), 0.95)
    assert block.leader.key == "mild_tuned_stationary"
    assert not any(row.best for row in block.rows)


def test_beating_all_but_one_earns_no_mark():
    block = gather(make_cells({"knn": 0.9, "ce": 0.9}), 0.95)
    assert not any(row.best for row in block.rows)


def test_a_winner_of_too_few_splits_earns_no_mark():
    cells = make_cells({"knn": 0.9}, repeats=5)
    assert gather(cells, 0.95).row("knn").best
    for cell in cells[:2]:
        cell.choices["knn"].chosen[:] = 1
    for cell in cells[2:]:
        cell.choices["knn"].chosen[:] = 0
    block = gather(cells, 0.95)
    # Better on the whole, but in three of five splits only.
    assert block.leader.key == "knn"
    assert block.row("knn").verdict == "better"
    assert not block.row("knn").best


def test_twins_share_the_mark():
    cells = make_cells({"knn": 0.9, "ce": 0.9})
    for cell in cells:
        cell.choices["ce"] = cell.choices["knn"]
    block = gather(cells, 0.95)
    assert {row.key for row in block.rows if row.best} == {"knn", "ce"}


def test_the_oracle_is_neither_marked_nor_in_the_way():
    block = gather(make_cells({"knn": 0.9}), 0.95)
    assert block.row("oracle").mean == 0
    assert not block.row("oracle").best
    assert block.row("knn").best


def test_the_best_constant_may_win():
    block = gather(make_cells({"constant": 0.9}), 0.95)
    assert block.row("constant").best


def test_losses_shares_and_spread_are_those_of_the_seeds():
    cells = make_cells({"ce": 0.7})
    cells[1].choices["ce"].chosen[:] = 0
    row = gather(cells, 0.95).row("ce")
    assert row.losses == pytest.approx((0.3, 0.0))
    assert row.mean == pytest.approx(0.15)
    assert row.std == pytest.approx(np.std([0.3, 0.0], ddof=1))
    assert row.shares == pytest.approx(np.array([[0.7, 0.3], [1.0, 0.0]]))


def test_one_seed_has_no_spread():
    assert gather(make_cells({}, repeats=1), 0.95).row("ce").std is None


def test_verdicts_against_tdef_follow_the_interval():
    block = gather(make_cells({"knn": 0.9, "ce": 0.1}), 0.95)
    assert block.row("knn").verdict == "better"
    assert block.row("ce").verdict == "worse"
    assert block.row("tdef").verdict == "level"
    assert block.row("tdef").against_tdef is None
    assert block.row("knn").against_tdef.estimate == pytest.approx(-0.4)


def test_the_same_digit_in_several_splits_counts_once():
    once = make_cells({"knn": 0.6}, repeats=1)
    again = [*once, *once, *once]
    single = gather(once, 0.95).row("knn").against_tdef
    tripled = gather(again, 0.95).row("knn").against_tdef
    assert tripled.high - tripled.low == pytest.approx(single.high - single.low, rel=0.1)


def test_same_choices_as_tdef_are_told():
    cells = make_cells({})
    for cell in cells:
        cell.choices["mild_uniform"] = cell.choices["tdef"]
    block = gather(cells, 0.95)
    assert block.row("mild_uniform").same_as_tdef
    assert not block.row("ce").same_as_tdef


def test_verdict_of_needs_an_interval_without_zero():
    def interval(low: float, high: float) -> Interval:
        return Interval((low + high) / 2, low, high, 0.1, 10, 0.95)

    assert verdict_of(interval(-2, -1)) == "better"
    assert verdict_of(interval(1, 2)) == "worse"
    assert verdict_of(interval(-1, 2)) == "level"

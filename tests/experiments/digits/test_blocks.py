"""Blocks: what is averaged, compared and marked."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.digits.run import METHODS, Cell, gather
from experiments.digits.tables import verdict_of
from mild.evaluation.comparison import Choices, SplitResult

N = 400


def make_cells(right: dict[str, float], default: float = 0.5, repeats: int = 2) -> list[Cell]:
    """Two experts, the first free, the second of cost 1; ``right`` is how often a method asks it."""
    costs = np.tile([0.0, 1.0], (N, 1))
    cells = []
    for seed in range(repeats):
        choices = {}
        for place, (key, *_) in enumerate(METHODS):
            if key == "label":
                continue
            share = 1.0 if key == "oracle" else right.get(key, default)
            order = np.random.default_rng([seed, place]).permutation(N)
            chosen = np.ones(N, dtype=np.intp)
            chosen[order[: round(share * N)]] = 0
            choices[key] = Choices(chosen, {}, 0.1)
        result = SplitResult(costs, np.arange(N), choices)
        cells.append(Cell("I", "synthetic", "error", ("a", "b"), result))
    return cells


def leader(block):
    rows = (row for row in block["rows"] if row["method"] != "oracle")
    return min(rows, key=lambda row: row["mean"])["method"]


@pytest.mark.parametrize(
    ("right", "marked"),
    [
        ({"mild_tuned_stationary": 0.9}, ["mild_tuned_stationary"]),
        ({"constant": 0.9}, ["constant"]),
        ({"mild_tuned_stationary": 0.51}, []),
        ({"knn": 0.9, "ce": 0.9}, []),
    ],
    ids=["clear", "a constant", "the least mean only", "beats all but one"],
)
def test_a_clear_winner_is_marked_and_nobody_else(right, marked, row_of):
    block = gather(make_cells(right), 0.95)
    assert [row["method"] for row in block["rows"] if row["best"]] == marked
    assert leader(block) in right
    assert row_of(block, "oracle")["mean"] == 0


def test_a_winner_of_too_few_splits_earns_no_mark(row_of):
    cells = make_cells({"knn": 0.9}, repeats=5)
    assert row_of(gather(cells, 0.95), "knn")["best"]
    for cell in cells[:2]:
        cell.result.choices["knn"].chosen[:] = 1
    for cell in cells[2:]:
        cell.result.choices["knn"].chosen[:] = 0
    block = gather(cells, 0.95)
    # Better on the whole, but in three of five splits only.
    assert leader(block) == "knn"
    assert row_of(block, "knn")["verdict_against_tdef"] == "better"
    assert not row_of(block, "knn")["best"]


def test_twins_share_the_mark():
    cells = make_cells({"knn": 0.9, "ce": 0.9})
    for cell in cells:
        cell.result.choices["ce"] = cell.result.choices["knn"]
    block = gather(cells, 0.95)
    assert {row["method"] for row in block["rows"] if row["best"]} == {"knn", "ce"}


def test_losses_shares_and_spread_are_those_of_the_seeds(row_of):
    cells = make_cells({"ce": 0.7})
    cells[1].result.choices["ce"].chosen[:] = 0
    row = row_of(gather(cells, 0.95), "ce")
    assert row["losses"] == pytest.approx([0.3, 0.0])
    assert row["mean"] == pytest.approx(0.15)
    assert row["std"] == pytest.approx(np.std([0.3, 0.0], ddof=1))
    assert np.array(row["shares"]) == pytest.approx(np.array([[0.7, 0.3], [1.0, 0.0]]))
    assert row_of(gather(cells[:1], 0.95), "ce")["std"] is None


def test_verdicts_against_tdef_follow_the_interval(row_of):
    block = gather(make_cells({"knn": 0.9, "ce": 0.1}), 0.95)
    assert row_of(block, "knn")["verdict_against_tdef"] == "better"
    assert row_of(block, "ce")["verdict_against_tdef"] == "worse"
    assert row_of(block, "tdef")["verdict_against_tdef"] == "level"
    assert row_of(block, "tdef")["minus_tdef"] is None
    assert row_of(block, "knn")["minus_tdef"]["estimate"] == pytest.approx(-0.4)


def test_the_same_digit_in_several_splits_counts_once(row_of):
    once = make_cells({"knn": 0.6}, repeats=1)
    again = [*once, *once, *once]
    single = row_of(gather(once, 0.95), "knn")["minus_tdef"]
    tripled = row_of(gather(again, 0.95), "knn")["minus_tdef"]
    assert tripled["high"] - tripled["low"] == pytest.approx(
        single["high"] - single["low"], rel=0.1
    )


def test_same_choices_as_tdef_are_told(row_of):
    cells = make_cells({})
    for cell in cells:
        cell.result.choices["mild_uniform"] = cell.result.choices["tdef"]
    block = gather(cells, 0.95)
    assert row_of(block, "mild_uniform")["same_choices_as_tdef"]
    assert not row_of(block, "ce")["same_choices_as_tdef"]


def test_verdict_of_needs_an_interval_without_zero():
    assert verdict_of({"low": -2, "high": -1}) == "better"
    assert verdict_of({"low": 1, "high": 2}) == "worse"
    assert verdict_of({"low": -1, "high": 2}) == "level"

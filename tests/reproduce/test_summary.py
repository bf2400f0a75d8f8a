"""Rows and blocks: the right seeds together, the right figure beside them, honest verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mild.exceptions import DataFileError, InvalidInputError
from mild.reproduce.summary import Block, summarise
from result_cases import LDAM, PROTOCOLS, TDEF, THEORY, TUNED, UNIFORM, make_record


def block_of(records, **options) -> Block:
    (block,) = summarise(records, **options)
    return block


def runs(method, losses, **options):
    return [make_record(method, seed, loss, **options) for seed, loss in enumerate(losses)]


def by_label(block: Block):
    return {row.label: row for row in block.rows}


def test_a_row_s_mean_and_deviation_by_hand() -> None:
    row = block_of(runs(TDEF, [0.05, 0.06, 0.04])).named("tdef")
    assert (row.n, row.seeds) == (3, (0, 1, 2))
    assert row.mean == pytest.approx(0.05)
    assert row.std == pytest.approx(0.01)
    assert row.losses == (0.05, 0.06, 0.04)


def test_one_seed_has_no_deviation_and_decides_nothing() -> None:
    block = block_of([make_record(), make_record(UNIFORM, losses=0.01)])
    mild = block.named("mild")
    assert mild.std is None
    assert mild.from_paper is None
    assert mild.paper.loss == 0.0403
    assert mild.against_tdef is None
    assert mild.verdict == "cannot tell (one seed)"
    assert block.comparisons == 0


def test_each_decision_is_a_row_from_the_same_trainings() -> None:
    losses = [{"argmax": 0.5 + k / 100, "stationary": 0.06} for k in range(3)]
    block = block_of(runs(TDEF, [0.05, 0.051, 0.052]) + runs(THEORY, losses))
    argmax, stationary = block.rows[1:3]
    assert (argmax.decision, stationary.decision) == ("argmax", "stationary")
    assert argmax.mean == pytest.approx(0.51)
    assert stationary.losses == (0.06, 0.06, 0.06)


def test_a_seed_with_equal_margins_counts_for_both_decisions() -> None:
    both = make_record(TUNED, 0, {"argmax": 0.06, "stationary": 0.05}, margins=[1.0, 2.0, 1.0])
    alone = make_record(TUNED, 1, 0.07, margins=[1.0, 1.0, 1.0])
    argmax, stationary = block_of([both, alone]).rows[:2]
    assert (argmax.losses, stationary.losses) == ((0.06, 0.07), (0.05, 0.07))
    unequal = make_record(TUNED, 1, 0.07, margins=[1.0, 3.0, 1.0])
    assert block_of([both, unequal]).rows[1].seeds == (0,)


def test_the_paper_s_figure_and_the_distance_to_it_by_hand() -> None:
    block = block_of(runs(TDEF, [0.05, 0.06, 0.04]) + runs(TUNED, [0.04, 0.05, 0.06]))
    tdef, mild = block.named("tdef"), block.named("mild")
    assert (tdef.paper.loss, tdef.paper.std) == (0.0520, 0.0022)
    assert tdef.from_paper == pytest.approx(-0.002 / math.sqrt(1e-4 / 3 + 0.0022**2 / 5))
    assert mild.paper.method == "mild"
    assert mild.from_paper == pytest.approx(0.0097 / math.sqrt(1e-4 / 3 + 0.0018**2 / 5))


@pytest.mark.parametrize(
    ("cell", "loss"),
    [
        ({"table": "table2", "experts": "real"}, 0.1170),
        ({"table": "severe", "setup": "severe", "experts": "real"}, 0.0810),
        ({"table": "severe", "setup": "severe", "experts": "synthetic"}, 0.0810),
        ({"table": "readings"}, 0.0520),
        ({"table": "readings", "experts": "real"}, 0.1170),
        ({"table": "readings", "setup": "severe"}, 0.0810),
        ({"table": "table1", "dataset": "svhn5000", "setup": "III", "cost": "cost"}, 0.3412),
        ({"table": "table1", "dataset": "digits"}, None),
        ({"table": "table1", "setup": "0.6-0.3-0.1"}, None),
        ({"table": "people", "experts": "people"}, None),
    ],
)
def test_each_cell_finds_its_figure_or_none(cell, loss) -> None:
    paper = block_of([make_record(**cell)]).named("tdef").paper
    assert (paper and paper.loss) == loss


def test_other_methods_have_no_figure_in_the_paper() -> None:
    assert block_of([make_record(LDAM)]).named("ldam").paper is None


def test_verdicts_follow_the_paired_interval() -> None:
    noise = [0.0, 0.01, -0.01, 0.005]
    records = runs(TDEF, [0.05 + e for e in noise])
    records += runs(
        UNIFORM, [0.04 + e + d for e, d in zip(noise, [0, 1e-4, -1e-4, 0], strict=True)]
    )
    records += runs(LDAM, [0.06 + e + d for e, d in zip(noise, [0, 1e-4, -1e-4, 0], strict=True)])
    records += runs(TUNED, [0.05 - e for e in noise])
    rows = by_label(block_of(records))
    assert rows["TDEF"].verdict == ""
    assert rows["TDEF"].against_tdef is None
    # The seeds swing by more than the difference: only pairing sees it.
    assert rows["MILD others, uniform, mean ρ=1"].verdict == "better than TDEF"
    assert rows["LDAM"].verdict == "worse"
    assert rows["MILD any, tuned, argmax"].verdict == "level"
    assert rows["oracle"].verdict == rows["best constant"].verdict == ""


def test_only_common_seeds_are_paired() -> None:
    records = [make_record(TDEF, seed, loss) for seed, loss in ((0, 0.1), (1, 0.2), (2, 0.3))]
    records += [make_record(UNIFORM, seed, loss) for seed, loss in ((2, 0.29), (5, 9.0), (1, 0.18))]
    interval = block_of(records).named("mild").against_tdef
    assert interval.n == 2
    assert interval.estimate == pytest.approx(-0.015)
    # t(1; 0.975) = 12.7062, s = 0.01 / sqrt(2), over sqrt(2).
    assert interval.high == pytest.approx(-0.015 + 12.7062 * 0.005, rel=1e-5)


def test_no_common_seed_and_no_tdef_are_told_apart() -> None:
    apart = block_of([make_record(TDEF, 0), make_record(UNIFORM, 1)])
    assert apart.named("mild").verdict == "cannot tell (no common seed)"
    assert block_of(runs(UNIFORM, [0.1, 0.2])).named("mild").verdict == "cannot tell (no TDEF)"


def test_a_difference_that_never_varies_decides_nothing() -> None:
    records = runs(TDEF, [0.05, 0.06, 0.07])
    records += runs(UNIFORM, [0.04, 0.05, 0.06])
    records += runs(TUNED, [0.05, 0.06, 0.07])
    rows = by_label(block_of(records))
    alike = rows["MILD others, uniform, mean ρ=1"]
    assert (alike.against_tdef, alike.verdict) == (None, "cannot tell (no spread)")
    twin = rows["MILD any, tuned, argmax"]
    assert (twin.against_tdef.low, twin.against_tdef.high, twin.verdict) == (0, 0, "level")


def test_joint_intervals_are_wider_by_bonferroni_and_change_the_verdict() -> None:
    records = runs(TDEF, [0.05, 0.05, 0.05]) + runs(UNIFORM, [0.04, 0.042, 0.044])
    records += runs(TUNED, [{"argmax": 0.05, "stationary": 0.051}] * 3)
    alone, jointly = block_of(records), block_of(records, simultaneous=True)
    assert jointly.comparisons == alone.comparisons == 3
    assert (jointly.simultaneous, jointly.confidence) == (True, 0.95)
    narrow, wide = alone.named("mild").against_tdef, jointly.named("mild").against_tdef
    assert wide.confidence == pytest.approx(1 - 0.05 / 3)
    # t(2; 0.975) = 4.302653, t(2; 1 - 0.05 / 6) = 7.648825; the standard error is 0.002 / sqrt(3).
    assert narrow.high == pytest.approx(-0.008 + 4.302653 * 0.002 / math.sqrt(3), rel=1e-5)
    assert wide.high == pytest.approx(-0.008 + 7.648825 * 0.002 / math.sqrt(3), abs=1e-7)
    assert alone.named("mild").verdict == "better than TDEF"
    assert jointly.named("mild").verdict == "level"


def test_shares_recall_and_margins_are_means_over_seeds() -> None:
    first = make_record(THEORY, 0, 0.1, shares=[0.8, 0.1, 0.1], margins=[1.0, 2.0, 3.0])
    second = make_record(THEORY, 1, 0.1, shares=[0.6, 0.3, 0.1], margins=[3.0, 2.0, 1.0])
    first["outcomes"]["argmax"]["recall"] = [0.5, None, None]
    second["outcomes"]["argmax"]["recall"] = [0.7, 0.4, None]
    row = block_of([first, second]).named("mild")
    assert row.shares == pytest.approx((0.7, 0.2, 0.1))
    assert row.recall == (pytest.approx(0.6), 0.4, None)
    assert row.margins == (2.0, 2.0, 2.0)
    assert block_of([make_record()]).named("tdef").margins is None


def test_yardsticks_are_means_over_seeds_not_over_trainings() -> None:
    references = [
        {"oracle": 0.01, "oracle_shares": [0.8, 0.2], "constant": 0.2, "constant_expert": 0},
        {"oracle": 0.03, "oracle_shares": [0.6, 0.4], "constant": 0.4, "constant_expert": 1},
    ]
    records = []
    for method, seeds in ((TDEF, (0, 1)), (UNIFORM, (0,)), (LDAM, (0,))):
        records += [
            make_record(method, seed, 0.3, setup="severe", reference=references[seed])
            for seed in seeds
        ]
    block = block_of(records)
    constant, oracle = block.rows[-2:]
    assert (constant.label, oracle.label) == ("best constant", "oracle")
    assert constant.mean == pytest.approx(0.3)
    assert constant.shares == (0.5, 0.5)
    assert oracle.mean == pytest.approx(0.02)
    assert oracle.shares == pytest.approx((0.7, 0.3))
    assert [row.yardstick for row in block.rows] == [False, False, False, True, True]


def test_a_method_that_asks_the_best_constant_s_expert_is_not_above_it() -> None:
    records = [make_record(TDEF, 0, 0.7185 + 3e-15), make_record(UNIFORM, 0, 0.7186)]
    for record in records:
        record["reference"] |= {"constant": 0.7185}
    assert [row.method["name"] for row in block_of(records).above_constant] == ["mild"]


def test_methods_above_the_best_constant_are_listed() -> None:
    records = runs(TDEF, [0.05, 0.06])
    records += runs(
        THEORY, [{"argmax": 0.5, "stationary": 0.06}, {"argmax": 0.6, "stationary": 0.1}]
    )
    labels = [row.label for row in block_of(records).above_constant]
    assert labels == ["MILD others, theory (best), Σρ=1, argmax"]


def test_the_best_constant_is_that_of_the_row_s_own_seeds() -> None:
    references = [
        {"oracle": 0.01, "oracle_shares": [0.8, 0.2], "constant": level, "constant_expert": 0}
        for level in (0.2, 0.4)
    ]
    records = [
        make_record(TDEF, seed, 0.1, setup="severe", reference=references[seed])
        for seed in range(2)
    ]
    # Below the mean of both seeds, above the constant of its own.
    records.append(make_record(UNIFORM, 0, 0.25, setup="severe", reference=references[0]))
    records.append(make_record(LDAM, 1, 0.35, setup="severe", reference=references[1]))
    assert [row.method["name"] for row in block_of(records).above_constant] == ["mild"]


def test_blocks_part_by_everything_but_method_and_seed_in_the_paper_s_order() -> None:
    plain = {**PROTOCOLS["fast"], "augment": False}
    cells = [
        {"protocol": "paper"},
        {},
        {"protocol": plain},
        {"protocol": plain, "holdout": True},
        {"cost": "cost"},
        {"setup": "II"},
        {"setup": "0.6-0.3-0.1"},
        {"dataset": "cifar100"},
        {"table": "table2", "experts": "real"},
        {"table": "severe", "setup": "severe"},
        {"table": "severe", "setup": "severe", "experts": "real"},
        {"table": "readings"},
        {"table": "people", "experts": "people", "setup": "people"},
    ]
    order = np.random.default_rng(0).permutation(len(cells))
    records = [make_record(seed=seed, **cells[k]) for seed in (1, 0) for k in order]
    blocks = summarise(records)
    expected = [make_record(**cell)["cell"] for cell in cells]
    for entry in expected:
        del entry["method"], entry["seed"]
    assert [block.cell for block in blocks] == expected
    assert all(block.rows[0].seeds == (0, 1) for block in blocks)
    assert [len(block.records) for block in blocks] == [2] * len(cells)


def test_blocks_of_one_title_are_told_apart_by_what_differs() -> None:
    blocks = summarise([make_record(data="a" * 16), make_record(data="b" * 16)])
    assert [block.title.split(" · ")[-1] for block in blocks] == [
        "data " + "a" * 16,
        "data " + "b" * 16,
    ]
    same_title = summarise([make_record(), make_record(table="readings")])
    assert same_title[0].title == same_title[1].title


def test_rows_of_one_label_are_told_apart() -> None:
    grid = {**THEORY, "margins": "grid"}
    records = runs(grid, [0.1, 0.1]) + runs({**grid, "counts": "reward"}, [0.1, 0.1])
    labels = [row.label for row in block_of(records).rows[:2]]
    assert labels == [
        "MILD others, grid (reward), Σρ=1, argmax",
        "MILD others, grid (best), Σρ=1, argmax",
    ]


def test_no_records_make_no_blocks_and_a_confidence_of_1_is_refused() -> None:
    assert summarise([]) == ()
    with pytest.raises(InvalidInputError, match=r"confidence must lie between 0 and 1; got 1\."):
        summarise([], confidence=1)


def test_seeds_of_one_block_with_different_numbers_of_experts_are_refused() -> None:
    reference = {"oracle": 0.01, "oracle_shares": [0.5, 0.5], "constant": 0.2, "constant_expert": 0}
    other = make_record(TDEF, 1, 0.1, reference=reference, shares=[0.5, 0.5])
    with pytest.raises(DataFileError, match=r"as many experts each; .* with 2 and 3\. Remove"):
        summarise([make_record(TDEF, 0, 0.1), other])

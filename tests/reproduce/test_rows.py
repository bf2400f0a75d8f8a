"""Records that were judged on other experts: never paired, never mixed, and told of."""

from __future__ import annotations

import csv
import io

import pytest

from mild.reproduce.formats import footnotes
from mild.reproduce.rows import same_experts
from mild.reproduce.spreadsheet import to_csv
from mild.reproduce.summary import summarise
from result_cases import LDAM, TDEF, THEORY, UNIFORM, make_record

REAL = {"table": "table2", "experts": "real"}
NOISE = (0.0, 0.004, -0.003)


def told(key="k", own=0.9, seconds=19.0, price=0.1):
    """What a record tells of one expert."""
    facts = {"key": key, "protocol": "fast", "seconds": seconds, "accuracy": {"own": own}}
    return {"names": ["a"], "prices": [price], "notes": {"experts": [facts], "price": price}}


def run(method, seed, loss, constant=0.27, oracle=0.01, experts=None, **cell):
    reference = {
        "oracle": oracle,
        "oracle_shares": [0.7, 0.2, 0.1],
        "constant": constant,
        "constant_expert": 0,
    }
    record = make_record(method, seed, loss, reference=reference, **{**REAL, **cell})
    return record | {"experts": told() if experts is None else experts}


def block_of(records):
    (block,) = summarise(records)
    return block


def tdef():
    return [run(TDEF, seed, 0.05 + noise) for seed, noise in enumerate(NOISE)]


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"constant": 0.27 + 1e-12}, True),
        ({"constant": 0.2701}, False),
        ({"oracle": 0.0101}, False),
        ({"experts": told(own=0.9001)}, False),
        ({"experts": told(key="l")}, False),
        # Trained again on a CPU, to the same bits; and prices are part of the cell.
        ({"experts": told(seconds=20.0)}, True),
        ({"experts": told(price=0.2)}, True),
        ({"experts": {"names": ["a", "b"]}}, False),
    ],
)
def test_experts_are_told_by_their_costs_and_by_what_is_noted_of_them(other, same) -> None:
    assert same_experts(run(TDEF, 0, 0.1), run(LDAM, 0, 0.2, **other)) is same


def test_a_record_that_tells_nothing_of_its_experts_goes_by_its_costs() -> None:
    silent = {name: value for name, value in run(LDAM, 0, 0.2).items() if name != "experts"}
    assert same_experts(run(TDEF, 0, 0.1), silent)
    silent["reference"] = {**silent["reference"], "oracle": 0.02}
    assert not same_experts(run(TDEF, 0, 0.1), silent)


def test_a_seed_that_was_judged_on_other_experts_is_not_paired() -> None:
    mild = [run(UNIFORM, seed, 0.04 + 1.1 * noise) for seed, noise in enumerate(NOISE)]
    mild[2] = run(UNIFORM, 2, 0.001, experts=told(own=0.8))
    block = block_of([*tdef(), *mild])
    row = block.named("mild")
    assert (row.seeds, row.other_experts) == ((0, 1, 2), (2,))
    assert row.against_tdef.n == 2
    assert row.against_tdef.estimate == pytest.approx(-0.01 + 0.1 * 0.002)
    assert block.comparisons == 1
    assert (
        "Judged on other experts than TDEF, the best constant and the oracle, and not paired there: "
        "MILD others, uniform, mean ρ=1 (seed 2)."
    ) in footnotes(block)


def test_where_no_two_pairs_are_left_nothing_is_decided() -> None:
    mild = [run(UNIFORM, seed, 0.01, constant=0.3) for seed in range(3)]
    ldam = [run(LDAM, 0, 0.06), run(LDAM, 1, 0.06, oracle=0.02)]
    block = block_of([*tdef(), *mild, *ldam])
    for name in ("mild", "ldam"):
        row = block.named(name)
        assert (row.against_tdef, row.verdict) == (None, "cannot tell (other experts)")
    assert block.comparisons == 0
    (note,) = [note for note in footnotes(block) if "other experts" in note]
    assert note.endswith(
        "not paired there: MILD others, uniform, mean ρ=1 (seeds 0-2); LDAM (seed 1)."
    )


def test_one_common_seed_on_the_same_experts_is_one_seed() -> None:
    records = [*tdef()[:1], run(UNIFORM, 0, 0.04), run(UNIFORM, 7, 0.04)]
    records += [run(LDAM, 7, 0.05, oracle=0.02)]
    rows = block_of(records).rows
    assert [row.verdict for row in rows[1:3]] == [
        "cannot tell (one seed)",
        "cannot tell (no common seed)",
    ]
    # TDEF has no seed 7: the next method's experts are those of the yardsticks.
    assert [row.other_experts for row in rows] == [(), (), (7,), (), ()]


@pytest.mark.parametrize("order", [1, -1])
def test_yardsticks_are_those_of_tdef_s_experts_whichever_record_comes_last(order) -> None:
    mild = [run(UNIFORM, seed, 0.2, constant=0.1, oracle=0.09) for seed in range(3)]
    block = block_of([*tdef(), *mild][::order])
    assert block.named("constant").losses == (0.27,) * 3
    assert block.named("oracle").losses == (0.01,) * 3
    # Below TDEF's constant, above its own.
    assert block.above_constant == (block.named("mild"),)


def test_without_tdef_the_mixture_is_told_all_the_same() -> None:
    losses = {"argmax": 0.05, "stationary": 0.04}
    records = [run(UNIFORM, 0, 0.05), run(THEORY, 0, losses, oracle=0.02)]
    block = block_of(records)
    assert block.named("oracle").losses == (0.01,)
    assert (
        "Judged on other experts than the best constant and the oracle: MILD others, theory (best), "
        "Σρ=1, argmax (seed 0); MILD others, theory (best), Σρ=1, stationary (seed 0)."
    ) in footnotes(block)


def test_the_same_experts_are_not_spoken_of() -> None:
    block = block_of([*tdef(), *(run(UNIFORM, seed, 0.04) for seed in range(3))])
    assert not any("other experts" in note for note in footnotes(block))


def test_csv_says_which_seeds_had_other_experts() -> None:
    records = [*tdef(), run(UNIFORM, 0, 0.04), run(UNIFORM, 1, 0.04, oracle=0.02)]
    rows = list(csv.DictReader(io.StringIO(to_csv(summarise(records)))))
    assert [row["seeds_of_other_experts"] for row in rows] == ["", "1", "", ""]

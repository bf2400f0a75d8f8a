"""``mild explain``"""

from __future__ import annotations

import json

import pytest

from command_runner import invoke_mild
from mild.data import Outcomes
from mild.tuning.fit import fit
from outcome_cases import EXPERTS

QUERY = "boil salt butter flour oven stir please tell about q1x12"


@pytest.mark.parametrize("kind", ["linear", "ridge", "knn", "priced", "constant"])
def test_a_person_is_told_who_is_asked_and_who_is_next(mild, readers, kind):
    done = mild("explain", readers(kind), QUERY)
    assert done.code == 0, done.err
    told = done.out.splitlines()[0]
    first = told.split()[0]
    assert f"{first} is asked" in told
    assert f"│ {first} *" in done.out
    for name in EXPERTS:
        assert name in done.out


def test_the_evidence_supports_either_expert(mild, readers):
    report = mild("explain", readers(), QUERY, "--json").json()
    assert (report["expert"], report["method"]) == ("cook", "terms")
    effects = {entry["part"]: entry["effect"] for entry in report["evidence"]}
    assert effects["flour"] > 0
    shown = mild("explain", readers(), QUERY).out
    assert "contribution to the lead over" in shown
    assert "all others" in shown


def test_what_has_no_effect_supports_neither(mild, readers):
    shown = mild("explain", readers(), "").out
    without = [line for line in shown.splitlines() if "0.0000" in line and "(" in line]
    assert without
    assert all("neither" in line and "+0.0000" in line for line in without)


def test_an_empty_query_is_explained_with_a_warning(mild, readers):
    for query in ("", " \n"):
        done = mild("explain", readers(), query)
        assert done.code == 0
        assert "warning: the query is empty" in done.err
    assert "empty" not in mild("explain", readers(), QUERY).err


def test_another_weight_of_dollars_changes_the_answer(mild, weighing):
    words = ["explain", weighing, QUERY, "--json"]
    assert mild(*words).json()["expert"] == "cook"
    assert mild(*words, "--price-weight", 1e9).json()["expert"] == "adder"


@pytest.mark.parametrize("words", [["explain", QUERY], ["route"]])
def test_a_saved_router_takes_no_costs_in_wrong_answers(mild, weighing, words):
    command, *query = words
    assert mild(command, weighing, *query, "--beta", "cook=9,adder=0,poet=0").code == 2


def test_a_million_characters_and_none_at_all_are_explained(mild, readers):
    # Longer than a command line may be, so it comes by stdin.
    words = ["explain", str(readers()), "-", "--json"]
    done = invoke_mild(words, "boil salt " * 100_000)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["expert"] in EXPERTS
    assert mild("explain", readers(), "").code == 0


def test_a_router_of_numbers_has_no_words(mild, tmp_path):
    table = Outcomes.from_arrays([[0.0], [1.0]], [[0, 1], [1, 0]])
    done = mild("explain", fit(table).save(tmp_path / "r"), "x")
    assert done.code == 1
    assert "columns of numbers" in done.err

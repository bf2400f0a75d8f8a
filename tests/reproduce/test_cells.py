import json
from itertools import pairwise
from pathlib import Path

import pytest

from mild.reproduce.cells import plan
from mild.reproduce.experts import get_setup
from mild.reproduce.images.protocol import PROTOCOLS, Protocol
from mild.reproduce.methods import Method
from mild.reproduce.requests import Request
from mild.reproduce.results import cell_key, read_records

RESULTS = Path("results.jsonl")


def test_every_cell_is_there_once():
    cells = plan(Request.of("table1", results=RESULTS))
    assert len(cells) == len(set(cells)) == 4 * 3 * 5 * 2 * 3


def test_data_and_experts_are_not_returned_to():
    cells = plan(Request.of("severe", results=RESULTS, seeds=3))
    for name in (lambda c: c.dataset, lambda c: (c.dataset, c.experts, c.setup)):
        changes = sum(name(a) != name(b) for a, b in pairwise(cells))
        assert changes == len({name(cell) for cell in cells}) - 1


def test_all_methods_of_a_seed_come_before_the_next_seed():
    seeds = [cell.seed for cell in plan(Request.of("readings", results=RESULTS, seeds=2))]
    assert seeds == sorted(seeds)


def test_a_cell_holds_what_a_record_needs():
    cell = plan(Request.of("table1", results=RESULTS, datasets=("digits",)))[0].as_dict("abc")
    assert cell["data"] == "abc"
    assert cell["coverage"] == [0.7, 0.2, 0.1]
    assert cell["expert_seed"] is None
    assert cell["expert_protocol"] is None
    assert cell["protocol"] == PROTOCOLS["adamw"].as_dict()
    assert json.loads(json.dumps(cell)) == cell


def test_keys_of_all_cells_differ():
    cells = plan(Request.of("severe", results=RESULTS))
    assert len({cell_key(cell.as_dict("abc")) for cell in cells}) == len(cells)


def test_another_recipe_makes_other_cells_and_the_first_is_not_spoken_of(monkeypatch):
    cell = plan(Request.of("table1", results=RESULTS, datasets=("digits",)))[0]
    before = cell.as_dict("abc")
    assert "recipe" not in before
    monkeypatch.setattr("mild.reproduce.images.protocol.RECIPE", 2)
    assert cell.as_dict("abc") == {**before, "recipe": 2}
    assert cell_key(cell.as_dict("abc")) != cell_key(before)


def test_holdout_and_the_experts_protocol_concern_trained_experts_alone():
    slow = PROTOCOLS["paper"]
    request = Request.of(
        "severe", results=RESULTS, holdout=True, expert_protocol=slow, expert_seed=4
    )
    for cell in plan(request):
        real = cell.experts == "real"
        assert cell.holdout == real
        assert cell.expert_protocol == (slow if real else None)
        assert cell.expert_seed == (4 if real else None)


def test_people_have_a_setup_of_their_own():
    request = Request.of("people", results=RESULTS, people_file=Path("p.npz"))
    assert {cell.setup.name for cell in plan(request)} == {"people"}
    assert "people experts" in plan(request)[0].title


PEOPLE = ("coverage", "people", "classifier_rows", "test_fraction", "price")
COMMITTED = Path(__file__).parents[2] / "results"


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results are not part of this copy")
def test_committed_records_are_cells_that_a_request_still_asks_for():
    images = ("synthetic", "real", "people")
    records = [r for r in read_records(COMMITTED) if r["cell"]["experts"] in images]
    assert records
    for record in records:
        cell = record["cell"]
        method = dict(cell["method"])
        if isinstance(method["margins"], list):
            method["margins"] = tuple(method["margins"])
        experts = cell["expert_protocol"]
        people = cell["experts"] == "people"
        request = Request.of(
            cell["table"],
            results=RESULTS,
            datasets=(cell["dataset"],),
            setups=() if people else (get_setup(cell["setup"]),),
            experts=(cell["experts"],),
            costs=(cell["cost"],),
            methods=(Method(**method),),
            seeds=cell["seed"] + 1,
            protocol=Protocol(**cell["protocol"]),
            expert_protocol=experts and Protocol(**experts),
            expert_seed=cell["expert_seed"],
            holdout=cell["holdout"],
            scale=cell["scale"],
            people_file=Path("p.npz") if people else None,
            ambiguous=cell.get("ambiguous"),
            validation=cell.get("validation", False),
        )
        # What the file of people decides is not known here.
        file = {name: cell[name] for name in PEOPLE if people and name in cell}
        assert plan(request)[-1].as_dict(cell["data"]) | file == cell
        assert cell_key(cell) == record["key"]
        # A protocol goes by its name as long as nothing in it is changed.
        known = PROTOCOLS.get(cell["protocol"]["name"])
        assert known is None or known.as_dict() == cell["protocol"]


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results are not part of this copy")
def test_committed_classifiers_carry_the_keys_of_their_cells():
    records = json.loads((COMMITTED / "classifier.json").read_text())
    assert records
    assert [record["key"] for record in records] == [cell_key(r["cell"]) for r in records]

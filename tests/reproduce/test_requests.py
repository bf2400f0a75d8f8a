import dataclasses
from pathlib import Path

import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.experts import get_setup
from mild.reproduce.images.protocol import PROTOCOLS
from mild.reproduce.methods import Method
from mild.reproduce.paper import paper_figures
from mild.reproduce.requests import TABLES, Request

RESULTS = Path("results.jsonl")


@pytest.mark.parametrize("table", ["table1", "table2", "severe", "readings"])
def test_a_table_is_what_it_is_in_the_paper_unless_asked_otherwise(table):
    request = Request.of(table, results=RESULTS)
    assert request.datasets == TABLES[table].datasets
    assert request.protocol.name == "adamw"
    assert request.seeds == 5


def test_experts_of_the_tables():
    experts = {name: Request.of(name, results=RESULTS).experts for name in ("table1", "table2")}
    assert experts == {"table1": ("synthetic",), "table2": ("real",)}
    assert Request.of("severe", results=RESULTS).experts == ("synthetic", "real")


def test_fields_that_are_none_stay_as_they_are():
    request = Request.of("table1", results=RESULTS, seeds=2, costs=None, data_dir=None)
    assert (request.seeds, request.costs) == (2, ("error", "cost"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seeds": 0}, "seeds must be an integer of at least 1; got 0."),
        ({"seeds": -3}, "seeds must be an integer of at least 1"),
        ({"seeds": 1.5}, "seeds must be an integer"),
        ({"seeds": True}, "seeds must be an integer"),
        ({"expert_seed": -1}, "expert_seed must be an integer of at least 0"),
        ({"datasets": ("cifar11",)}, "Did you mean 'cifar10'"),
        ({"datasets": ()}, "datasets must name at least one"),
        ({"datasets": "digits"}, "datasets must name at least one"),
        ({"datasets": ("digits", "digits")}, "'digits' twice"),
        ({"experts": ("sinthetic",)}, "Did you mean 'synthetic'"),
        ({"experts": ("fake",)}, "experts must be one of 'synthetic', 'real'; got 'fake'."),
        ({"costs": ("price",)}, "costs must be one of"),
        ({"setups": ()}, "setups must name at least one"),
        ({"methods": ()}, "methods must name at least one"),
        ({"methods": (Method("tdef"), Method("tdef"))}, "'tdef' twice"),
        (
            {"methods": (Method.parse("mild:margins=1/2"),)},
            "method mild:rewards=others,margins=1/2 must have one margin per expert, 3 in setup I; "
            "got 2.",
        ),
        ({"holdout": True}, "holdout must go with real experts; got synthetic ones alone"),
        ({"expert_seed": 1}, "expert_seed must go with real experts"),
        ({"expert_protocol": PROTOCOLS["fast"]}, "expert_protocol must go with real experts"),
        ({"device": "gpu"}, "device must be one of"),
        ({"experts": ("people",)}, "people must be the experts of the table 'people'"),
        ({"experts": ("synthetic", "people")}, "people must be the experts"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(fields, said):
    with pytest.raises(InvalidInputError) as caught:
        Request.of("table1", results=RESULTS, **fields)
    assert said in str(caught.value)


@pytest.mark.parametrize("table", ["table1", "table2", "severe"])
def test_data_sets_setups_and_costs_are_those_of_the_paper_s_table(table):
    figures = paper_figures(table)
    for field, name in (("datasets", "dataset"), ("setups", "setup"), ("costs", "cost")):
        printed = dict.fromkeys(getattr(figure, name) for figure in figures)
        assert getattr(TABLES[table], field) == tuple(printed)


def test_what_is_about_training_experts_is_taken_where_some_are_trained():
    asked = {"holdout": True, "expert_seed": 2, "expert_protocol": PROTOCOLS["paper"]}
    for table in ("table2", "severe"):
        request = Request.of(table, results=RESULTS, **asked)
        assert (request.holdout, request.expert_seed) == (True, 2)
    # The classifier beside people is trained, and has no half of its own.
    people = {"results": RESULTS, "people_file": Path("p.npz")}
    assert Request.of("people", **people, expert_seed=2).expert_seed == 2
    with pytest.raises(InvalidInputError, match="holdout must go with real experts; got people"):
        Request.of("people", **people, holdout=True)


def test_an_unknown_table_is_refused():
    with pytest.raises(InvalidInputError, match="Did you mean 'severe'"):
        Request.of("sever", results=RESULTS)
    known = Request.of("table1", results=RESULTS)
    with pytest.raises(InvalidInputError, match="table must be one of"):
        dataclasses.replace(known, table="table3")


def test_a_folder_is_no_results_file(tmp_path):
    with pytest.raises(InvalidInputError, match="is a folder"):
        Request.of("table1", results=tmp_path)


def test_people_need_a_file_and_no_setup():
    with pytest.raises(InvalidInputError, match="--people-file"):
        Request.of("people", results=RESULTS)
    with pytest.raises(InvalidInputError, match="setups must be left out"):
        Request.of("people", results=RESULTS, people_file=Path("p.npz"), setups=(get_setup("I"),))
    with pytest.raises(InvalidInputError, match="datasets with people must be one of"):
        Request.of("people", results=RESULTS, people_file=Path("p.npz"), datasets=("svhn",))
    with pytest.raises(InvalidInputError, match="people must be the experts"):
        Request.of("people", results=RESULTS, people_file=Path("p.npz"), experts=("real",))
    assert Request.of("people", results=RESULTS, people_file=Path("p.npz")).with_people


def test_what_tuning_finds_lies_in_the_cache_or_beside_the_results():
    beside = Request.of("table1", results=Path("a/b.jsonl"))
    assert beside.tuning_dir == Path("a/b-tuning")
    assert dataclasses.replace(beside, cache_dir=Path("c")).tuning_dir == Path("c/tuning")

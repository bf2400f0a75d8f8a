from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from llm_cases import make_columns, make_outcomes
from mild.exceptions import InvalidInputError
from mild.reproduce.llm.requests import EXPERIMENTS, LLMRequest, usual_methods
from mild.reproduce.methods import Method
from mild.tables import read_outcomes

RESULTS = Path("r.jsonl")


def make(experiment="llm", table=None, **fields):
    return LLMRequest(experiment, table or make_outcomes(40), "made up", RESULTS, **fields)


def test_what_is_not_said_is_the_paper_s():
    request = make()
    assert request.beta == (1.0, 0.6, 0.1)
    assert request.asked_costs == ("error", "cost")
    assert (request.seeds, round(request.test_share, 3)) == (5, 0.333)
    names = {method.name for method in request.asked_methods}
    assert names == {"tdef", "mild", "ce", "cwce", "ldam"}


@pytest.mark.parametrize("experiment", ["ablation", "noise", "extreme"])
def test_the_further_experiments_are_on_errors_plus_costs(experiment):
    assert make(experiment).asked_costs == ("cost",)
    assert make(experiment, costs=("error",)).asked_costs == ("error",)


def test_the_ablation_compares_uniform_theory_and_tuned_margins_with_tdef():
    methods = usual_methods("ablation", "hashing")
    margins = [method.margins for method in methods]
    assert margins == [None, "uniform", "theory", "theory", "tuned"]
    # A third each, as in the paper.
    assert methods[1].sum_of_margins(3) == 1


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("features", ["hashing", "transformer"])
def test_every_experiment_has_tdef_and_the_literal_reading(experiment, features):
    methods = usual_methods(experiment, features)
    assert Method("tdef") in methods
    assert Method("mild") in methods
    assert len({method.text for method in methods}) == len(methods)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"experiment": "lmm"}, "experiment must be one of.*Did you mean 'llm'"),
        ({"features": "hasing"}, "Did you mean 'hashing'"),
        ({"beta": (1.0, 0.6)}, "beta must be one number per expert, 3 of them; got 2"),
        ({"beta": (1.0, 0.6, -1.0)}, "beta must be finite and not negative"),
        ({"costs": ("money",)}, "cost must be one of 'error', 'cost'"),
        ({"seeds": 0}, "seeds must be an integer of at least 1"),
        ({"seeds": True}, "seeds must be an integer of at least 1"),
        ({"test_share": 1.0}, "test_share must lie between 0 and 1"),
        ({"alphas": (0.0,)}, "alpha must be positive and finite"),
        ({"methods": (Method("tdef"), Method("tdef"))}, "once each; got tdef twice"),
        ({"methods": (Method(margins=(1.0, 2.0)),)}, "3 of them; got 2"),
        (
            {"methods": (Method(margins="grid"),), "features": "transformer"},
            "'grid' take a network per point",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(fields, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        make(**fields)


def test_two_experts_are_too_few():
    columns = make_columns(40)
    columns.pop("correct__Qwen2.5-1.5B-Instruct")
    with pytest.raises(InvalidInputError, match="need three experts, from strong to tiny; got 2"):
        make(table=read_outcomes(pa.table(columns)))


def test_missing_scores_are_counted_and_placed():
    columns = make_columns(40)
    columns["correct__Qwen2.5-7B-Instruct"][3] = None
    columns["correct__Qwen2.5-7B-Instruct"][5] = None
    table = read_outcomes(pa.table(columns))
    assert np.isnan(table.scores).sum() == 2
    sentence = r"2 of 120 are missing, such as Qwen2.5-7B-Instruct's in row 3.*--experts"
    with pytest.raises(InvalidInputError, match=sentence):
        make(table=table)


def test_a_folder_is_no_results_file(tmp_path):
    with pytest.raises(InvalidInputError, match="results must be a file"):
        LLMRequest("llm", make_outcomes(40), "made up", tmp_path)

from pathlib import Path

import numpy as np

from llm_cases import make_columns, make_outcomes
from mild.costs import cheapest
from mild.reproduce.llm.cells import Cell, Settings, plan
from mild.reproduce.llm.costs import Noise, Skew
from mild.reproduce.llm.requests import LLMRequest
from mild.reproduce.methods import Method
from mild.tables import read_outcomes

TDEF, MILD = Method("tdef"), Method("mild")
PROTOCOL = {"name": "linear", "features": {"kind": "hashing"}}


def make(experiment="llm", table=None, **fields):
    usual = {"methods": (TDEF, MILD), "seeds": 2}
    table = make_outcomes() if table is None else table
    return LLMRequest(experiment, table, "made up", Path("r.jsonl"), **{**usual, **fields})


def test_methods_of_a_split_follow_one_another():
    cells = plan(make())
    assert [(cell.seed, cell.cost, cell.method.name) for cell in cells] == [
        (seed, cost, name)
        for seed in (0, 1)
        for cost in ("error", "cost")
        for name in ("tdef", "mild")
    ]


def test_noise_comes_with_its_clean_twin():
    noise = Noise("relative", 0.3)
    assert [cell.noise for cell in plan(make("noise", seeds=1, noise=noise))] == [
        *(None, None, noise, noise)
    ]


def test_costs_are_errors_and_what_asking_costs():
    request = make()
    settings = Settings(request)
    error, cost = (settings.setting(Cell("llm", name, None, TDEF, 0)) for name in ("error", "cost"))
    np.testing.assert_array_equal(error.test, 1 - request.table.scores[error.split.test])
    np.testing.assert_allclose(cost.train - error.train, [[1, 0.6, 0.1]] * len(error.train))
    assert (error.largest, cost.largest) == (1.0, 2.0)


def test_a_split_has_a_third_of_the_rows_and_is_the_same_whatever_else_is_asked():
    first, more = Settings(make()), Settings(make("extreme", seeds=4, methods=(MILD,)))
    for own, other in zip(first.splits, more.splits, strict=False):
        np.testing.assert_array_equal(own.test, other.test)
        assert len(own.test) == 60
        assert not set(own.train) & set(own.test)
    assert not np.array_equal(first.splits[0].test, first.splits[1].test)


def test_one_text_is_never_on_both_sides_and_repetitions_are_told():
    import pyarrow as pa

    columns = make_columns(60)
    twice = {name: values * 2 for name, values in columns.items()}
    twice["prompt"] = [*columns["prompt"], *(f" {text}\n" for text in columns["prompt"])]
    settings = Settings(make(table=read_outcomes(pa.table(twice)), seeds=5))
    for split in settings.splits:
        assert not set(split.train % 60) & set(split.test % 60)
    assert settings.note.startswith("120 queries, 60 of which repeat another's text")
    assert Settings(make()).note.startswith("180 queries; ")


def test_noise_is_on_the_training_costs_alone_and_anew_with_every_seed():
    settings = Settings(make("noise"))
    noise = Noise()
    clean, noisy = (settings.setting(Cell("noise", "cost", n, TDEF, 0)) for n in (None, noise))
    np.testing.assert_array_equal(noisy.test, clean.test)
    moved = noisy.train - clean.train
    assert 0.1 < moved.std() < 0.3
    assert noisy.largest >= noisy.train.max()
    other = settings.setting(Cell("noise", "cost", noise, TDEF, 1))
    assert not np.array_equal(other.train[:5] - settings.setting(
        Cell("noise", "cost", None, TDEF, 1)).train[:5], moved[:5])  # fmt: skip


def test_skewed_costs_make_the_first_expert_nearly_always_the_cheapest():
    request = make("extreme", skew=Skew(0.95))
    settings = Settings(request)
    setting = settings.setting(Cell("extreme", "cost", None, TDEF, 0))
    rows = np.concatenate([setting.split.train, setting.split.test])
    costs = np.concatenate([setting.train, setting.test])[np.argsort(rows)]
    assert 0.95 <= (cheapest(costs) == 0).mean() < 0.96
    assert setting.largest >= costs.max()
    entry = settings.entry(Cell("extreme", "cost", None, TDEF, 0), PROTOCOL)
    assert entry["skew"]["share"] == 0.95
    assert entry["skew"]["added"] > 0


def test_a_cell_says_all_that_its_result_depends_on():
    settings = Settings(make())
    cost = settings.entry(Cell("llm", "cost", None, MILD, 1), PROTOCOL)
    error = settings.entry(Cell("llm", "error", Noise(), TDEF, 1), PROTOCOL)
    assert (cost["setup"], cost["beta"], cost["noise"]) == ("qwen2.5", [1.0, 0.6, 0.1], None)
    assert (error["beta"], error["noise"]) == (None, {"kind": "additive", "std": 0.2})
    assert cost["models"][0] == "Qwen2.5-7B-Instruct"
    assert cost["seed"] == 1
    other = Settings(make(table=make_outcomes(names=("a-7B", "a-2B", "a-1B"))))
    assert other.entry(Cell("llm", "cost", None, MILD, 1), PROTOCOL)["setup"] == "other"
    assert other.entry(Cell("llm", "cost", None, MILD, 1), PROTOCOL)["data"] != cost["data"]


def test_rows_of_a_table_without_texts_are_each_alone():
    import dataclasses

    table = make_outcomes(30)
    blank = dataclasses.replace(table, queries=[""] * 30, vectors=np.eye(30, dtype=np.float32))
    settings = Settings(make(table=blank))
    assert len(settings.splits[0].test) == 10

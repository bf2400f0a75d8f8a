"""The experiments with language models on a small table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from experiments.images.methods import Method
from experiments.llm import __main__ as llm_command
from experiments.llm.run import (
    EXPERIMENTS,
    Noise,
    Request,
    _Runner,
    ordered_trio,
    parse_beta,
    read_vectors,
    run,
    skewed_prices,
)
from experiments.paper import QWEN
from experiments.records import ResultsFile, read_records, record_problem
from experiments.show import summarise
from mild.data import read_outcomes
from mild.errors import InvalidInputError, MildError

WORDS = ("add the numbers", "name the capital city", "who wrote that novel")
RESULTS = Path(__file__).parents[2] / "results"


def make_columns(n=120, seed=0, names=QWEN):
    """Queries on three subjects; each expert is good at some of them."""
    rng = np.random.default_rng(seed)
    subjects = rng.integers(0, 3, n)
    quality = np.array([[0.9, 0.8, 0.9], [0.9, 0.2, 0.6], [0.2, 0.9, 0.1]])
    columns = {"query": [f"{WORDS[k]} of {rng.integers(1e6)}" for k in subjects]}
    for k, name in enumerate(names):
        columns[f"correct__{name}"] = (rng.random(n) < quality[k, subjects]).astype(float)
    return columns


@pytest.fixture
def make(tmp_path):
    """A small request; keywords change it."""
    table = read_outcomes(pa.table(make_columns()), experts=list(QWEN))

    def request(experiment="llm", methods=("tdef", "mild"), **fields):
        usual = {"seeds": 1, "alphas": (0.01,), "results": tmp_path / "r.jsonl", "table": table}
        asked = tuple(map(Method.parse, methods))
        return Request(experiment, name="made", methods=asked, **{**usual, **fields})

    return request


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_gives_complete_records_beside_the_paper_s_figures(make, experiment):
    request = make(experiment, methods=("tdef", "mild", "uniform:total=1", "ldam"), skew=0.7)
    records = run(request)
    assert len(records) == len(request.cells) == (4 if experiment in ("ablation", "extreme") else 8)
    assert [record_problem(record) for record in records] == [None] * len(records)
    assert run(request) == records == read_records(request.results)
    for record in records:
        assert record["rows"] == {"train": 80, "test": 40}
        for outcome in record["outcomes"].values():
            assert outcome["loss"] >= record["reference"]["oracle"]
            assert outcome["control"] >= record["reference"]["constant"] - 1e-9
    blocks = summarise(records)
    assert {block.table for block in blocks} == {experiment}
    assert all("paper" in block.rows or "paper's shares" in block.rows for block in blocks)


def test_experiments_share_the_trainings_they_have_in_common(make):
    first = [r for r in run(make("llm")) if r["cell"]["cost"] == "cost"]
    clean = [r for r in run(make("noise")) if r["cell"]["noise"] is None]
    assert [r["outcomes"] for r in first] == [r["outcomes"] for r in clean]
    assert [r["finished"] for r in first] == [r["finished"] for r in clean]


def test_searched_margins_and_vectors_are_used(make):
    rng = np.random.default_rng(0)
    request = make(
        methods=("tuned:rewards=any", "mild:rewards=baseline,strength=0.5"),
        costs=("error",),
        features="vectors",
        vectors=rng.normal(size=(120, 4)).astype(np.float32),
    )
    tuned, baseline = run(request)
    assert tuned["outcomes"]["stationary"]["found"]["tried"] > 1
    assert baseline["cell"]["method"]["strength"] == 0.5
    assert set(tuned["cell"]["protocol"]["features"]) == {"kind", "model", "sha256"}


def test_an_interrupt_leaves_what_is_finished(make):
    def stop(done, total, message):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make(), stop)
    assert len(read_records(make().results)) == 1


def test_committed_cells_have_the_fields_of_today_and_methods_that_are_read_back(make):
    request = make(costs=("cost",))
    entry = _Runner(request, ResultsFile(request.results)).entry(*request.cells[0])
    for record in read_records(RESULTS / "llm.jsonl"):
        cell = record["cell"]
        assert list(cell) == list(entry)
        method = dict(cell["method"])
        if isinstance(method["margins"], list):
            method["margins"] = tuple(method["margins"])
        assert Method(**method).as_dict() == cell["method"]
        assert cell["noise"] is None or Noise(**cell["noise"])


def test_noise_keeps_costs_at_zero_or_above_and_is_drawn_by_the_seed():
    costs = np.array([[0.0, 1.0], [0.5, 0.0]] * 500)
    additive, relative = (Noise(kind, 0.2).added_to(costs, 0) for kind in ("additive", "relative"))
    assert additive.min() == 0
    assert (additive - costs).std() == pytest.approx(0.16, abs=0.03)
    assert (relative[costs == 0] == 0).all()
    np.testing.assert_array_equal(additive, Noise("additive", 0.2).added_to(costs, 0))
    assert not np.array_equal(additive, Noise("additive", 0.2).added_to(costs, 1))
    with pytest.raises(InvalidInputError):
        Noise("additive", -1.0)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
def test_skewed_prices_are_the_least_that_reach_the_share(share):
    rng = np.random.default_rng(1)
    errors = rng.integers(0, 2, (200, 3)).astype(float)
    lengths = rng.uniform(0.5, 2, 200)
    prices, added = skewed_prices(errors, (1.0, 0.6, 0.1), lengths, share)
    first = (errors + prices).argmin(axis=1) == 0
    assert first.mean() >= share
    less = np.array([1.0, 0.6 + added - 1e-3, 0.1 + added - 1e-3]) * lengths[:, None]
    assert ((errors + less).argmin(axis=1) == 0).mean() < share


def test_experts_and_prices_are_read_from_text():
    assert ordered_trio([QWEN[2], "x", QWEN[0], QWEN[1].upper()])[1] == QWEN[1].upper()
    for names in (["a", "b", "c"], ["1B", "2B"], ["1B", "1B-chat", "2B"]):
        with pytest.raises(InvalidInputError, match="--experts"):
            ordered_trio(names)
    names = ["7B", "1.5B", "0.5B"]
    assert parse_beta("1, 0.6,0.1", names) == (1.0, 0.6, 0.1)
    for text in ("one", "7B=x", "9B=1"):
        with pytest.raises(MildError):
            parse_beta(text, names)


def test_requests_that_cannot_be_run_are_refused(make, tmp_path):
    two = read_outcomes(pa.table(make_columns()), experts=list(QWEN[:2]))
    columns = make_columns()
    columns[f"correct__{QWEN[1]}"][4] = np.nan
    holes = read_outcomes(pa.table(columns), experts=list(QWEN))
    for fields in (
        *({"table": two}, {"table": holes}, {"seeds": 0}, {"test_share": 1.0}, {"skew": 0.0}),
        *({"alphas": (0.0,)}, {"beta": (1.0, 2.0)}, {"features": "magic"}),
        {"features": "transformer", "methods": ("grid",)},
    ):
        with pytest.raises(MildError):
            make(**fields)
    with pytest.raises(MildError):
        run(make(features="vectors"))
    file = tmp_path / "v.npy"
    np.save(file, np.zeros((3, 2)))
    with pytest.raises(MildError):
        read_vectors(file, 4)
    assert read_vectors(file, 3).shape == (3, 2)


def test_the_command_runs_an_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table(make_columns()), "outcomes.parquet")
    words = ["llm", "outcomes.parquet", "--method", "tdef", "--seeds", "1", "--alpha", "0.01"]
    result = CliRunner().invoke(llm_command.app, [*words, "--cost", "error"])
    assert result.exit_code == 0, result.output
    assert "Routing among language models" in result.output
    (line,) = (tmp_path / "results" / "llm.jsonl").read_text().splitlines()
    assert json.loads(line)["cell"]["dataset"] == "outcomes"
    failed = CliRunner().invoke(llm_command.app, [*words, "--epochs", "3"])
    assert isinstance(failed.exception, MildError)

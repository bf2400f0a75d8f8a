"""Tables end to end on digits with small networks, and the commands that run and show them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import show
from experiments.images import __main__ as images_command
from experiments.images import problem as problems
from experiments.images import run as runs
from experiments.images import search
from experiments.images.data import PeopleFile, load_images
from experiments.images.methods import Method
from experiments.images.run import choose_device, plan, run
from experiments.images.training import PROTOCOLS
from experiments.records import DivergedError, read_records, record_problem
from experiments.show import paired_t_interval, print_tables, summarise
from mild.core.margins import MarginGrid
from mild.errors import InvalidInputError, MildError, OptionError


@pytest.fixture
def trainings(monkeypatch):
    """Losses of the trainings that are really run."""
    kept = []
    usual = problems.train_network

    def train(*arguments, **options):
        kept.append(arguments[2])
        return usual(*arguments, **options)

    monkeypatch.setattr(problems, "train_network", train)
    return kept


def numbers(records):
    """What must not depend on how often a run was broken."""
    return [(r["key"], r["margins"], r["outcomes"], r["reference"], r["curve"]) for r in records]


@pytest.mark.parametrize(
    ("table", "fields", "n_cells"),
    [
        ("table1", {"costs": ("error", "cost"), "setups": ("I", "III")}, 8),
        ("table2", {"holdout": True}, 2),
        ("severe", {"methods": ("tdef", "tuned"), "setups": ("severe",)}, 4),
        ("readings", {"methods": ("ce", "cwce", "ldam", "mild:rewards=contrast,total=mean3")}, 4),
    ],
)
def test_a_table_runs_on_digits(table, fields, n_cells, make_request):
    request = make_request(table, **fields)
    records = run(request)
    assert len(records) == n_cells
    assert [record_problem(record) for record in records] == [None] * n_cells
    assert read_records(request.results) == records
    for record in records:
        cell = record["cell"]
        prices = record["experts"]["prices"] if cell["cost"] == "cost" else [0] * 5
        both = cell["method"]["margins"] in ("theory", "tuned") and len(set(record["margins"])) > 1
        assert set(record["outcomes"]) == ({"argmax", "stationary"} if both else {"argmax"})
        for rule, outcome in record["outcomes"].items():
            asked = [899 * share for share in outcome["shares"]]
            # What was paid for asking leaves a whole number of errors.
            paid = sum(count * price for count, price in zip(asked, prices, strict=False))
            errors = 899 * outcome["loss"] - paid
            assert errors == pytest.approx(round(errors), abs=1e-3)
            assert outcome["loss"] >= record["reference"]["oracle"]
            assert record["curve"][rule][-1] == pytest.approx(outcome["loss"], abs=1e-6)
    assert {block.table for block in summarise(records)} == {table}


def test_people_run_on_digits_in_place_of_cifar(make_request, monkeypatch, tmp_path):
    digits = dataclasses.replace(load_images("digits"), name="cifar10")
    columns = {f"random_label{k}": digits.train_labels * (k % 2) for k in (1, 2, 3)}
    people = PeopleFile("cifar10", digits.train_labels, columns)
    monkeypatch.setattr(runs, "load_images", lambda *_: digits)
    monkeypatch.setattr(runs, "read_people", lambda *_: people)
    options = {"people_file": tmp_path / "p.npz", "costs": ("cost",), "datasets": ("cifar10",)}
    (record,) = run(make_request("people", methods=("uniform",), **options))
    assert len(record["margins"]) == 4
    assert record["cell"]["price"] == 0.1
    assert record["cell"]["coverage"][0] == 1.0
    assert "people experts" in plan(make_request("people", **options))[0].title


def test_finished_cells_and_networks_under_another_name_are_not_trained_again(
    make_request, trainings
):
    first = run(make_request(methods=("tdef", "uniform:rewards=complement")))
    assert len(trainings) == 1
    assert first[0]["outcomes"] == first[1]["outcomes"]
    assert first[0]["key"] != first[1]["key"]
    assert run(make_request(methods=("tdef", "uniform:rewards=complement"))) == first
    assert len(trainings) == 1
    run(make_request(methods=("tdef",), seeds=2))
    assert len(trainings) == 2
    run(make_request(methods=("tdef",), validation=True))
    assert len(trainings) == 3


def test_a_broken_run_continues_with_the_same_numbers(make_request, tmp_path):
    protocol = make_request().protocol.changed(epochs=3, batch_size=256)
    whole = run(make_request(protocol=protocol, results=tmp_path / "whole.jsonl"))
    request = make_request(protocol=protocol)

    def kill(done, total, message):
        if done == 1 and "epoch 2" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(request, kill)
    assert len(read_records(request.results)) == 1
    assert numbers(run(request)) == numbers(whole)


def test_a_training_that_diverges_does_not_keep_the_others_from_being_run(
    make_request, monkeypatch
):
    usual = problems.train_network
    calls = []

    def train(*arguments, **options):
        calls.append(options)
        if len(calls) == 1:
            raise DivergedError("training diverged in epoch 1.")
        return usual(*arguments, **options)

    monkeypatch.setattr(problems, "train_network", train)
    request = make_request()
    with pytest.raises(DivergedError, match="1 of 2 trainings diverged"):
        run(request)
    assert len(read_records(request.results)) == 1


def test_the_paper_s_grid_takes_the_point_of_the_least_held_out_loss(make_request, monkeypatch):
    request = make_request()
    runner = runs.Runner(request, runs.ResultsFile(request.results))
    problem, _, _ = runner.problem(plan(request)[0], 0, lambda message: None)
    grid = MarginGrid(((0.2, 0.4, 0.4), (0.5, 0.3, 0.2)), 7)
    monkeypatch.setattr(search, "paper_grid", lambda center: grid)
    found = search.search_grid(Method.parse("grid"), problem, lambda message: None)
    assert tuple(found["margins"]) in grid.margins
    assert (found["points"], found["dropped"]) == (2, 7)


def test_requests_that_cannot_be_run_are_refused(make_request):
    for table, fields in (
        ("table1", {"seeds": 0}),
        ("table1", {"datasets": ("mnist",)}),
        ("table1", {"scale": "large"}),
        ("table1", {"holdout": True}),
        ("table1", {"ambiguous": 1.0}),
        ("table2", {"ambiguous": 0.1}),
        ("table1", {"others": 0.1}),
        ("table2", {"others": 0.0}),
        ("people", {"datasets": ("cifar10",)}),
        ("people", {"datasets": ("digits",), "people_file": "p.npz"}),
    ):
        with pytest.raises(MildError):
            make_request(table, **fields)
    with pytest.raises(OptionError):
        choose_device("tpu")


def test_the_share_of_other_classes_is_part_of_the_cell_and_of_what_is_shown(make_request):
    usual, more = (
        run(make_request("table2", methods=("tdef", "plugin"), **fields))
        for fields in ({}, {"others": 0.2, "expert_protocol": PROTOCOLS["paper"].changed(epochs=1)})
    )
    assert "others" not in usual[0]["cell"]
    assert more[0]["cell"]["others"] == 0.2
    rows = [r["experts"]["notes"]["experts"][0]["rows"] for r in (usual[0], more[0])]
    assert rows[0] < rows[1]
    (first, second) = summarise([*usual, *more])
    assert "20 % of the other classes" in first.title + second.title
    right = usual[0]["experts"]["notes"]["experts"][0]["accuracy"]["test"]
    shown = f"{100 * right['own']:.1f} and {100 * right['others']:.1f} %"
    assert any(shown in note for block in (first, second) for note in block.notes)
    assert first.rows.method.tolist()[:2] == ["TDEF", "plug-in"]


def test_a_paired_interval_covers_the_mean_and_is_wider_for_overlapping_splits():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 0.1, 10), np.zeros(10)
    plain, corrected = paired_t_interval(a, b), paired_t_interval(a, b, ratio=0.5)
    assert plain.low < a.mean() < plain.high
    assert corrected.high - corrected.low > plain.high - plain.low
    assert paired_t_interval([1.0], [0.0]) is None
    assert paired_t_interval([1.0, 2.0], [0.5, 1.5]) is None
    assert paired_t_interval([1.0, 2.0], [1.0, 2.0]).high == 0


def test_tables_are_shown_in_every_format(make_request, capsys):
    request = make_request(seeds=2)
    run(request)
    shown = {}
    for name in show.FORMATS:
        print_tables([request.results], name)
        shown[name] = capsys.readouterr().out
    blocks = json.loads(shown["json"])
    rows = blocks[0]["rows"]
    assert rows[0]["method"] == "TDEF"
    assert {"better", "worse", "level", None} >= {row.get("verdict") for row in rows}
    for name in ("text", "markdown", "latex", "csv"):
        assert "TDEF" in shown[name]
        assert "oracle" in shown[name]
    assert f"{rows[0]['loss']:.4f}" in shown["markdown"]
    assert shown["markdown"].count("\n| ") >= len(rows)
    assert "\\begin{tabular}" in shown["latex"]
    assert len(shown["csv"].splitlines()) == 1 + len(rows)
    print_tables([request.results], only={"none"})
    assert capsys.readouterr().out == ""


def test_the_commands_run_a_table_and_a_classifier(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--dataset", "digits", "--epochs", "1", "--width", "2", "--device", "cpu"]
    words = ["table1", *small, "--setup", "0.6,0.4", "--cost", "error", "--seeds", "1"]
    result = CliRunner().invoke(images_command.app, [*words, "--cache-dir", "cache"])
    assert result.exit_code == 0, result.output
    assert "Table 1" in result.output
    (record, _) = read_records("results/table1.jsonl")
    assert record["cell"]["setup"] == "0.6-0.4"
    for _ in range(2):
        result = CliRunner().invoke(images_command.app, ["classifier", *small])
        assert result.exit_code == 0, result.output
    (found,) = json.loads((tmp_path / "results" / "classifier.json").read_text())
    assert f"{found['accuracy']:.4f}" in result.output
    with pytest.raises(InvalidInputError):
        raise CliRunner().invoke(images_command.app, ["table1", "--seeds", "0"]).exception

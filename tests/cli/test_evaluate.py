"""``mild evaluate``: figures and a plain verdict."""

from __future__ import annotations

import numpy as np
import pytest

from mild.artifact import load
from mild.data import read_matrices
from mild.metrics import best_constant, deferral_loss
from outcome_cases import make_columns, write_outcomes


def test_the_figures_are_those_of_the_metrics(mild, tables, fitted):
    report = mild("evaluate", tables.new, "--router", fitted, "--json").json()
    table = read_matrices(tables.new)
    chosen = load(fitted).predict(table.X)
    assert report["summary"]["loss"] == deferral_loss(table.costs, chosen)
    assert report["summary"]["constant_loss"] == best_constant(table.costs).cost
    assert report["rows"] == 160
    assert report["experts"] == ["small", "medium", "large"]
    assert report["same_data_as_fit"] is False
    gap = report["summary"]["loss"] - report["summary"]["constant_loss"]
    assert report["verdict"]["estimate"] == pytest.approx(gap)


def test_a_good_router_pays(mild, tables, fitted):
    done = mild("evaluate", tables.new, "--router", fitted)
    assert done.code == 0
    assert "Routing pays: the mean loss of the router is" in done.out
    assert "always small" in done.out or "always medium" in done.out or "always large" in done.out
    assert "oracle" in done.out
    assert "(95 % interval of the difference" in done.out
    assert ", 160 rows)" in done.out


def test_a_handful_of_rows_gives_no_verdict(mild, tables, fitted):
    file = tables.write(tables.make(25, 1), "few.csv")
    found = mild("evaluate", file, "--router", fitted, "--json").json()["verdict"]
    assert (found["pays"], found["rows"]) == (None, 25)
    assert "25 rows are too few for a verdict (at least 30" in found["sentence"]


def test_a_constant_does_not_pay(mild, tables):
    mild("fit", tables.log, "--out", tables.folder / "c", "--router", "constant")
    report = mild("evaluate", tables.log, "--router", tables.folder / "c", "--json").json()
    assert report["verdict"]["pays"] is False
    assert "the mean loss of the router is equal to that of always" in report["verdict"]["sentence"]


def test_a_router_that_does_harm_does_not_pay(mild, tables, fitted):
    columns = tables.make(160, 1)
    costs = [columns[f"cost__{name}"] for name in ("small", "medium", "large")]
    for name, values in zip(("small", "medium", "large"), costs, strict=True):
        columns[f"cost__{name}"] = 5 - values
    report = mild("evaluate", tables.write(columns, "bad.csv"), "--router", fitted, "--json").json()
    assert report["verdict"]["pays"] is False
    assert report["verdict"]["low"] > 0
    assert "higher than that of always" in report["verdict"]["sentence"]


def test_noise_cannot_be_told(mild, tables, fitted):
    columns = tables.make(60, 1)
    rng = np.random.default_rng(3)
    for name in ("small", "medium", "large"):
        columns[f"cost__{name}"] = rng.uniform(size=60)
    report = mild(
        "evaluate", tables.write(columns, "noise.csv"), "--router", fitted, "--json"
    ).json()
    assert report["verdict"]["pays"] is None
    assert report["verdict"]["low"] < 0 < report["verdict"]["high"]
    assert "It is not clear whether routing pays" in report["verdict"]["sentence"]
    assert "within the noise" in report["verdict"]["sentence"]


def test_the_training_data_are_recognised(mild, tables, fitted):
    done = mild("evaluate", tables.log, "--router", fitted, "--json")
    assert done.json()["same_data_as_fit"] is True
    assert "warning: the router was fitted on these rows" in done.err


def test_columns_in_another_order_change_nothing(mild, tables, fitted):
    columns = tables.make(160, 1)
    shuffled = {name: columns[name] for name in reversed(columns)}
    first = mild("evaluate", tables.new, "--router", fitted, "--json").json()
    again = mild(
        "evaluate", tables.write(shuffled, "again.csv"), "--router", fitted, "--json"
    ).json()
    assert first["summary"] == again["summary"]


def test_unknown_costs_are_left_out_and_counted(mild, tables, fitted):
    columns = tables.make(160, 1)
    columns["cost__medium"][:] = np.nan
    done = mild("evaluate", tables.write(columns, "gaps.csv"), "--router", fitted)
    assert done.code == 0, done.err
    assert "42 of 160 rows are left out because not every expert was asked." in done.err
    assert "on 118 rows" in done.out
    assert ", 118 rows)." in done.out


def test_too_few_known_rows_give_no_verdict(mild, tables, fitted):
    columns = {name: values[:1] for name, values in tables.make(5, 1).items()}
    report = mild("evaluate", tables.write(columns, "one.csv"), "--router", fitted, "--json").json()
    assert report["verdict"]["pays"] is None
    assert "too few rows (1)" in report["verdict"]["sentence"]


def test_an_expert_without_costs_is_named(mild, tables, fitted):
    columns = tables.make(20, 1)
    del columns["cost__medium"]
    done = mild("evaluate", tables.write(columns, "less.csv"), "--router", fitted)
    assert done.code == 1
    assert "'medium' has none, found small, large" in done.err


def test_a_missing_feature_is_named(mild, tables, fitted):
    columns = tables.make(20, 1)
    del columns["f_2"]
    done = mild("evaluate", tables.write(columns, "less.csv"), "--router", fitted)
    assert done.code == 1
    assert "'f_2' is not one; did you mean" in done.err


def test_a_folder_that_is_no_router_is_one_sentence(mild, tables):
    done = mild("evaluate", tables.new, "--router", tables.folder / "nothing", "--json")
    assert done.code == 1
    assert "there is no such folder" in done.json()["error"]


def test_means_over_different_rows_have_no_share_of_the_gain(mild, tables, fitted):
    columns = tables.make(160, 1)
    columns["cost__medium"][20:] = np.nan
    file = tables.write(columns, "gaps.csv")
    (line,) = [
        line
        for line in mild("evaluate", file, "--router", fitted).out.splitlines()
        if "share of the possible gain" in line
    ]
    assert "–" in line
    report = mild("evaluate", file, "--router", fitted, "--json").json()
    assert report["summary"]["headroom_captured"] is None


def test_an_evaluation_on_numbers_is_saved_for_the_report(mild, tables, fitted):
    saved = mild("evaluate", tables.new, "--router", fitted, "--save", "--json").json()["saved"]
    assert saved == str(fitted / "evaluation.json")
    page = tables.folder / "report.html"
    assert mild("report", fitted, "--out", page).code == 0
    assert "Routing pays" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("unpriced", ["poet", "cook"])
def test_an_expert_without_prices_leaves_the_dollars_of_a_router_unknown(
    mild, logs, readers, tmp_path, unpriced
):
    columns = make_columns(90, 1, prices=True)
    columns.pop(f"cost__{unpriced}")
    file = write_outcomes(columns, tmp_path / "new.csv")
    done = mild("evaluate", file, "--router", readers(), "--beta", "cook=0")
    assert done.code == 0, done.err
    assert "In dollars" not in done.out
    report = mild("evaluate", file, "--router", readers(), "--beta", "cook=0", "--json").json()
    assert min(report["summary"]["shares"]) > 0.1
    router = next(row for row in report["baselines"] if row["key"] == "router")
    assert router["dollars_per_1000"] is None
    assert report["dollars_per_1000"]["router"] is None
    assert report["verdict"]["dollars_per_1000"] is None


@pytest.mark.parametrize("unpriced", ["adder", "cook"])
def test_a_search_says_no_dollars_where_an_expert_has_no_price(mild, tmp_path, unpriced):
    columns = make_columns(90, 1, prices=True)
    columns.pop(f"cost__{unpriced}")
    file = write_outcomes(columns, tmp_path / "new.csv")
    words = ["--out", tmp_path / "r", "--families", "linear", "--alphas", "0.1"]
    done = mild("tune", file, *words)
    assert done.code == 0, done.err
    assert "Routing pays" in done.out
    assert "In dollars" not in done.out

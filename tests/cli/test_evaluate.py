"""``mild evaluate``: figures and a plain verdict."""

from __future__ import annotations

import numpy as np
import pytest

from mild.artifact import load
from mild.data import read_outcomes
from mild.metrics import best_constant, deferral_loss


def test_the_figures_are_those_of_the_metrics(mild, tables, fitted):
    report = mild("evaluate", fitted, tables.new, "--json").json()
    table = read_outcomes(tables.new)
    chosen = load(fitted).predict(table.vectors)
    assert report["summary"]["loss"] == deferral_loss(table.costs(), chosen)
    assert report["summary"]["constant_loss"] == best_constant(table.costs()).cost
    assert report["rows"] == 160
    assert report["experts"] == ["large", "medium", "small"]
    assert report["same_data_as_fit"] is False
    gap = report["summary"]["loss"] - report["summary"]["constant_loss"]
    assert report["verdict"]["estimate"] == pytest.approx(gap)


def test_a_good_router_pays(mild, tables, fitted):
    done = mild("evaluate", fitted, tables.new)
    assert done.code == 0
    assert "Routing pays: the mean loss of the router is" in done.out
    assert "always small" in done.out or "always medium" in done.out or "always large" in done.out
    assert "oracle" in done.out
    assert "(95 % interval of the difference" in done.out
    assert ", 160 rows)" in done.out


def test_the_training_data_are_recognised(mild, tables, fitted):
    done = mild("evaluate", fitted, tables.log, "--json")
    assert done.json()["same_data_as_fit"] is True
    assert "warning: the router was fitted on these rows" in done.err


def test_columns_in_another_order_change_nothing(mild, tables, fitted):
    columns = tables.make(160, 1)
    shuffled = {name: columns[name] for name in reversed(columns)}
    first = mild("evaluate", fitted, tables.new, "--json").json()
    again = mild("evaluate", fitted, tables.write(shuffled, "again.csv"), "--json").json()
    assert first["summary"] == again["summary"]


def test_unknown_costs_are_left_out_and_counted(mild, tables, fitted):
    columns = tables.make(160, 1)
    columns["score__medium"][:43] = np.nan
    done = mild("evaluate", fitted, tables.write(columns, "gaps.csv"))
    assert done.code == 0, done.err
    assert "43 of 160 rows are left out because not every expert was asked." in done.err
    assert "on 117 rows" in done.out
    assert ", 117 rows)." in done.out


def test_an_expert_without_costs_is_named(mild, tables, fitted):
    columns = tables.make(20, 1)
    del columns["score__medium"]
    done = mild("evaluate", fitted, tables.write(columns, "less.csv"))
    assert done.code == 1
    assert "the table has no medium, only large, small" in done.err


def test_a_table_without_vectors_is_refused(mild, tables, fitted):
    columns = tables.make(20, 1)
    columns["prompt"] = columns.pop("id")
    del columns["embedding"]
    done = mild("evaluate", fitted, tables.write(columns, "less.csv"))
    assert done.code == 1
    assert "embedding" in done.err


def test_a_folder_without_a_router_is_an_error_of_one_sentence(mild, tables):
    done = mild("evaluate", tables.folder / "nothing", tables.new, "--json")
    assert done.code == 1
    assert "there is no such folder" in done.json()["error"]


def test_a_router_of_numbers_has_a_report(mild, tables, fitted):
    page = tables.folder / "report.html"
    done = mild("evaluate", fitted, tables.new, "--report", page, "--json")
    assert done.json()["report"] == str(page)
    content = page.read_text(encoding="utf-8")
    assert "<h1>Routing pays</h1>" in content
    assert "<title>Router report: router</title>" in content
    assert "160 rows, 3 experts" in content
    assert "optimistic" not in content + done.err


def test_a_page_is_replaced_only_on_request(mild, tables, fitted):
    page = tables.folder / "report.html"
    page.write_text("mine")
    words = ["evaluate", fitted, tables.new, "--report", page]
    assert "exists" in mild(*words).err
    assert page.read_text() == "mine"
    done = mild(*words, "--overwrite")
    assert done.out.splitlines()[-1] == f"Written to {page}."
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    refused = mild("evaluate", fitted, tables.new, "--report", tables.folder / "report.txt")
    assert refused.code == 1
    assert "must end in .html" in refused.err

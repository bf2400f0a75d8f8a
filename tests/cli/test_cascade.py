"""Cascades in ``mild evaluate``, ``report``, ``compare`` and ``explain``."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from answer_table_cases import answer_columns, answer_table, fitted_cascade


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cascade") / "router"
    fitted_cascade(answer_table(400)).save(folder)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("table") / "new.parquet"
    pq.write_table(pa.table(answer_columns(120, 1)), file)
    return file


def test_evaluate_prints_the_steps_and_both_verdicts(mild, router, table):
    done = mild("evaluate", router, table)
    assert done.code == 0, done.err
    assert "steps of the cascade" in done.out
    assert "1. little + other" in done.out
    assert "router without answers" in done.out
    assert "the mean loss of the cascade is" in done.out
    assert "asked" in done.out
    found = mild("evaluate", router, table, "--json").json()
    steps = found["cascade"]["steps"]
    assert sum(step["rows"] for step in steps) == found["rows"] == 120


def test_evaluate_refuses_a_table_without_answers(mild, router, tmp_path):
    columns = {name: cells for name, cells in answer_columns(60).items() if "answer" not in name}
    pq.write_table(pa.table(columns), tmp_path / "bare.parquet")
    done = mild("evaluate", router, tmp_path / "bare.parquet", "--json")
    assert done.code == 1
    assert done.json()["code"] == "invalid_data"
    assert "Add columns answer__<expert>" in done.err


def test_a_report_shows_the_steps(mild, router, table, tmp_path):
    page = tmp_path / "report.html"
    assert mild("evaluate", router, table, "--report", page).code == 0
    assert "Steps of the cascade" in page.read_text()


def test_compare_has_a_row(mild, table):
    arguments = ("--methods", "cascade", "--n-splits", "2", "--price-weight", "5", "--n-jobs", "1")
    found = mild("compare", table, *arguments, "--json").json()
    last = found["methods"][-1]
    assert last["method"] == "cascade"
    assert 1 <= sum(last["asked"]) <= 3
    assert "cascade" in mild("compare", table, *arguments).out


def test_explain_shows_what_would_be_accepted_and_the_path(mild, router):
    shown = mild("explain", router, "What is 2 + 2?").out
    assert "little and other are asked" in shown
    assert "If little and other agree (as in" in shown
    answers = json.dumps({"little": "4", "other": "5", "strong": "4"})
    done = mild("explain", router, "What is 2 + 2?", "--answers", answers, "--json").json()
    assert [step["accepted"] for step in done["path"]] == [False, True]
    told = mild("explain", router, "What is 2 + 2?", "--answers", answers).out
    assert "Asked strong: little and strong agree ('4', as in" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hi", "--answers", "[1"), "--answers must be JSON of experts"),
        (("hi", "--answers", '{"nobody": 1}'), "answers must map experts"),
    ],
)
def test_explain_refuses_in_one_sentence(mild, router, arguments, words):
    done = mild("explain", router, *arguments)
    assert done.code == 1
    assert words in done.err

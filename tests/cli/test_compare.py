"""``mild compare``"""

from __future__ import annotations

import json

import pytest

from command_runner import invoke_mild

FAST = ["--n-splits", 4, "--n-jobs", 1]
TWO = [*FAST, "--methods", "ridge", "--methods", "knn"]


@pytest.fixture(scope="module")
def found(logs):
    """What a comparison with prices prints, and its figures."""
    words = ["compare", logs.log, "--price-weight", 5, *TWO]
    done = [invoke_mild(words), invoke_mild([*words, "--json"])]
    assert [one.exit_code for one in done] == [0, 0], done[0].stderr
    return done[0].stdout, json.loads(done[1].stdout)


def test_every_method_is_a_row_between_the_constant_and_the_oracle(found):
    lines = found[0].splitlines()
    for name in ("best constant", "cost regression", "kNN", "perfect choice"):
        assert any(line.startswith(f"│ {name}") for line in lines), name


def test_the_verdict_stands_last(found):
    shown, figures = found
    verdict = shown.splitlines()[-1]
    assert verdict.startswith("Routing pays: the mean loss of cost regression is")
    assert "95 % interval of the difference" in verdict
    assert " rows, 4 splits, 2 methods compared" in verdict
    assert "per 1,000 inputs" in verdict
    assert figures["statement"]["sentence"] == verdict


def test_the_figures_have_an_interval_and_a_loss_for_each_split(found):
    methods = found[1]["methods"]
    assert [method["method"] for method in methods] == ["constant", "ridge", "knn"]
    for method in methods[1:]:
        low, high = method["minus_constant"][1:]
        assert low <= method["minus_constant"][0] <= high
        assert len(method["costs"]) == 4


@pytest.mark.parametrize("width", ["80", "120"])
def test_by_default_one_table_has_every_method_and_the_verdict_is_below_it(
    mild, logs, found, monkeypatch, width
):
    monkeypatch.setenv("COLUMNS", width)
    done = mild("compare", logs.log, "--price-weight", 5, *TWO)
    lines = done.out.splitlines()
    assert sum(line.startswith("┏") for line in lines) == 1
    names = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert names[:3] == ["best constant", "cost regression", "kNN"]
    assert names[3].startswith("perfect choice")
    assert max(map(len, lines[:-1])) <= int(width)
    assert lines[-1] == found[1]["statement"]["sentence"]


def test_json_is_one_object_with_every_figure(mild, logs):
    done = mild("compare", logs.log, *TWO, "--json")
    report = done.json()
    assert report["statement"]["pays"] is True
    assert report["text"] == "hashing"
    assert report["splits"] == 4
    assert report["headroom"] > 0
    assert report["cost"]["words"] == "error"


def test_with_time_the_past_is_learned_and_the_future_judged(mild, logs):
    report = mild("compare", logs.log, "--methods", "knn", "--time", "day", "--json")
    assert report.json()["splits"] == 1
    assert report.json()["rows_to_train_on"] == 105
    assert "one split" in report.json()["statement"]["sentence"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "svm"], "methods must be one of"),
        (
            ["--groups", "topic"],
            "groups must be the name of a column; there is no column 'topic'",
        ),
        (["--time", "subject"], "must hold numbers or dates"),
        (["--model", "x"], "--model is for --text encoder or hashing+encoder"),
    ],
)
def test_invalid_options_are_an_error_of_one_sentence(mild, logs, words, said):
    done = mild("compare", logs.log, *TWO, *words)
    assert done.code == 1
    errors = [line for line in done.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert said in errors[0]


def test_without_a_table_the_one_that_comes_with_mild_is_used(mild, logs, monkeypatch):
    monkeypatch.setattr("mild.datasets.outcomes_file", lambda: logs.log)
    report = mild("compare", *TWO, "--json").json()
    assert (report["data"], report["rows"]) == (None, 150)


def test_ctrl_c_prints_the_splits_that_have_finished(mild, logs, monkeypatch):
    from mild.evaluation import comparison

    run, calls = comparison.run_method, []

    def interrupted_in_the_second_split(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(comparison, "run_method", interrupted_in_the_second_split)
    done = mild("compare", logs.log, "--methods", "ridge", "--n-splits", 3)
    assert done.code == 130
    assert "1 split" in done.out
    assert "cost regression" in done.out
    assert "interrupted: " in done.err

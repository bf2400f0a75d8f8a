"""``mild fit``: a table in, a router on disk out."""

from __future__ import annotations

import numpy as np
import pytest

from mild.artifact import fingerprint, load
from mild.artifact.info import DataInfo
from mild.data import read_outcomes


def test_a_router_is_fitted_saved_and_described(mild, tables):
    done = mild("fit", tables.log, "--out", tables.folder / "router")
    assert done.code == 0
    assert "training rows (optimistic)" in done.out
    assert "margins" in done.out
    assert "vectors are column 'embedding'" in done.err
    router = load(tables.folder / "router")
    table = read_outcomes(tables.log)
    assert router.experts == ["large", "medium", "small"]
    assert router.info.kind == "standardized"
    assert router.info.data == DataInfo(fingerprint(table.vectors, table.costs()), 240)


def test_json_stands_alone_on_stdout(mild, tables):
    result = mild("fit", tables.log, "--out", tables.folder / "router", "--json").json()
    assert result["kind"] == "standardized"
    assert len(result["margins"]) == 3
    assert result["cost"]["words"] == "error"
    training = result["training"]
    assert training["summary"]["loss"] < training["summary"]["constant_loss"]
    assert "verdict" not in training


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("linear", "linear"),
        ("ridge", "linear_costs"),
        ("knn", "nearest"),
        ("constant", "constant"),
    ],
)
def test_every_kind_of_router_can_be_fitted(mild, tables, name, kind):
    done = mild("fit", tables.log, "--out", tables.folder / "r", "--router", name)
    assert done.code == 0, done.err
    assert kind in load(tables.folder / "r").policy.parts


def test_options_reach_the_router(mild, tables):
    words = "--loss mild --rewards contrast --surrogate 0.5 --margins 1,2,0.5 --alpha 0.1"
    words += " --decision argmax --random-state 7 --json"
    result = mild("fit", tables.log, "--out", tables.folder / "r", *words.split()).json()
    params = result["estimator"]["params"]
    expected = {
        "loss": "mild",
        "rewards": "contrast",
        "surrogate": 0.5,
        "margins": [1.0, 2.0, 0.5],
        "alpha": 0.1,
        "decision": "argmax",
        "random_state": 7,
    }
    assert {key: params[key] for key in expected} == expected
    assert result["margins"] == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--router knnn", "Did you mean 'knn'?"),
        (
            "--router knn --loss ce",
            "loss is not a parameter of a knn router; it takes none of these.",
        ),
        ("--loss mildd", "loss must be one of"),
        ("--surrogate logistik", "Did you mean 'logistic'?"),
        ("--margins 1,x,3", "margins must be theory, uniform, or numbers such as 1,2,0.5"),
        ("--margins 1,2", "margins must have shape (n_experts,) = (3,); got (2,)"),
        ("--surrogate abc", "It may be a name or a number tau >= 0."),
        ("--margins 1,0,2", "margins must be positive and finite; got 0 for expert 1"),
        ("--alpha -1", "alpha must be finite and non-negative; got -1.0"),
    ],
)
def test_errors_are_one_sentence(mild, tables, words, sentence):
    done = mild("fit", tables.log, "--out", tables.folder / "r", *words.split())
    assert done.code == 1
    assert done.out == ""
    *_, last = done.err.splitlines()
    assert done.err.count("error: ") == 1
    assert last.startswith("error: ")
    assert sentence in last
    assert not (tables.folder / "r").exists()


def test_a_router_that_exists_is_replaced_only_on_request(mild, tables, fitted):
    refused = mild("fit", tables.log, "--out", fitted, "--json")
    assert refused.code == 1
    assert "exists; choose another folder" in refused.json()["error"]
    assert mild("fit", tables.log, "--out", fitted, "--router", "knn", "--overwrite").code == 0
    assert load(fitted).info.estimator.class_name == "KNNRouter"


def test_the_output_is_checked_before_the_fit(mild, tables, fitted, monkeypatch):
    from mild.routers.linear import LinearRouter

    def fail(self, *data):
        raise AssertionError("fitted in vain")

    monkeypatch.setattr(LinearRouter, "fit", fail)
    assert "exists" in mild("fit", tables.log, "--out", fitted).err


def test_constant_costs_are_a_note_and_a_router(mild, tables):
    columns = tables.make(50, 0)
    for name in ("small", "medium", "large"):
        columns[f"score__{name}"] = np.full(50, 0.5)
    done = mild("fit", tables.write(columns, "flat.csv"), "--out", tables.folder / "r")
    assert done.code == 0
    assert "there is nothing to route: in no row does another expert cost less" in done.err


def test_one_expert_is_enough(mild, tables):
    done = mild("fit", tables.log, "--out", tables.folder / "r", "--experts", "small")
    assert done.code == 0, done.err
    assert load(tables.folder / "r").experts == ["small"]


@pytest.mark.parametrize("name", ["", " "])
def test_a_folder_without_a_name_is_refused(mild, tables, name):
    done = mild("fit", tables.log, "--out", name)
    assert done.code == 1
    assert done.err == f"error: the folder to write to must have a name; got {name!r}.\n"

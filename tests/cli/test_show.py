"""``mild show``: what a router is."""

from __future__ import annotations

import json

import pytest


def shown(done):
    """First table as a dictionary."""
    cells = [line.strip("│").split("│") for line in done.out.splitlines() if line.startswith("│")]
    return {row[0].strip(): row[1].strip() for row in cells if len(row) == 2}


def test_everything_that_matters_is_shown(mild, tables, fitted):
    done = mild("show", fitted)
    assert done.code == 0
    for words in (
        "standardized > linear",
        "LinearRouter",
        "stationary",
        "240 rows, fingerprint",
        "bytes",
        "small",
        "margin",
        "0.coef",
        "3 x 4",
        "float64",
    ):
        assert words in done.out


def test_json_holds_the_same(mild, fitted):
    report = mild("show", fitted, "--json").json()
    meta = json.loads((fitted / "router.json").read_text())
    for key in ("kind", "settings", "estimator", "data", "tensors", "created"):
        assert report[key] == meta[key]
    assert report["experts"] == ["small", "medium", "large"]
    assert len(report["margins"]) == 3
    assert set(report["bytes"]) == {"router.json", "tensors.safetensors"}


def test_a_router_without_margins_has_none(mild, tables):
    mild("fit", tables.log, "--out", tables.folder / "knn", "--router", "knn")
    assert mild("show", tables.folder / "knn", "--json").json()["margins"] is None
    assert "–" in mild("show", tables.folder / "knn").out


def test_a_damaged_router_is_one_sentence(mild, fitted):
    (fitted / "tensors.safetensors").write_bytes(b"")
    done = mild("show", fitted, "--json")
    assert done.code == 1
    assert "does not match the checksum" in done.json()["error"]
    assert done.err.startswith("error: cannot load a router from")


def test_what_the_fit_was_told_is_shown(mild, fitted):
    rows = shown(mild("show", fitted))
    told = {
        "loss": "mild",
        "rewards": "others",
        "margins": "theory",
        "counts": "reward",
        "alpha": "0.001",
        "surrogate": "logistic",
        "features": "f_0, f_1, f_2, f_3",
    }
    assert {key: rows[key] for key in told} == told


@pytest.mark.parametrize(
    ("surrogate", "words"),
    [
        ("exponential", "exponential"),
        ("0.5", "tau 0.5"),
        ("hinge", "hinge"),
        ("pairwise_logistic", "pairwise logistic"),
    ],
)
def test_the_surrogate_has_its_name(mild, tables, surrogate, words):
    out = tables.folder / "r"
    done = mild("fit", tables.log, "--out", out, "--surrogate", surrogate, "--margins", "1,2,0.5")
    assert done.code == 0, done.err
    rows = shown(mild("show", out))
    assert rows["surrogate"] == words
    assert rows["margins"] == "1 2 0.5"
    assert "counts" not in rows


def test_a_loss_without_rewards_and_margins_shows_none(mild, tables):
    mild("fit", tables.log, "--out", tables.folder / "r", "--loss", "ce")
    rows = shown(mild("show", tables.folder / "r"))
    assert rows["loss"] == "ce"
    assert not {"rewards", "margins", "counts"} & set(rows)


@pytest.mark.parametrize("kind", ["constant", "cascade"])
def test_nothing_is_shown_twice_or_as_none(mild, tables, kind):
    mild("fit", tables.log, "--out", tables.folder / "r", "--router", kind)
    done = mild("show", tables.folder / "r")
    assert "None" not in done.out
    assert not {"n_features", "n features"} & set(shown(done))


def test_a_search_shows_what_it_was_told_and_what_it_found_once_each(mild, tables):
    words = ["--cv", "2", "--alphas", "0.01", "--margin-factors", "1", "--rewards", "contrast"]
    mild("tune", tables.log, "--out", tables.folder / "r", *words)
    rows = shown(mild("show", tables.folder / "r"))
    assert rows["best params"].startswith("alpha 0.01, margins")
    assert rows["rewards"] == "contrast"
    assert not {"alpha", "margins"} & set(rows)

"""``mild explain`` without a query: what a router is."""

from __future__ import annotations

import json

from cascade_cases import cascade_router


def shown(done):
    """First table as a dictionary."""
    cells = [line.strip("│").split("│") for line in done.out.splitlines() if line.startswith("│")]
    return {row[0].strip(): row[1].strip() for row in cells if len(row) == 2}


def test_everything_that_matters_is_shown(mild, tables, fitted):
    done = mild("explain", fitted)
    assert done.code == 0
    for words in (
        "standardized > linear",
        "LinearRouter",
        "stationary",
        "240 rows, fingerprint",
        "bytes",
        "small",
        "margin",
    ):
        assert words in done.out
    assert "tensor" not in done.out, "a mix has a hundred of them"


def test_json_holds_the_same(mild, fitted):
    report = mild("explain", fitted, "--json").json()
    meta = json.loads((fitted / "router.json").read_text())
    for key in ("kind", "settings", "estimator", "data", "tensors", "created"):
        assert report[key] == meta[key]
    assert "0.coef" in report["tensors"]
    assert report["experts"] == ["large", "medium", "small"]
    assert len(report["margins"]) == 3
    assert set(report["bytes"]) == {"router.json", "tensors.safetensors"}


def test_a_damaged_router_is_an_error_of_one_sentence(mild, fitted):
    (fitted / "tensors.safetensors").write_bytes(b"")
    done = mild("explain", fitted, "--json")
    assert done.code == 1
    assert "does not match the checksum" in done.json()["error"]
    assert done.err.startswith("error: cannot load a router from")


def test_the_steps_of_a_cascade_are_shown_in_words(mild, tmp_path):
    folder = cascade_router().save(tmp_path / "router")
    done = mild("explain", folder)
    words = " ".join(done.out.replace("│", " ").split())
    assert "asks small and medium at the same time; accepts the leading answer" in words
    shown = mild("explain", folder, "--json").json()
    assert shown["kind"] == "cascade"
    assert shown["settings"]["steps"] == [[0, 1], [2]]
    assert shown["steps"] == [["small", "medium"], ["large"]]


def test_options_about_a_query_need_a_query(mild, fitted):
    for option in (["--answers", "{}"], ["--price-weight", "1"]):
        done = mild("explain", fitted, *option, "--json")
        assert (done.code, done.json()["code"]) == (1, "invalid_query")

"""What a reader of the paper runs: the comparison on digits, tables from records, and a new record.

The commands run in processes. What they report is recomputed from the files that they read or write.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results"
#: Methods of the comparison on digits, with those that learn nothing.
N_METHODS = 15
#: Rows of a table that are no methods.
REFERENCES = ("best single expert", "oracle")
LONGEST = 600


def run(module, *words):
    """What ``python -m module`` prints; it must end with 0."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quick_comparison_on_digits(tmp_path):
    out = tmp_path / "digits"
    run("experiments.digits", "--quick", "--out", out)
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    for picture in ("overview.png", "pictures.png"):
        content = (out / picture).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000

    # Two setups, two kinds of experts and two costs; each with the same methods and two seeds.
    cells = {(block["setup"], block["experts"], block["cost"]) for block in results["blocks"]}
    assert len(cells) == len(results["blocks"]) == 8
    assert len(results["methods"]) == N_METHODS
    rows = defaultdict(list)
    with (out / "results.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows[row["setup"], row["experts"], row["cost"], row["method"]].append(row)
    for block in results["blocks"]:
        shares = {row["method"]: row["mean_shares"] for row in block["rows"]}
        means = {row["method"]: row["mean"] for row in block["rows"]}
        # It knows the label of the row, which is of no use in the plane of the regions.
        assert set(means) == {method["key"] for method in results["methods"]} - {"label"}
        cell = block["setup"], block["experts"], block["cost"]
        for method, mean in means.items():
            losses = [float(row["loss"]) for row in rows[*cell, method]]
            assert len(losses) == len(results["seeds"]) == 2
            assert np.mean(losses) == pytest.approx(mean)
            assert means["oracle"] <= mean < 2
            assert sum(shares[method]) == pytest.approx(1)
        # What learns is better than the best expert alone; the constant asks one expert only.
        assert means["tdef"] < means["constant"]
        assert means["mild_uniform"] < means["constant"]
        assert sorted(shares["constant"])[-1] == 1
        # A verdict is what its interval says.
        for row in block["rows"]:
            interval = row["minus_tdef"]
            if interval is None:
                assert row["verdict_against_tdef"] == "level"
                continue
            verdict = "level"
            if interval["high"] < 0:
                verdict = "better"
            elif interval["low"] > 0:
                verdict = "worse"
            assert row["verdict_against_tdef"] == verdict
            assert interval["estimate"] == pytest.approx(row["mean"] - means["tdef"], abs=1e-6)


def read_records(files):
    """The records of files by their keys; of two with a key, the one that finished last."""
    records = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            known = records.setdefault(record["key"], record)
            if datetime.fromisoformat(record["finished"]) > datetime.fromisoformat(
                known["finished"]
            ):
                records[record["key"]] = record
    return list(records.values())


def tables_of(records):
    """Losses in tables, by hand: table and number of seeds -> means and standard deviations, in order.

    Records form a row of a table if they differ in their seed alone; each rule that decides has its own.
    """
    losses = defaultdict(list)
    for record in records:
        setting = {name: value for name, value in record["cell"].items() if name != "seed"}
        for rule, outcome in record["outcomes"].items():
            key = json.dumps([setting, rule], sort_keys=True)
            losses[record["cell"]["table"], key].append(outcome["loss"])
    found = defaultdict(list)
    for (table, _), values in losses.items():
        deviation = np.std(values, ddof=1) if len(values) > 1 else None
        found[table, len(values)].append((np.mean(values), deviation))
    return sorted_columns(found)


def shown_tables(blocks):
    """The same, as the command prints it."""
    found = defaultdict(list)
    for block in blocks:
        for row in block["rows"]:
            if row["method"] not in REFERENCES:
                found[block["table"], row["seeds"]].append((row["loss"], row["std"]))
    return sorted_columns(found)


def sorted_columns(found):
    # Each by itself: rows with the same mean have no order.
    columns = {}
    for key, rows in found.items():
        means, deviations = zip(*rows, strict=True)
        known = [deviation for deviation in deviations if deviation is not None]
        columns[key] = sorted(means), sorted(known)
    return columns


def assert_same_tables(shown, by_hand):
    assert set(shown) == set(by_hand)
    for key, (means, deviations) in by_hand.items():
        np.testing.assert_allclose(shown[key][0], means, atol=1e-8)
        np.testing.assert_allclose(shown[key][1], deviations, atol=1e-8)


def test_the_tables_are_means_of_the_records():
    records = read_records(sorted(RECORDS.glob("*.jsonl")))
    assert len(records) > 1000
    blocks = json.loads(run("experiments.show", RECORDS, "--format", "json"))
    assert_same_tables(shown_tables(blocks), tables_of(records))
    # The oracle is never beaten.
    for block in blocks:
        losses = {row["method"]: row["loss"] for row in block["rows"]}
        if "oracle" in losses:
            assert losses["oracle"] == min(losses.values())
    # As a file for other programs.
    lines = csv.DictReader(run("experiments.show", RECORDS, "--format", "csv").splitlines())
    found = [(line["block"], line["method"], float(line["loss"])) for line in lines]
    expected = [(b["title"], row["method"], row["loss"]) for b in blocks for row in b["rows"]]
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    np.testing.assert_allclose([row[2] for row in found], [row[2] for row in expected], atol=1e-8)


def test_a_record_is_listed_run_and_shown(tmp_path):
    # Smaller than the paper's, on images that scikit-learn brings.
    request = {
        "table": "severe",
        "datasets": ["digits"],
        "experts": ["synthetic"],
        "costs": ["error"],
        "methods": ["tdef", "mild"],
        "seeds": 2,
        "changes": {"epochs": 2, "width": 4, "batch_size": 128},
    }
    requests, file = tmp_path / "requests.json", tmp_path / "records.jsonl"
    requests.write_text(json.dumps([request]), encoding="utf-8")
    words = [requests, "--results", file, "--cache-dir", tmp_path, "--device", "cpu"]
    named = run("experiments.images.batch", *words, "--list").count("left: ")
    assert named == 4
    assert not file.exists()
    run("experiments.images.batch", *words)
    records = read_records([file])
    assert len(records) == named
    assert {record["cell"]["seed"] for record in records} == {0, 1}
    for record in records:
        for outcome in record["outcomes"].values():
            assert sum(outcome["shares"]) == pytest.approx(1, abs=1e-3)
    blocks = json.loads(run("experiments.show", file, "--format", "json"))
    assert_same_tables(shown_tables(blocks), tables_of(records))

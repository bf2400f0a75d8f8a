"""The command line end to end on digits: trained, shown, stopped and taken up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")

SMALL = ["--epochs", "1", "--width", "2", "--batch-size", "128", "--device", "cpu"]


def digits(tmp_path, *words):
    return [
        *("reproduce", words[0], "--dataset", "digits", *SMALL, *words[1:]),
        *("--results", str(tmp_path / "r.jsonl")),
    ]


def test_a_table_is_run_and_shown_in_every_format(mild, tmp_path):
    words = digits(tmp_path, "table1", "--setup", "I", "--cost", "error", "--method", "tdef")
    words += ["--seeds", "1", "--cache-dir", str(tmp_path / "cache")]
    first = mild(*words)
    assert first.code == 0, first.err
    assert "digits · setup I (70-20-10) · synthetic experts · error" in first.out
    held = (tmp_path / "r.jsonl").read_bytes()
    assert mild(*words).code == 0
    # Nothing is run twice.
    assert (tmp_path / "r.jsonl").read_bytes() == held
    for form in ("terminal", "markdown", "latex", "csv"):
        shown = mild("reproduce", "show", tmp_path / "r.jsonl", "--format", form)
        assert shown.code == 0, shown.err
        assert "TDEF" in shown.out
    assert mild("reproduce", "show", tmp_path, "--json").json()["blocks"][0]["table"] == "table1"


def test_a_classifier_is_judged(mild, tmp_path):
    words = digits(tmp_path, "classifier", "--seeds", "2")
    report = mild(*words, "--json").json()
    assert [record["cell"]["seed"] for record in report["records"]] == [0, 1]
    assert all(0 <= record["accuracy"] <= 1 for record in report["records"])
    assert "accuracy %" in mild(*words).out


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_what_is_finished(tmp_path):
    words = digits(tmp_path, "table1", "--setup", "I", "--cost", "error", "--method", "tdef")
    command = [sys.executable, "-m", "mild", *words, "--seeds", "500"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "r.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert b"finished cells are in" in said
    assert b"Traceback" not in said
    shown = subprocess.run(
        [sys.executable, "-m", "mild", "reproduce", "show", tmp_path / "r.jsonl"],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "TDEF" in shown.stdout

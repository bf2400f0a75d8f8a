"""The commands of the published trainings ask for what is in the results files, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mild.cli.app import build_app
from mild.reproduce.cells import plan
from mild.reproduce.results import read_records

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "reproduce_images.sh"
if not SCRIPT.exists():
    pytest.skip("the scripts are not here", allow_module_level=True)
FILES = {"decay", "readings", "readings-unit", "table1", "table2", "severe", "people"}


class StopError(Exception):
    """In place of the trainings."""


def commands(folder):
    """What the script calls mild with."""
    said = folder / "said"
    mild = folder / "mild"
    mild.write_text('#!/bin/sh\nprintf "%s\\037" "$@" >> "$SAID"; echo >> "$SAID"\n')
    mild.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    known = {"PATH": path, "SAID": str(said), "RESULTS": "mine", "DATA": str(folder)}
    subprocess.run(["bash", str(SCRIPT)], env=known, check=True)
    return [line.split("\037")[:-1] for line in said.read_text().splitlines()]


def asked_for(monkeypatch, words):
    """The request that a command makes."""
    requests = []

    def stop(request, progress):
        requests.append(request)
        raise StopError

    monkeypatch.setattr("mild.reproduce.run.reproduce", stop)
    result = CliRunner().invoke(build_app(), words)
    assert isinstance(result.exception, StopError), result.output
    return requests[0]


def classifiers(monkeypatch, words):
    """The protocols that a command trains plain classifiers by."""
    found = []

    def train(data, protocol, seeds, *rest, **more):
        assert seeds == 1
        found.append(protocol.as_dict())
        return []

    monkeypatch.setattr("mild.reproduce.data.load_images", lambda name, folder: None)
    monkeypatch.setattr("mild.reproduce.classifier.run_classifier", train)
    assert CliRunner().invoke(build_app(), words).exit_code == 0
    return found


def name(cell):
    """A cell without what only the data, and people, add to it."""
    added = {"data", "coverage", "people", "classifier_rows", "test_fraction", "price"}
    return repr(sorted((key, value) for key, value in cell.items() if key not in added))


def test_the_commands_ask_for_every_published_training_and_no_other(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    *runs, last = commands(tmp_path)
    assert last == ["reproduce", "show", "mine"]
    asked = Counter()
    plain = []
    for words in runs:
        if "classifier" in words:
            plain += classifiers(monkeypatch, words)
            continue
        request = asked_for(monkeypatch, words)
        assert request.results.parent == Path("mine")
        file = request.results.stem
        if file not in FILES:
            continue
        asked.update((file, name(cell.as_dict("-"))) for cell in plan(request))
    published = Counter(
        (file, name(record["cell"]))
        for file in FILES
        for record in read_records(ROOT / "results" / f"{file}.jsonl")
    )
    assert asked == published
    known = json.loads((ROOT / "results" / "classifier.json").read_text())
    assert sorted(plain, key=repr) == sorted(
        (record["cell"]["protocol"] for record in known), key=repr
    )

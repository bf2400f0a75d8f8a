"""Requests from a file, several trainings side by side, within a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.images import batch
from experiments.images.batch import Batch, read_requests
from experiments.images.run import run
from experiments.records import ResultsFile, read_records
from mild.errors import DataFileError, MildError

ROOT = Path(__file__).parents[2]
SMALL = {"epochs": 1, "width": 2, "batch_size": 128}
ENTRY = {
    "table": "table1",
    "datasets": ["digits"],
    "setups": ["I"],
    "costs": ["error", "cost"],
    "methods": ["tdef", "plugin"],
    "seeds": 1,
    "changes": SMALL,
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "requests.json"
    path.write_text(json.dumps([ENTRY, {**ENTRY, "costs": ["error"], "seeds": 2}]))
    return path


def call(file, *words):
    folder = file.parent
    places = ["--results", str(folder / "r.jsonl"), "--cache-dir", str(folder), "--device", "cpu"]
    return batch.main([str(file), *places, *words])


def test_trainings_side_by_side_give_the_records_of_a_run(file, capsys):
    assert call(file, "--jobs", "2") == 0
    assert "6 trainings to do" in capsys.readouterr().out
    found = {record["key"]: record for record in read_records(file.parent / "r.jsonl")}
    assert len(found) == 6
    for place, request in enumerate(read_requests(file, device="cpu", results=Path("unused"))):
        alone = run(
            request.__class__(**{**vars(request), "results": file.parent / f"{place}.jsonl"})
        )
        for record in alone:
            assert found[record["key"]]["outcomes"] == record["outcomes"]
            assert found[record["key"]]["curve"] == record["curve"]


def test_what_the_results_file_holds_is_not_run_again(file, capsys):
    assert call(file) == 0
    before = (file.parent / "r.jsonl").read_bytes()
    capsys.readouterr()
    assert call(file) == 0
    assert "0 trainings to do" in capsys.readouterr().out
    assert (file.parent / "r.jsonl").read_bytes() == before


def test_no_training_is_started_that_would_not_end_in_time(file, capsys):
    assert call(file, "--stop-after", "1000", "--expect", "2000") == 0
    assert "6 left, 0 failed" in capsys.readouterr().out
    assert not (file.parent / "r.jsonl").exists()
    # Of a kind that is known the last trainings say how long the next one takes.
    with ResultsFile(file.parent / "r.jsonl").locked() as results:
        requests = read_requests(file, device="cpu", results=results.path)
        batch_ = Batch(requests, results, stop_after=1e6, tell=lambda line: None)
        first = batch_.left[0]
        batch_.seconds[batch_._kind(first)] = [5.0, 1e9]
        batch_.run()
        assert len(batch_.left) == 6
        batch_.seconds.clear()
        batch_.run()
        assert batch_.left == []
    assert len(read_records(file.parent / "r.jsonl")) == 6


def test_a_training_that_fails_is_named_and_the_others_are_run(file, capsys, monkeypatch):
    usual = batch.Runner.record

    def record(self, cell, report):
        if cell.method.name == "plugin":
            raise MemoryError("too large")
        return usual(self, cell, report)

    monkeypatch.setattr(batch.Runner, "record", record)
    assert call(file) == 1
    shown = capsys.readouterr().out
    assert "MemoryError: too large" in shown
    assert "0 left, 3 failed" in shown
    assert len(read_records(file.parent / "r.jsonl")) == 3


def test_routers_of_the_same_experts_wait_for_those_that_train_them(file):
    entry = {**ENTRY, "table": "table2", "setups": ["I", "III"], "others": 0.1}
    file.write_text(json.dumps([entry]))
    with ResultsFile(file.parent / "r.jsonl").locked() as results:
        options = {"device": "cpu", "results": results.path, "cache_dir": file.parent / "cache"}
        batch_ = Batch(read_requests(file, **options), results, jobs=2)
        first = batch_.left[0]
        second = batch_._next([first])
        assert (first.cell.setup.name, second.cell.setup.name) == ("I", "III")
        assert batch_._next([first, second]) is None
        batch_.prepared.add(first.scenario)
        assert batch_._next([first, second]).cell.setup.name == "I"


@pytest.mark.parametrize(
    "content",
    ["{", "[1]", '[{"table": "table9"}]', '[{"table": "table1", "epochs": 3}]', "[{}]"],
)
def test_a_file_that_holds_no_requests_is_refused(file, content, capsys):
    file.write_text(content)
    with pytest.raises(MildError):
        read_requests(file, results=Path("r.jsonl"))
    assert call(file) == 1
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(DataFileError):
        read_requests(file.with_name("absent.json"), results=Path("r.jsonl"))


def test_a_batch_needs_neither_a_command_line_package_nor_pandas():
    code = "import sys, experiments.images.batch; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    absent = {"typer", "rich", "click", "pydantic", "pandas", "sklearn", "joblib", "safetensors"}
    assert not absent & set(found.stdout.split())

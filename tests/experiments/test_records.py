"""Results files: locks, appends, damage; and what the repository publishes from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import page, records
from experiments.images import __main__ as images_command
from experiments.images.experts import OTHERS, Setup
from experiments.images.methods import Method
from experiments.images.run import Request, cell_entry, plan
from experiments.images.training import PROTOCOLS, Protocol
from experiments.llm import __main__ as llm_command
from experiments.paper import QWEN, lookup, paper_figure, paper_figures
from experiments.records import ResultsFile, cell_key, read_records
from mild.errors import DataFileError, InvalidInputError, MildWarning

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SCRIPT = ROOT / "scripts" / "reproduce_images.sh"
FILES = {"decay", "readings", "readings-unit", "table1", "table2", "severe", "people"}
FILES |= {"sweep", "mechanism", "strength", "margins"}
# What the images, and the annotations, add to a cell.
ADDED = ("data", "coverage", "people", "classifier_rows", "test_fraction", "price")


def make_record(seed=0, loss=0.5, finished="2026-01-01T00:00:00+00:00"):
    cell = {"table": "table1", "dataset": "digits", "setup": "I", "experts": "synthetic"}
    cell |= {"cost": "error", "protocol": {}, "method": {"name": "tdef"}, "seed": seed}
    record = {
        "schema": 1,
        "key": cell_key(cell),
        "cell": cell,
        "outcomes": {"argmax": {"loss": loss}},
    }
    return record | {"reference": {}, "training": {}, "finished": finished, "twin": f"t{seed}"}


@pytest.fixture
def file(tmp_path):
    results = ResultsFile(tmp_path / "new" / "r.jsonl")
    with results.locked():
        results.add(make_record(0))
        results.add(make_record(1))
    return results.path


def test_records_are_read_back_and_found_by_key_and_training(file):
    assert read_records(file) == [make_record(0), make_record(1)]
    assert read_records(file.parent) == read_records([file])
    results = ResultsFile(file)
    with results.locked():
        assert list(results.records) == [make_record(0)["key"], make_record(1)["key"]]
        assert results.same_training("t1") == make_record(1)
        assert results.same_training("t2") is None


def test_a_second_process_is_refused_while_the_lock_is_held(file):
    code = "import sys; from experiments.records import ResultsFile\n"
    code += "with ResultsFile(sys.argv[1]).locked(): print('entered')"
    command = [sys.executable, "-c", code, str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with ResultsFile(file).locked():
        held = subprocess.run(command, env=environment, capture_output=True, text=True)
    free = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "in use by another process" in held.stderr
    assert (held.stdout, free.stdout) == ("", "entered\n")


def test_an_append_that_fails_leaves_the_file_as_it_was(file, monkeypatch):
    before = file.read_bytes()
    results = ResultsFile(file)

    def full(*_):
        raise OSError(28, "No space left on device")

    with results.locked():
        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(DataFileError, match="No space left"):
            results.add(make_record(2))
        monkeypatch.undo()
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.glob("*.jsonl")] == ["r.jsonl"]
    with pytest.raises(InvalidInputError, match="loss"):
        results.add(make_record(2, loss=-1.0))


def test_a_file_without_a_last_newline_is_continued_on_a_new_line(file):
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    results = ResultsFile(file)
    with results.locked():
        results.add(make_record(2))
    assert len(read_records(file)) == 3


@pytest.mark.parametrize(
    "line",
    [
        *('{"half', "[]", "NaN", json.dumps(make_record() | {"schema": 2})),
        json.dumps(make_record() | {"key": "0" * 16}),
        json.dumps(make_record() | {"outcomes": {"argmax": {"loss": "small"}}}),
        json.dumps(make_record() | {"finished": "yesterday"}),
        json.dumps({k: v for k, v in make_record().items() if k != "training"}),
    ],
)
def test_a_damaged_line_is_named(file, line):
    with file.open("a") as stream:
        stream.write(f"\n{line}\n")
    with pytest.raises(DataFileError, match=r"r\.jsonl, line 4: a record must"):
        read_records(file)


def test_of_records_of_one_cell_the_last_finished_is_kept_with_a_warning(tmp_path):
    later = make_record(loss=0.4, finished="2026-01-02T00:00:00")
    (tmp_path / "a.jsonl").write_text(json.dumps(later) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps(make_record()) + "\n")
    with pytest.warns(MildWarning, match="1 record"):
        assert read_records(tmp_path) == [later]
    with pytest.raises(DataFileError, match="results file"):
        read_records(tmp_path / "c.jsonl")


def test_a_record_says_what_it_was_made_with(monkeypatch):
    records.commit.cache_clear()
    monkeypatch.setenv("MILD_COMMIT", "abc")
    found = records.surroundings()
    records.commit.cache_clear()
    assert found["commit"] == "abc"
    assert {"python", "mild", "numpy", "scikit-learn", "torch"} == set(found["versions"])
    assert found["hardware"]


# -- what the repository publishes


def published():
    return [r for r in read_records(RESULTS) if r["cell"]["experts"] != "language models"]


def request_of(cell):
    """The request that asks for a cell of the results files, as its last one."""
    method = dict(cell["method"])
    if isinstance(method["margins"], list):
        method["margins"] = tuple(method["margins"])
    people = cell["experts"] == "people"
    return Request(
        cell["table"],
        (cell["dataset"],),
        () if people else (Setup.parse(cell["setup"]),),
        (cell["experts"],),
        (cell["cost"],),
        (Method(**method),),
        Protocol(**cell["protocol"]),
        Path("r.jsonl"),
        seeds=cell["seed"] + 1,
        holdout=cell["holdout"],
        expert_seed=cell["expert_seed"] or 0,
        people_file=Path("p.npz") if people else None,
        expert_protocol=cell["expert_protocol"] and Protocol(**cell["expert_protocol"]),
        scale=cell["scale"],
        ambiguous=cell.get("ambiguous"),
        validation=cell.get("validation", False),
        others=cell.get("others", OTHERS),
    )


def test_committed_records_are_cells_that_a_request_still_asks_for():
    for record in published():
        cell = record["cell"]
        request = request_of(cell)
        entry = cell_entry(request, plan(request)[-1], cell["data"])
        if cell["experts"] == "people":
            entry |= {name: cell[name] for name in ADDED if name in cell}
        assert entry == cell
        assert cell_key(entry) == record["key"]
        # A protocol has its name as long as nothing in it is changed.
        known = PROTOCOLS.get(cell["protocol"]["name"])
        assert known is None or known.as_dict() == cell["protocol"]


def test_committed_classifiers_carry_the_keys_of_their_cells():
    found = json.loads((RESULTS / "classifier.json").read_text())
    assert [record["key"] for record in found] == [cell_key(r["cell"]) for r in found]


def commands(folder, script=SCRIPT, *arguments):
    """The arguments of every call of python in the script."""
    python, log = folder / "python", folder / "log"
    python.write_text('#!/bin/sh\nprintf "%s\\037" "$@" >> "$LOG"; echo >> "$LOG"\n')
    python.chmod(0o755)
    known = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "LOG": str(log)}
    known |= {"RESULTS": "mine", "DATA": str(folder)}
    subprocess.run(["bash", str(script), *arguments], env=known, check=True, cwd=folder)
    return [line.split("\037")[:-1] for line in log.read_text().splitlines()]


class StopError(Exception):
    """Raised in place of the trainings."""


def test_the_script_asks_for_every_published_training_and_no_other(tmp_path, monkeypatch):
    requests, protocols = [], []

    def stop(request, progress):
        requests.append(request)
        raise StopError

    def train(data, protocol, seeds, *rest):
        protocols.append(protocol.as_dict())
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(images_command, "run", stop)
    monkeypatch.setattr(images_command, "run_classifier", train)
    monkeypatch.setattr(images_command, "load_images", lambda *_: None)
    *runs, last = commands(tmp_path)
    assert last == ["-m", "experiments.show", "mine"]
    for words in runs:
        assert words[:2] == ["-m", "experiments.images"]
        result = CliRunner().invoke(images_command.app, words[2:])
        assert isinstance(result.exception, StopError) != ("classifier" in words), result.output

    def name(file, cell):
        known = sorted((key, value) for key, value in cell.items() if key not in ADDED)
        return file, json.dumps(known)

    asked = Counter(
        name(request.results.stem, cell_entry(request, cell, "-"))
        for request in requests
        for cell in plan(request)
        if request.results.stem in FILES
    )
    found = Counter(
        name(file, record["cell"])
        for file in FILES
        for record in read_records(RESULTS / f"{file}.jsonl")
    )
    assert asked == found
    classifiers = json.loads((RESULTS / "classifier.json").read_text())
    assert sorted(map(str, protocols)) == sorted(str(r["cell"]["protocol"]) for r in classifiers)


def test_the_script_of_language_models_asks_for_every_published_training_and_no_other(
    tmp_path, monkeypatch
):
    table = tmp_path / "outcomes.csv"
    table.write_text("query," + ",".join(f"correct__{name}" for name in QWEN) + "\n2 + 2,1,0,1\n")
    asked = Counter()

    def stop(request, progress):
        trained = sorted(request.transformer.items())
        for seed, cost, _, method in request.cells:
            asked[cost, method.text, seed, request.validation, str(trained)] += 1
        raise StopError

    monkeypatch.setattr(llm_command, "run", stop)
    for words in commands(tmp_path, SCRIPT.with_name("reproduce_llm.sh"), str(table), "minilm"):
        result = CliRunner().invoke(llm_command.app, words[2:])
        assert isinstance(result.exception, StopError), result.output
    found = Counter()
    for record in read_records(RESULTS / "llm_search.jsonl"):
        cell, protocol = record["cell"], record["cell"]["protocol"]
        assert record["key"] == cell_key(cell)
        names = ("dropout", "epochs", "precision", "weight_decay")
        trained = str([(name, protocol[name]) for name in names])
        method = Method(**cell["method"]).text
        found[cell["cost"], method, cell["seed"], cell.get("validation", False), trained] += 1
    assert asked == found


def test_the_tables_of_the_page_are_those_of_the_results():
    text, data = page.PAGE.read_text(encoding="utf-8"), page.load()
    assert text.count("<!-- table ") >= 6
    assert page.fill(text, data) == text
    stale = "before\n<!-- table decay -->\nold\n<!-- end -->\nafter\n"
    new = page.fill(stale, data)
    assert new.startswith("before\n<!-- table decay -->\n| decay | TDEF")
    assert new.endswith("|\n<!-- end -->\nafter\n")
    assert "old" not in new


def test_figures_of_the_paper_are_found_once_and_stand_beside_its_cells_alone():
    figures = paper_figures()
    assert len({(f.table, f.dataset, f.setup, f.cost, f.method) for f in figures}) == len(figures)
    cell = {"table": "readings", "dataset": "cifar10", "setup": "I", "cost": "error"}
    cell |= {"experts": "synthetic"}
    assert paper_figure(cell, {"name": "mild"}) == lookup("table1", "cifar10", "I", "error", "mild")
    assert paper_figure(cell | {"ambiguous": 0.1}, {"name": "mild"}) is None
    assert paper_figure(cell | {"validation": True}, {"name": "mild"}) is None
    assert paper_figure(cell | {"dataset": "digits"}, {"name": "mild"}) is None

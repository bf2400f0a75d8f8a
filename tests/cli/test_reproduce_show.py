"""``mild reproduce show``: results files in, tables and figures out; no torch."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mild as package
from mild.reproduce.results import append_record
from result_cases import TDEF, THEORY, UNIFORM, make_record


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """results/ with two tables: setups I and III of Table 1, and the severe one."""
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        for setup in ("I", "III"):
            for method, losses in (
                (TDEF, 0.06 + 0.001 * seed),
                (UNIFORM, 0.05),
                (THEORY, {"argmax": 0.07, "stationary": 0.04 + 0.002 * seed}),
            ):
                append_record(
                    "results/table1.jsonl", make_record(method, seed, losses, setup=setup)
                )
        append_record(
            "results/severe.jsonl",
            make_record(TDEF, seed, 0.08, setup="severe", table="severe", note="A stand-in."),
        )
    return tmp_path


def test_the_default_is_every_table_in_the_results_folder(mild, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    done = mild("reproduce", "show")
    assert done.code == 0, done.err
    assert done.out.index("Table 1") < done.out.index("setup III") < done.out.index("Severe")
    assert "TDEF, the paper" in done.out
    assert "better" in done.out
    # What holds for Table 1 alone stands there; what holds for all, once at the end.
    assert done.out.count("From paper: ours minus") == 1
    assert done.out.count("Data: A stand-in.") == 1


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_no_number_is_broken_and_no_line_is_too_long(mild, folder, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = mild("reproduce", "show").out
    for text in ("0.0610 ± 0.0010", "40 20 20 10 10", "stationary"):
        assert text in out
    # The numbers of five experts need 76 columns.
    assert max(map(len, out.splitlines())) <= max(width, 80)


def test_a_narrow_terminal_has_names_on_their_own_lines(mild, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = mild("reproduce", "show", "--table", "table1").out.splitlines()
    place = lines.index("MILD others, theory (best), Σρ=1, stationary, 3 seeds")
    assert lines[place + 1].split()[:3] == ["0.0420", "±", "0.0020"]


def test_columns_that_hold_nothing_are_left_out(mild, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert "minus TDEF" not in mild("reproduce", "show", "--table", "severe").out
    assert "minus TDEF" in mild("reproduce", "show", "--table", "table1").out


def test_markdown_latex_and_csv_go_to_stdout_alone(mild, folder):
    markdown = mild("reproduce", "show", "--format", "markdown").out
    assert markdown.startswith("## Table 1")
    latex = mild("reproduce", "show", "--format", "latex").out
    assert latex.count(r"\begin{table*}") == 3
    rows = list(csv.DictReader(mild("reproduce", "show", "--format", "csv").out.splitlines()))
    assert {row["table"] for row in rows} == {"table1", "severe"}


@pytest.mark.parametrize(
    ("name", "form"), [("t.md", "markdown"), ("t.tex", "latex"), ("t.csv", "csv")]
)
def test_the_ending_of_the_file_is_its_format(mild, folder, name, form):
    done = mild("reproduce", "show", "--out", name)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"note: {name} is written.\n"
    expected = mild("reproduce", "show", "--format", form).out
    assert (folder / name).read_text(encoding="utf-8") == expected
    assert not list(folder.glob(".*"))


def test_a_file_is_replaced_only_when_asked(mild, folder):
    (folder / "t.md").write_text("mine")
    done = mild("reproduce", "show", "--out", "t.md")
    assert done.code == 1
    assert "t.md exists" in done.err
    assert (folder / "t.md").read_text() == "mine"
    for word in ("--overwrite", "--force"):
        assert mild("reproduce", "show", "--out", "t.md", word).code == 0
    assert (folder / "t.md").read_text().startswith("## Table 1")


def test_one_figure_per_table(mild, folder):
    pytest.importorskip("matplotlib")
    assert mild("reproduce", "show", "--table", "severe", "--figure", "one.png").code == 0
    done = mild("reproduce", "show", "--figure", "all.png", "--json")
    assert done.json()["written"] == ["all-table1.png", "all-severe.png"]
    for name in ("one.png", "all-table1.png", "all-severe.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    again = mild("reproduce", "show", "--figure", "all.png")
    assert again.code == 1
    assert "all-table1.png exists" in again.err


def test_figures_without_matplotlib_are_one_sentence(mild, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = mild("reproduce", "show", "--figure", "f.png", "--out", "t.md")
    assert done.code == 1
    assert "need matplotlib" in done.err
    assert not (folder / "t.md").exists()


def test_json_holds_every_number(mild, folder):
    blocks = mild("reproduce", "show", "--json", "--simultaneous", "--confidence", 0.9).json()[
        "blocks"
    ]
    assert [block["cell"]["setup"] for block in blocks] == ["I", "III", "severe"]
    assert (blocks[0]["confidence"], blocks[0]["simultaneous"]) == (0.9, True)
    rows = {(row["method"]["name"], row["decision"]): row for row in blocks[0]["rows"]}
    stationary = rows["mild", "stationary"]
    assert stationary["losses"] == [0.04, 0.042, 0.044]
    assert stationary["paper"]["loss"] == 0.0403
    assert stationary["minus_tdef"]["n"] == 3
    assert stationary["verdict"] == "better than TDEF"
    assert stationary["seeds_of_other_experts"] == []
    assert rows["oracle", None]["paper"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "there is nothing there"),
        (["."], "must hold results files"),
        (["--table", "table3"], "table must be one of 'table1'"),
        (["--table", "people"], "must hold results of people; there is severe, table1."),
        (["--format", "word"], "format must be one of"),
        (["--out", "t.txt"], "by its ending (.md, .tex, .csv); got 't.txt'."),
        (["--out", "t.md", "--format", "terminal"], "got 'terminal'."),
        (["--out", "no/t.md"], "no is not a writable folder."),
        (["--out", "d.md"], "d.md must be a file; a folder is there."),
        (["--figure", "f.pdf"], "a figure must be a .png file; got 'f.pdf'."),
        (["--confidence", "2"], "confidence must lie between 0 and 1"),
        (["old"], "schema version 1; got 0"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, mild, folder):
    (folder / "d.md").mkdir()
    (folder / "old").mkdir()
    (folder / "old" / "r.jsonl").write_text('{"schema": 0}\n')
    done = mild("reproduce", "show", *words)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err


COMMITTED = Path(__file__).parents[2] / "results"


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results are not part of this copy")
def test_the_committed_results_are_all_shown(mild):
    done = mild("reproduce", "show", COMMITTED, "--json")
    assert (done.code, done.err) == (0, "")
    lines = [line for file in COMMITTED.glob("*.jsonl") for line in file.read_text().splitlines()]
    shown = [row for block in done.json()["blocks"] for row in block["rows"]]
    outcomes = sum(len(json.loads(line)["outcomes"]) for line in lines)
    ours = [row for row in shown if row["method"]["name"] not in ("oracle", "constant")]
    assert sum(len(row["losses"]) for row in ours) == outcomes > 0
    markdown = mild("reproduce", "show", COMMITTED, "--format", "markdown")
    assert markdown.out.startswith("## ")


def test_the_names_of_tables_do_not_lead_figures_out_of_their_folder(mild, folder):
    pytest.importorskip("matplotlib")
    append_record("odd/r.jsonl", make_record(table="../../away"))
    append_record("odd/r.jsonl", make_record())
    done = mild("reproduce", "show", "odd", "--figure", "odd/f.png", "--json")
    assert done.json()["written"] == ["odd/f-table1.png", "odd/f-------away.png"]
    assert (folder / "odd" / "f-------away.png").read_bytes().startswith(b"\x89PNG")


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(mild, folder, monkeypatch):
    (folder / "t.md").write_text("mine")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = mild("reproduce", "show", "--out", "t.md", "--overwrite")
    assert done.code == 1
    assert done.err == "error: cannot write to t.md: No space left on device.\n"
    assert (folder / "t.md").read_text() == "mine"
    assert not list(folder.glob(".*"))


def test_it_needs_no_torch(folder):
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "sys.argv = ['mild', 'reproduce', 'show', '--json']\n"
        "from mild.cli import main\n"
        "main()"
    )
    source = str(Path(package.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["blocks"]) == 3


def test_two_outputs_in_one_file_are_refused(mild, folder):
    words = ["--out", "same.png", "--format", "csv", "--figure", "same.png"]
    done = mild("reproduce", "show", "results/severe.jsonl", *words)
    assert done.code == 1
    assert "--out and --figure must name different files" in done.err
    assert not Path("same.png").exists()


def test_classifiers_are_shown_by_themselves(mild, folder):
    cell = {"dataset": "digits", "protocol": make_record()["cell"]["protocol"], "seed": 0}
    facts = {"accuracy": 0.9137, "training": {"seconds": 2.0, "images_per_second": 7.0}}
    file = Path("results/classifier.json")
    file.write_text(json.dumps([{"schema": 1, "key": "k", "cell": cell, **facts}]))
    done = mild("reproduce", "show", file)
    assert done.code == 0, done.err
    assert "91.37" in done.out
    assert json.loads(mild("reproduce", "show", file, "--json").out)["records"][0]["cell"] == cell
    done = mild("reproduce", "show", file, "results/severe.jsonl")
    assert done.code == 1
    assert "classifier.json holds the accuracy of plain classifiers" in done.err
    assert mild("reproduce", "show").code == 0


def test_an_ascii_terminal_gets_question_marks(folder):
    code = "from mild.cli.app import build_app; build_app()(['reproduce', 'show'])"
    source = str(Path(package.__file__).parents[1])
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"CIFAR-10 ? setup I (70-20-10)" in done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_is_no_file_to_write(mild, folder):
    os.mkfifo(folder / "pipe.md")
    for more in ([], ["--overwrite"]):
        done = mild("reproduce", "show", "--out", "pipe.md", *more)
        assert done.code == 1
        assert "pipe.md must be a regular file; a device, pipe or socket is there." in done.err

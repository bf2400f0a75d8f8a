"""What is shown, what is written, and the command."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

import experiments.digits.run as run
from experiments.digits.__main__ import app
from experiments.digits.tables import FILES, check_folder, findings, render, write_results
from mild.errors import DataFileError, MildError, OutputExistsError


@pytest.fixture
def document(small_results):
    return copy.deepcopy(small_results.document)


def shown(document, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    for part in render(run.DigitsResults(document, None, None), width):
        console.print(part)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 160])
def test_nothing_is_cut_or_too_wide(document, width):
    lines = shown(document, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_wide_terminals_get_the_cost_types_side_by_side(document):
    assert sum(line.startswith("Setup III") for line in shown(document, 80)) == 2
    assert sum(line.startswith("Setup III") for line in shown(document, 100)) == 1


def test_a_row_holds_loss_spread_and_shares(document, row_of):
    row = row_of(document["blocks"][0], "tdef")
    line = next(line for line in shown(document, 120) if line.startswith("TDEF"))
    assert f"{row['mean']:.4f} ± {row['std']:.4f}" in line
    for share in row["mean_shares"]:
        assert f"{100 * share:.1f}" in line


def test_a_star_stands_only_where_a_row_is_marked(document, row_of):
    for block in (*document["blocks"], document["region_case"]):
        for row in block["rows"]:
            row["best"] = False
    # The caption explains the star, so one line always has it.
    assert sum("★" in line for line in shown(document, 100)) == 1
    row_of(document["blocks"][0], "ce")["best"] = True
    starred = [line for line in shown(document, 100) if "★" in line]
    assert len(starred) == 2
    assert starred[0].startswith("CE")


def test_counts_of_the_findings_add_up_and_follow_the_verdicts(document):
    tally = re.compile(r"better in (\d+), worse in (\d+), undecided in (\d+) of (\d+) blocks")
    found = tally.findall(" ".join(findings(document)))
    assert len(found) >= 5
    for better, worse, level, total in found:
        assert int(better) + int(worse) + int(level) == int(total) == len(document["blocks"])
    for verdict, counts in (("worse", ("0", "4", "0", "4")), ("better", ("4", "0", "0", "4"))):
        for block in document["blocks"]:
            for row in block["rows"]:
                if row["method"] == "mild_tuned_stationary":
                    row["verdict_against_tdef"] = verdict
        first = findings(document)[0]
        assert tally.findall(first) == [counts]
        assert ("largest gain" in first) == (verdict == "better")


def draw(results, path):
    path.write_bytes(b"figure")


def test_json_holds_data_seeds_settings_versions_hardware_and_every_number(small_results, tmp_path):
    write_results(small_results, tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored == json.loads(json.dumps(small_results.document))
    assert stored["seeds"] == [0, 1]
    assert stored["settings"]["alphas"] == [1e-4]
    assert {"python", "numpy", "scikit-learn", "mild"} <= set(stored["versions"])
    assert stored["hardware"]["cores"] >= 1
    row = stored["blocks"][0]["rows"][0]
    assert len(row["losses"]) == len(row["shares"]) == 2
    gap = stored["blocks"][0]["rows"][1]["minus_tdef"]
    assert gap["low"] <= gap["estimate"] <= gap["high"]
    assert len(stored["long_tail"][0]["losses"]) == 2
    assert stored["line"]["best_regions"][0]["expert"] == 2


def test_csv_has_one_line_per_block_method_and_seed(small_results, tmp_path):
    write_results(small_results, tmp_path)
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    document = small_results.document
    blocks = (*document["blocks"], document["region_case"])
    assert len(lines) == sum(len(block["rows"]) * 2 for block in blocks)
    first, source = lines[0], document["blocks"][0]["rows"][0]
    assert first["method"] == source["method"]
    assert float(first["loss"]) == pytest.approx(source["losses"][0])
    assert float(first["share_5"]) == pytest.approx(source["shares"][0][4], abs=1e-5)
    severe = next(line for line in lines if line["setup"] == "severe")
    assert severe["share_3"] == ""


def test_a_second_run_replaces_its_own_files_and_leaves_no_stale_figure(small_results, tmp_path):
    folder = tmp_path / "demo-results"
    written = write_results(small_results, folder, {"overview.png": draw, "pictures.png": draw})
    assert {path.name for path in written} == set(FILES)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    write_results(small_results, folder)
    assert {path.name for path in folder.iterdir()} == {"results.json", "results.csv"}


def test_other_folders_are_refused_and_untouched(small_results, tmp_path):
    file = tmp_path / "thesis.tex"
    file.write_text("mine")
    for place in (tmp_path, file):
        with pytest.raises(OutputExistsError):
            write_results(small_results, place)
    with pytest.raises(DataFileError):
        check_folder(file / "deeper")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_an_interrupted_run_left_does_not_block_the_next(small_results, tmp_path):
    drawn = []
    write_results(small_results, tmp_path, {"overview.png": lambda _, path: drawn.append(path)})
    assert not drawn[0].exists()
    # As a kill would have left it.
    drawn[0].write_bytes(b"half")
    check_folder(tmp_path)
    write_results(small_results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.csv"}


def test_a_figure_that_fails_leaves_no_half_file_under_its_name(small_results, tmp_path):
    def fail(results, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(DataFileError, match="disk full"):
        write_results(small_results, tmp_path, {"overview.png": fail})
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.csv"}


@pytest.fixture
def command(monkeypatch, small_results, tmp_path):
    """The command with a run that has already been made; ``asked`` are the settings of its runs."""
    asked = []

    def fake(settings, progress=None):
        asked.append(settings)
        return small_results

    monkeypatch.setattr(run, "run_digits", fake)

    def call(*arguments: str):
        return CliRunner().invoke(app, ["--out", str(tmp_path / "o"), *arguments])

    call.asked = asked
    return call


def test_tables_go_to_stdout_and_files_to_the_folder(command, tmp_path):
    result = command()
    assert result.exit_code == 0, result.output
    assert "Setup severe (9-1) · synthetic experts" in result.stdout
    assert {path.name for path in (tmp_path / "o").iterdir()} == set(FILES)


def test_json_is_alone_on_stdout_and_equals_the_file(command, tmp_path):
    result = command("--json", "--no-figure")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads((tmp_path / "o" / "results.json").read_text())
    assert not (tmp_path / "o" / "overview.png").exists()


def test_options_become_settings(command):
    command(
        *("--setup", "III", "--setup", "I", "--experts", "real", "--cost", "error"),
        *("--seeds", "7", "--jobs", "3", "--no-figure"),
    )
    command("--quick", "--seeds", "1", "--no-figure")
    full, quick = command.asked
    assert (full.setups, full.experts, full.costs) == (("I", "III"), ("real",), ("error",))
    assert (full.seeds, full.jobs) == (7, 3)
    assert (quick.setups, quick.seeds) == (("I", "severe"), 1)


def test_without_matplotlib_it_says_so_and_does_the_rest(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = command()
    assert result.exit_code == 0, result.output
    assert "[plot]" in result.stderr
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"results.json", "results.csv"}


def test_bad_options_and_folders_are_refused_before_anything_runs(command, tmp_path):
    assert isinstance(command("--setup", "IV").exception, MildError)
    assert not (tmp_path / "o").exists()
    (tmp_path / "mine.txt").write_text("x")
    assert isinstance(command("--out", str(tmp_path)).exception, OutputExistsError)
    assert command.asked == []

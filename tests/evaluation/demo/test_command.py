"""``mild demo`` from the command line."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

import mild.evaluation.demo.run as run
from mild.cli.app import build_app


@pytest.fixture
def command(monkeypatch, small_results):
    """The command with a run that has already been made; returns the settings it was asked for."""
    asked = []

    def fake(settings, progress=None):
        asked.append(settings)
        return small_results

    monkeypatch.setattr(run, "run_demo", fake)

    def call(*arguments: str):
        return CliRunner().invoke(build_app(), ["demo", "--paper", *arguments])

    call.asked = asked
    return call


@pytest.mark.no_cover
def test_tables_go_to_stdout_and_files_to_the_folder(command, tmp_path):
    result = command("--out", str(tmp_path / "o"))
    assert result.exit_code == 0, result.output
    assert "Setup severe (9-1) · synthetic experts" in result.stdout
    assert "Saved in" in result.stdout
    names = {path.name for path in (tmp_path / "o").iterdir()}
    assert names == {"results.json", "results.csv", "overview.png", "pictures.png"}


def test_json_is_alone_on_stdout_and_equals_the_file(command, tmp_path):
    result = command("--json", "--no-figure", "--out", str(tmp_path / "o"))
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "o" / "results.json").read_text())
    assert json.loads(result.stdout) == stored
    assert not (tmp_path / "o" / "overview.png").exists()


def test_options_become_settings(command, tmp_path):
    command(
        *("--setup", "III", "--setup", "I", "--experts", "real", "--cost", "error"),
        *("--seeds", "7", "--jobs", "3", "--no-figure", "--out", str(tmp_path / "o")),
    )
    settings = command.asked[0]
    assert settings.setups == ("I", "III")
    assert settings.experts == ("real",)
    assert settings.costs == ("error",)
    assert (settings.seeds, settings.jobs) == (7, 3)


def test_quick_is_smaller_and_may_be_changed(command, tmp_path):
    command("--quick", "--seeds", "1", "--no-figure", "--out", str(tmp_path / "o"))
    settings = command.asked[0]
    assert settings.setups == ("I", "severe")
    assert settings.seeds == 1


def test_without_matplotlib_it_says_so_and_does_the_rest(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = command("--out", str(tmp_path / "o"))
    assert result.exit_code == 0, result.output
    assert "figures need matplotlib" in result.stderr
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"results.json", "results.csv"}


def test_a_foreign_folder_is_refused_before_anything_runs(command, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    result = command("--out", str(tmp_path))
    assert result.exit_code == 1
    assert "holds 'mine.txt'" in result.stderr
    assert command.asked == []


def test_unknown_names_are_one_line(command, tmp_path):
    result = command("--setup", "IV", "--out", str(tmp_path / "o"))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: setups must be one of")
    assert not (tmp_path / "o").exists()

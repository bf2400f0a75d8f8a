"""Lines of a log: one per cell that was trained, under its own name, whoever else is at the others."""

from __future__ import annotations

from dataclasses import dataclass

from mild.cli.reproduce.log import cell_lines, seed_lines
from mild.reproduce.turns import run_cells


@dataclass
class Cell:
    title: str


def lines(capsys, tmp_path, run):
    cells = [Cell("A"), Cell("B"), Cell("C")]
    run_cells(cells, run, tmp_path / "r.jsonl", cell_lines())
    return capsys.readouterr().err.splitlines()


def test_a_cell_that_another_process_holds_takes_no_other_cell_s_name(capsys, tmp_path):
    def run(cell, tell, wait):
        if cell.title == "A" and not wait:
            return None
        tell("epoch 1 of 2")
        tell("epoch 2 of 2")
        return {}

    said = lines(capsys, tmp_path, run)
    assert said == ["1 of 3 done: B", "2 of 3 done: C", "3 of 3 done: A"]


def test_a_cell_that_another_process_finished_meanwhile_has_no_line(capsys, tmp_path):
    def run(cell, tell, wait):
        if cell.title in "AB" and not wait:
            return None
        if cell.title != "A":
            tell("epoch 1 of 1")
        return {}

    assert lines(capsys, tmp_path, run) == ["1 of 3 done: C", "3 of 3 done: B"]


def test_a_classifier_has_a_line_when_its_last_epoch_is_over(capsys):
    told = seed_lines("digits, fast")
    for epoch in (1, 2):
        told(epoch, 2, f"loss 0.{epoch}")
    assert capsys.readouterr().err == "done: digits, fast, 2 epochs, loss 0.2\n"

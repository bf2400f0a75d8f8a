"""What the terminal shows."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
from rich.console import Console

from demo_cases import row_of
from mild.evaluation.demo.run import DemoResults
from mild.evaluation.demo.tables import render


@pytest.fixture
def document(small_results):
    return copy.deepcopy(small_results.document)


def shown(document, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    for part in render(DemoResults(document, None, None), width):
        console.print(part)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_nothing_is_cut_or_too_wide(document, width):
    lines = shown(document, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_wide_terminals_get_the_cost_types_side_by_side(document):
    assert sum(line.startswith("Setup III") for line in shown(document, 80)) == 2
    assert sum(line.startswith("Setup III") for line in shown(document, 100)) == 1


def test_a_row_holds_loss_spread_and_shares(document):
    row = row_of(document["blocks"][0], "tdef")
    line = next(line for line in shown(document, 120) if line.startswith("TDEF"))
    assert f"{row['mean']:.4f} ± {row['std']:.4f}" in line
    for share in row["mean_shares"]:
        assert f"{100 * share:.1f}" in line


def test_one_seed_shows_no_spread(document):
    block = document["region_case"]
    for row in block["rows"]:
        row["std"] = None
    lines = shown(document, 100)
    start = next(i for i, line in enumerate(lines) if line.startswith("Experts by region"))
    assert f"{block['rows'][0]['mean']:.4f}" in lines[start + 3]
    assert "±" not in lines[start + 3]


def test_a_star_stands_only_where_a_row_is_marked(document):
    for block in (*document["blocks"], document["region_case"]):
        for row in block["rows"]:
            row["best"] = False
    # The caption explains the star, so one line always has it.
    assert sum("★" in line for line in shown(document, 100)) == 1
    row_of(document["blocks"][0], "ce")["best"] = True
    starred = [line for line in shown(document, 100) if "★" in line]
    assert len(starred) == 2
    assert starred[0].startswith("CE")


def test_the_oracle_carries_no_mark(document):
    lines = [line for line in shown(document, 120) if line.startswith("oracle")]
    assert lines
    assert not any(mark in line for line in lines for mark in "★▲▼")


def test_the_output_ends_with_findings(document):
    text = "\n".join(shown(document, 100))
    assert text.index("Findings") > text.index("20 experts, long") > text.index("Experts by region")
    assert f"TDEF {np.mean(document['long_tail'][0]['losses']):.4f}" in text
    assert "Routing pays in 4 of 4 blocks" in text

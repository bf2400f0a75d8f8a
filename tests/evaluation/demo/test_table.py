"""What the terminal shows."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from mild.evaluation.demo.run import DemoResults
from mild.evaluation.demo.table import render


def shown(results: DemoResults, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    for part in render(results, width):
        console.print(part)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_nothing_is_cut_or_too_wide(small_results, width):
    lines = shown(small_results, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_wide_terminals_get_the_cost_types_side_by_side(small_results):
    assert sum(line.startswith("Setup III") for line in shown(small_results, 80)) == 2
    assert sum(line.startswith("Setup III") for line in shown(small_results, 100)) == 1


def test_a_row_holds_loss_spread_and_shares(small_results):
    row = small_results.blocks[0].row("tdef")
    line = next(line for line in shown(small_results, 120) if line.startswith("TDEF"))
    assert f"{row.mean:.4f} ± {row.std:.4f}" in line
    for share in 100 * row.shares.mean(axis=0):
        assert f"{share:.1f}" in line


def test_one_seed_shows_no_spread(small_results):
    block = small_results.region_block
    rows = tuple(dataclasses.replace(row, losses=row.losses[:1]) for row in block.rows)
    single = dataclasses.replace(block, rows=rows)
    lines = shown(dataclasses.replace(small_results, region_block=single), 100)
    start = next(i for i, line in enumerate(lines) if line.startswith("Experts by region"))
    assert f"{block.rows[0].losses[0]:.4f}" in lines[start + 3]
    assert "±" not in lines[start + 3]


def test_a_star_stands_only_where_a_row_is_marked(small_results):
    def plain(block):
        rows = tuple(dataclasses.replace(row, best=False) for row in block.rows)
        return dataclasses.replace(block, rows=rows)

    unmarked = dataclasses.replace(
        small_results,
        blocks=tuple(plain(block) for block in small_results.blocks),
        region_block=plain(small_results.region_block),
    )
    # The caption explains the star, so one line always has it.
    assert sum("★" in line for line in shown(unmarked, 100)) == 1
    block = unmarked.blocks[0]
    rows = tuple(dataclasses.replace(row, best=row.key == "ce") for row in block.rows)
    marked = dataclasses.replace(
        unmarked, blocks=(dataclasses.replace(block, rows=rows), *unmarked.blocks[1:])
    )
    starred = [line for line in shown(marked, 100) if "★" in line]
    assert len(starred) == 2
    assert starred[0].startswith("CE")


def test_the_oracle_carries_no_mark(small_results):
    lines = [line for line in shown(small_results, 120) if line.startswith("oracle")]
    assert lines
    assert not any(mark in line for line in lines for mark in "★▲▼")


def test_the_output_ends_with_findings(small_results):
    text = "\n".join(shown(small_results, 100))
    assert text.index("Findings") > text.index("20 experts, long") > text.index("Experts by region")
    assert f"TDEF {small_results.tail[0].losses.mean():.4f}" in text
    assert "Routing pays in 4 of 4 blocks" in text

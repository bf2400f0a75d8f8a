"""Blocks of tables in the terminal and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mild.cli.console import print_table
from mild.exceptions import DataFileError, check_option

if TYPE_CHECKING:
    from mild.reproduce.summary import Block, Row

__all__ = ["document", "print_blocks", "read_blocks"]

# Columns that a method's name must have in a table, or it goes on a line of its own.
LEAST_NAME = 26


def read_blocks(
    files: Sequence[Path], tables: Sequence[str] | None, confidence: float, simultaneous: bool
) -> tuple[Block, ...]:
    """Blocks of the tables that are asked for; all where none is named."""
    from mild.reproduce.labels import TABLES
    from mild.reproduce.results import read_records
    from mild.reproduce.summary import summarise

    for name in tables or ():
        check_option("table", name, TABLES)
    records = read_records(files)
    wanted = [record for record in records if not tables or record["cell"]["table"] in tables]
    if not wanted:
        there = ", ".join(sorted({record["cell"]["table"] for record in records})) or "nothing"
        raise DataFileError(
            f"{', '.join(map(str, files))} must hold results of {', '.join(tables or TABLES)}; "
            f"there is {there}."
        )
    return summarise(wanted, confidence=confidence, simultaneous=simultaneous)


def print_blocks(blocks: Sequence[Block]) -> None:
    """One table per block on stdout; what holds for all of them is said once, at the end."""
    from mild.reproduce.formats import terminal_table
    from mild.reproduce.labels import TABLES

    shown = [terminal_table(block) for block in blocks]
    shared = [line for line in shown[0].footnotes if all(line in each.footnotes for each in shown)]
    pairs = zip(blocks, shown, strict=True)
    for name, group in groupby(pairs, lambda pair: pair[0].table):
        typer.echo(TABLES.get(name, name))
        for block, table in group:
            typer.echo()
            _print_rows(block.title, *_filled(table.header, table.rows))
            _print_lines([line for line in table.footnotes if line not in shared])
        typer.echo()
    _print_lines(shared)


def _filled(
    header: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """The columns that hold anything."""
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return [header[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _print_rows(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table where there is room for its names; else names on lines of their own."""
    from rich.cells import cell_len
    from rich.console import Console

    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    room = Console().width
    _print_lines([title])
    # A table has two blanks and a line per column, and the last line.
    if LEAST_NAME + sum(widths[1:]) + 3 * len(header) + 1 <= room:
        # The title stands above: in the table it would be broken at the table's width.
        print_table("", header, rows, header[1:])
        return
    typer.echo("─" * room)
    for place, (name, seeds, *cells) in enumerate((header, *rows)):
        line = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[2:], strict=True))
        typer.echo(f"{name}, {seeds if place == 0 else _seeds(seeds)}\n    {line.rstrip()}")


def _seeds(count: str) -> str:
    return "1 seed" if count == "1" else f"{count} seeds"


def _print_lines(lines: Sequence[str]) -> None:
    """Lines broken between words."""
    from rich.console import Console
    from rich.text import Text

    for line in lines:
        Console().print(Text(line))


def document(blocks: Sequence[Block]) -> dict[str, Any]:
    """Every number of the blocks in plain values."""
    return {
        "blocks": [
            {
                "table": block.table,
                "title": block.title,
                "cell": dict(block.cell),
                "confidence": block.confidence,
                "simultaneous": block.simultaneous,
                "comparisons": block.comparisons,
                "rows": [_row(row) for row in block.rows],
            }
            for block in blocks
        ]
    }


def _row(row: Row) -> dict[str, Any]:
    paper, interval = row.paper, row.against_tdef
    return {
        "label": row.label,
        "method": dict(row.method),
        "decision": row.decision,
        "seeds": row.seeds,
        "losses": row.losses,
        "mean": row.mean,
        "std": row.std,
        "shares": row.shares,
        "recall": row.recall,
        "margins": row.margins,
        "paper": None if paper is None else dataclasses.asdict(paper),
        "from_paper": row.from_paper,
        "minus_tdef": None if interval is None else dataclasses.asdict(interval),
        "verdict": row.verdict,
        "seeds_of_other_experts": row.other_experts,
    }

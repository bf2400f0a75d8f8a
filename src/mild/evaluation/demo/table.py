"""The tables of the terminal: one block per setup and kind of experts, the cost types side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mild.data.datasets import SETUPS
from mild.evaluation.demo.findings import caption, findings
from mild.evaluation.demo.long_tail import TailRow, describe
from mild.evaluation.demo.run import REFERENCE, Block, DemoResults, Row

__all__ = ["block_tables", "render"]

MARKS = {"better": "▲", "worse": "▼", "level": ""}
YARDSTICKS = ("label", "constant", "oracle")

METHOD_WIDTH = 23
LOSS_WIDTH = 15
#: Width of one share by its decimals.
SHARE_WIDTH = {0: 3, 1: 5}


def render(results: DemoResults, width: int) -> Iterator[RenderableType]:
    """Everything the terminal shows, fit for ``width`` columns."""
    for table in block_tables(results.blocks, width):
        yield table
        yield Text()
    region = _table([results.region_block], width, _decimals(results.blocks, width))
    region.title = "Experts by region of a plane · labels say nothing"
    yield region
    yield Text()
    yield _tail_table(results.tail)
    yield Text()
    yield Text(caption(results), style="dim")
    yield Text()
    yield Text("Findings", style="bold")
    bullets = Table.grid(padding=(0, 1))
    for sentence in findings(results):
        bullets.add_row("•", Text(sentence))
    yield Padding(bullets, (0, 0, 0, 1))


def block_tables(blocks: Sequence[Block], width: int) -> Iterator[Table]:
    """One table per setup and kind of experts; one per cost type where two do not fit."""
    digits = _decimals(blocks, width)
    for (experts, setup), group in groupby(blocks, key=lambda block: (block.experts, block.setup)):
        members = list(group)
        parts = [members] if _needed(members, 0) <= width else [[block] for block in members]
        for part in parts:
            table = _table(part, width, digits)
            coverage = "-".join(map(str, SETUPS[setup]))
            table.title = f"Setup {setup} ({coverage}) · {experts} experts"
            yield table


def _needed(blocks: Sequence[Block], digits: int) -> int:
    """Columns of text that the blocks take side by side, one space between columns."""
    share = SHARE_WIDTH[digits] + 1
    return METHOD_WIDTH + sum(
        1 + LOSS_WIDTH + 2 + share * len(block.expert_names) for block in blocks
    )


def _decimals(blocks: Sequence[Block], width: int) -> int:
    """Decimals of the shares: one, if every table has the room for it."""
    groups = groupby(blocks, key=lambda block: (block.experts, block.setup))
    return int(all(_needed(list(group), 1) <= width for _, group in groups))


def _table(blocks: Sequence[Block], width: int, digits: int) -> Table:
    # Blocks stand apart where there is room.
    gap = max(0, min(4, width - _needed(blocks, digits)))
    table = _empty_table()
    table.add_column("method", no_wrap=True, width=METHOD_WIDTH)
    for place, block in enumerate(blocks):
        numbers = " ".join(
            f"{k:>{SHARE_WIDTH[digits]}}" for k in range(1, len(block.expert_names) + 1)
        )
        table.add_column(
            block.cost, justify="right", no_wrap=True, width=LOSS_WIDTH + (gap if place else 0)
        )
        table.add_column("", no_wrap=True, width=1)
        table.add_column(numbers, no_wrap=True, width=len(numbers))
    for rows in zip(*(block.rows for block in blocks), strict=True):
        cells = [Text(rows[0].label)]
        for row in rows:
            cells.append(Text(_loss(row), style="bold" if row.best else ""))
            cells.append(_mark(row))
            cells.append(Text(_shares(row, digits)))
        table.add_row(*cells, style="dim" if rows[0].key in YARDSTICKS else None)
    return table


def _tail_table(rows: Sequence[TailRow]) -> Table:
    table = _empty_table()
    table.title = "20 experts, long tail of shares, 400 rows · recall of the rarer half"
    table.add_column("method", no_wrap=True)
    for name in ("loss", "balanced", "recall", "minus TDEF"):
        table.add_column(f"  {name}", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in describe(row)))
    return table


def _empty_table() -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=0,
    )


def _loss(row: Row) -> str:
    return f"{row.mean:.4f}" + ("" if row.std is None else f" ± {row.std:.4f}")


def _mark(row: Row) -> Text:
    if row.best:
        return Text("★", style="bold")
    if row.key in (REFERENCE, "oracle"):
        return Text()
    return Text(MARKS[row.verdict])


def _shares(row: Row, digits: int) -> str:
    shares = 100 * row.shares.mean(axis=0)
    return " ".join(f"{share:>{SHARE_WIDTH[digits]}.{digits}f}" for share in shares)

"""Blocks as text: Markdown, and rows for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from mild.reproduce.labels import TABLES, seed_range
from mild.reproduce.llm.titles import model_notes
from mild.reproduce.paper import PAPER_RUNS
from mild.reproduce.provenance import meta_lines
from mild.reproduce.records import MODELS
from mild.reproduce.summary import Block, Row

__all__ = [
    "TerminalTable",
    "cells",
    "footnotes",
    "header",
    "how_to_read",
    "terminal_table",
    "to_markdown",
]

NONE = "–"

#: The paper's own names where ours would not be understood.
PAPER_METHODS = {
    "uniform": "MILD uniform",
    "theory": "MILD theory",
    "tuned": "MILD tuned",
    "optimal": "optimal",
}


class TerminalTable(NamedTuple):
    """What the terminal shows of one block."""

    title: str
    header: list[str]
    rows: list[list[str]]
    footnotes: list[str]


def to_markdown(blocks: Sequence[Block], heading: int = 2) -> str:
    """One section per table, one table per block, and how the numbers were made.

    Parameters
    ----------
    blocks : as ``summarise`` gives them
    heading : level of the sections; blocks are one level lower
    """
    parts = []
    for name, group in groupby(blocks, key=lambda block: block.table):
        parts.append(f"{'#' * heading} {TABLES.get(name, name)}")
        for block in group:
            parts.append(f"{'#' * (heading + 1)} {block.title}")
            parts.append(_markdown_table(block))
            parts += footnotes(block)
    if blocks:
        parts.append(f"{'#' * heading} How to read it")
        parts.append("\n".join(f"- {line}" for line in how_to_read(blocks)))
    return "\n\n".join(parts) + "\n" if parts else ""


def terminal_table(block: Block) -> TerminalTable:
    """Title, header, rows and footnotes for a terminal of 100 columns or more.

    The paper's figures are the first rows, so that ours stand beneath them.
    """
    control = ["shuffled"] if _controlled(block) else []
    names = ["method", "seeds", "loss", "shares %", *control, "from paper", "minus TDEF", "verdict"]
    rows = []
    for figure in dict.fromkeys(row.paper for row in block.rows if row.paper is not None):
        name = f"{PAPER_METHODS.get(figure.method, figure.method.upper())}, the paper"
        shown = [name, str(PAPER_RUNS), _loss(figure.loss, figure.std), _percent(figure.shares, 0)]
        rows.append([*shown, *[""] * (len(names) - len(shown))])
    for row in block.rows:
        shuffled = "" if row.control is None else f"{row.control:.4f}"
        rows.append(
            [
                row.label,
                str(row.n),
                _loss(row.mean, row.std),
                _percent([100 * share for share in row.shares], 0),
                *([shuffled] if control else []),
                _signed(row.from_paper, 1) if row.paper else "",
                _interval(row, estimate=False),
                _short_verdict(row.verdict),
            ]
        )
    title = f"{TABLES.get(block.table, block.table)} · {block.title}"
    apart = "From paper: ours minus the paper's mean, in standard errors of the difference."
    notes = [apart] if any(row.from_paper is not None for row in block.rows) else []
    return TerminalTable(title, names, rows, [*notes, *footnotes(block)])


def header(block: Block) -> list[str]:
    """Names of the columns."""
    level = f"{100 * block.confidence:g} %"
    return [
        "method",
        "seeds",
        "ours",
        "shares %",
        *(["shuffled"] if _controlled(block) else []),
        "paper",
        "paper's shares %",
        "ours - paper (s.e.)",
        f"minus TDEF ({level}{', jointly' if block.simultaneous else ''})",
        "verdict",
    ]


def cells(block: Block, row: Row) -> list[str]:
    """One row as text, a cell per column."""
    paper = row.paper
    control = [NONE if row.control is None else f"{row.control:.4f}"]
    return [
        row.label,
        str(row.n),
        _loss(row.mean, row.std),
        _percent([100 * share for share in row.shares], 1),
        *(control if _controlled(block) else []),
        NONE if paper is None else _loss(paper.loss, paper.std),
        NONE if paper is None or not paper.shares else _percent(paper.shares, 1),
        _signed(row.from_paper, 1) or NONE,
        _interval(row) or NONE,
        row.verdict or NONE,
    ]


def _controlled(block: Block) -> bool:
    return any(row.controls for row in block.rows)


def _markdown_table(block: Block) -> str:
    names = header(block)
    lines = [names, ["---"] + ["---:"] * (len(names) - 2) + ["---"]]
    lines += [cells(block, row) for row in block.rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def footnotes(block: Block) -> list[str]:
    """What must be known to read the block."""
    notes = []
    if block.comparisons:
        jointly = (
            f"jointly over the {block.comparisons} rows compared (Bonferroni)"
            if block.simultaneous
            else "each by itself"
        )
        pairs = "seeds (Student's t)"
        if block.overlap:
            pairs = "splits (Student's t, corrected for their overlap: Nadeau and Bengio)"
        notes.append(
            f"Minus TDEF: {100 * block.confidence:g} % interval, paired over common {pairs}, {jointly}."
        )
    above = block.above_constant
    if above:
        notes.append(
            f"More costly than the best constant: {'; '.join(row.label for row in above)}."
        )
    if block.cell["experts"] == MODELS:
        notes += model_notes(block.cell, any(row.paper for row in block.rows))
    notes += [*_about_other_experts(block), *_about_experts(block)]
    data = dict.fromkeys(record["note"] for record in block.records if record["note"])
    notes += [f"Data: {note.rstrip('.')}." for note in data]
    return notes


def _about_other_experts(block: Block) -> list[str]:
    """Which numbers of the block were not made with the same experts as the rest."""
    apart = [
        f"{row.label} (seed{'s' if len(row.other_experts) > 1 else ''} "
        f"{seed_range(row.other_experts)})"
        for row in block.rows
        if row.other_experts
    ]
    if not apart:
        return []
    rest, unpaired = "the best constant and the oracle", ""
    if block.named("tdef") is not None:
        rest, unpaired = f"TDEF, {rest}", ", and not paired there"
    return [f"Judged on other experts than {rest}{unpaired}: {'; '.join(apart)}."]


def _about_experts(block: Block) -> list[str]:
    """Who the people are, and whose figure the paper's is, where the title does not say it."""
    notes = []
    if block.cell["experts"] == "people":
        experts = block.records[0].get("experts")
        names = experts.get("names") if isinstance(experts, dict) else None
        if isinstance(names, list):
            notes.append(f"Experts, in the order of the shares: {', '.join(map(str, names))}.")
    shown = any(row.paper for row in block.rows)
    if shown and block.cell["setup"] == "severe" and block.cell["experts"] == "synthetic":
        notes.append("The paper's figures are for real experts; ours here are synthetic.")
    return notes


def how_to_read(blocks: Sequence[Block]) -> list[str]:
    """What holds for all blocks, and how their numbers were made."""
    shuffled = (
        "Shuffled: what the same shares dealt at random would cost; what is below it was learned."
    )
    return [
        "Ours: deferral loss on the test rows (of images at the last epoch), mean ± standard deviation "
        "(divided by n - 1) over seeds; shares: of the test rows sent to each expert.",
        *([shuffled] if any(map(_controlled, blocks)) else []),
        f"Paper: mean ± standard deviation over {PAPER_RUNS} runs as printed; every reading of MILD "
        f"stands beside the paper's one MILD.",
        f"Ours - paper, in standard errors: divided by the root of s²/n of ours plus s²/{PAPER_RUNS} "
        f"of the paper's.",
        "Verdict: by the interval of the loss minus TDEF's; level where it holds 0.",
        *meta_lines(record for block in blocks for record in block.records),
    ]


def _loss(mean: float | None, std: float | None) -> str:
    if mean is None:
        return NONE
    return f"{mean:.4f}" + ("" if std is None else f" ± {std:.4f}")


def _percent(shares: Iterable[float], digits: int) -> str:
    return " ".join(f"{share:.{digits}f}" for share in shares)


def _signed(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:+.{digits}f}"


def _interval(row: Row, estimate: bool = True) -> str:
    interval = row.against_tdef
    if interval is None:
        return ""
    ends = f"[{interval.low:+.4f}, {interval.high:+.4f}]"
    return f"{interval.estimate:+.4f} {ends}" if estimate else ends


def _short_verdict(verdict: str) -> str:
    return verdict.removesuffix(" than TDEF").removeprefix("cannot tell (").removesuffix(")")

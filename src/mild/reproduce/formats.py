"""Blocks as text: Markdown, LaTeX, CSV, and rows for the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from mild.reproduce.labels import TABLES
from mild.reproduce.paper import PAPER_RUNS, PaperFigure
from mild.reproduce.provenance import meta_lines
from mild.reproduce.summary import Block, Row

__all__ = ["TerminalTable", "terminal_table", "to_csv", "to_latex", "to_markdown"]

NONE = "–"

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "Σ": r"$\sum$",
    "ρ": r"$\rho$",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "–": "--",
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
            parts += _footnotes(block)
    if blocks:
        parts.append(f"{'#' * heading} How to read it")
        parts.append("\n".join(f"- {line}" for line in _how_to_read(blocks)))
    return "\n\n".join(parts) + "\n" if parts else ""


def to_latex(blocks: Sequence[Block]) -> str:
    """One ``table*`` per block, for booktabs and graphicx."""
    lines = ["% needs \\usepackage{booktabs} and \\usepackage{graphicx}"]
    lines += [f"% {' '.join(line.split())}" for line in _how_to_read(blocks)]
    for number, block in enumerate(blocks, 1):
        header = _header(block)
        caption = f"{TABLES.get(block.table, block.table)}. {block.title}."
        notes = " ".join([caption, *_footnotes(block)])
        lines += [
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{_latex(notes)}}}",
            rf"\label{{tab:mild-{number}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 2)}l}}",
            r"\toprule",
            _latex_line(header),
            r"\midrule",
        ]
        for row in block.rows:
            # A line sets the yardsticks apart from the methods.
            if row.yardstick and not block.rows[block.rows.index(row) - 1].yardstick:
                lines.append(r"\midrule")
            lines.append(_latex_line(_cells(row)))
        lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""]
    return "\n".join(lines).rstrip() + "\n"


def to_csv(blocks: Sequence[Block]) -> str:
    """One line per row of a block: every setting, every number in full.

    Lists are separated by blanks; fields of the protocol are prefixed by ``protocol_``.
    """
    entries = [_csv_entry(block, row) for block in blocks for row in block.rows]
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    return text.getvalue()


def terminal_table(block: Block) -> TerminalTable:
    """Title, header, rows and footnotes for a terminal of 100 columns or more.

    The paper's figures are the first rows, so that ours stand beneath them.
    """
    header = ["method", "seeds", "loss", "shares %", "from paper", "minus TDEF", "verdict"]
    rows = []
    for figure in dict.fromkeys(row.paper for row in block.rows if row.paper is not None):
        name = f"{figure.method.upper()}, the paper"
        loss = _loss(figure.loss, figure.std)
        rows.append([name, str(PAPER_RUNS), loss, _percent(figure.shares, 0), "", "", ""])
    for row in block.rows:
        shares = _percent([100 * share for share in row.shares], 0)
        rows.append(
            [
                row.label,
                str(row.n),
                _loss(row.mean, row.std),
                shares,
                _signed(row.from_paper, 1) if row.paper else "",
                _interval(row, estimate=False),
                _short_verdict(row.verdict),
            ]
        )
    title = f"{TABLES.get(block.table, block.table)} · {block.title}"
    apart = "From paper: ours minus the paper's mean, in standard errors of the difference."
    notes = [apart] if any(row.from_paper is not None for row in block.rows) else []
    return TerminalTable(title, header, rows, [*notes, *_footnotes(block)])


def _header(block: Block) -> list[str]:
    level = f"{100 * block.confidence:g} %"
    return [
        "method",
        "seeds",
        "ours",
        "shares %",
        "paper",
        "paper's shares %",
        "ours - paper (s.e.)",
        f"minus TDEF ({level}{', jointly' if block.simultaneous else ''})",
        "verdict",
    ]


def _cells(row: Row) -> list[str]:
    paper = row.paper
    return [
        row.label,
        str(row.n),
        _loss(row.mean, row.std),
        _percent([100 * share for share in row.shares], 1),
        NONE if paper is None else _loss(paper.loss, paper.std),
        NONE if paper is None else _percent(paper.shares, 1),
        _signed(row.from_paper, 1) or NONE,
        _interval(row) or NONE,
        row.verdict or NONE,
    ]


def _markdown_table(block: Block) -> str:
    lines = [_header(block), ["---"] + ["---:"] * 7 + ["---"]]
    lines += [_cells(row) for row in block.rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _footnotes(block: Block) -> list[str]:
    notes = []
    if block.comparisons:
        jointly = (
            f"jointly over the {block.comparisons} rows compared (Bonferroni)"
            if block.simultaneous
            else "each by itself"
        )
        notes.append(
            f"Minus TDEF: {100 * block.confidence:g} % interval, paired over common seeds "
            f"(Student's t), {jointly}."
        )
    above = block.above_constant
    if above:
        notes.append(
            f"More costly than the best constant: {'; '.join(row.label for row in above)}."
        )
    notes += _about_experts(block)
    data = dict.fromkeys(record["note"] for record in block.records if record["note"])
    notes += [f"Data: {note.rstrip('.')}." for note in data]
    return notes


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


def _how_to_read(blocks: Sequence[Block]) -> list[str]:
    return [
        "Ours: deferral loss on the test images at the last epoch, mean ± standard deviation "
        "(divided by n - 1) over seeds; shares: of the test images sent to each expert.",
        f"Paper: mean ± standard deviation over {PAPER_RUNS} runs as printed; every reading of MILD "
        f"stands beside the paper's one MILD.",
        "Ours - paper, in standard errors: divided by the root of s²/n of ours plus s²/5 of the "
        "paper's.",
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


def _latex(text: str) -> str:
    return "".join(LATEX_ESCAPES.get(letter, letter) for letter in text)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _csv_entry(block: Block, row: Row) -> dict[str, Any]:
    cell = block.cell
    protocol = {f"protocol_{name}": value for name, value in cell["protocol"].items()}
    settings = {name: value for name, value in cell.items() if name != "protocol"}
    method = {f"method_{name}": value for name, value in row.method.items()}
    interval = row.against_tdef
    entry = {
        **settings,
        **protocol,
        **method,
        "decision": row.decision,
        "label": row.label,
        "n_seeds": row.n,
        "seeds": row.seeds,
        "mean": row.mean,
        "std": row.std,
        "losses": row.losses,
        "shares": row.shares,
        "recall": row.recall,
        "margins_used": row.margins,
        **_csv_paper(row.paper),
        "standard_errors_from_paper": row.from_paper,
        "minus_tdef": interval.estimate if interval else None,
        "minus_tdef_low": interval.low if interval else None,
        "minus_tdef_high": interval.high if interval else None,
        "minus_tdef_confidence": interval.confidence if interval else None,
        "simultaneous": block.simultaneous,
        "comparisons": block.comparisons,
        "verdict": row.verdict,
    }
    return {name: _csv_value(value) for name, value in entry.items()}


def _csv_paper(figure: PaperFigure | None) -> dict[str, Any]:
    return {
        "paper_table": figure.table if figure else None,
        "paper_loss": figure.loss if figure else None,
        "paper_std": figure.std if figure else None,
        "paper_shares_percent": figure.shares if figure else None,
    }


def _csv_value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return " ".join("nan" if part is None else str(part) for part in value)
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return value

"""Blocks as LaTeX tables."""

from __future__ import annotations

from collections.abc import Sequence

from mild.reproduce.formats import cells, footnotes, header, how_to_read
from mild.reproduce.labels import TABLES
from mild.reproduce.summary import Block

__all__ = ["to_latex"]

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


def to_latex(blocks: Sequence[Block]) -> str:
    """One ``table*`` per block, for booktabs and graphicx."""
    lines = ["% needs \\usepackage{booktabs} and \\usepackage{graphicx}"]
    lines += [f"% {' '.join(line.split())}" for line in how_to_read(blocks)]
    for number, block in enumerate(blocks, 1):
        names = header(block)
        caption = f"{TABLES.get(block.table, block.table)}. {block.title}."
        notes = " ".join([caption, *footnotes(block)])
        lines += [
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{_latex(notes)}}}",
            rf"\label{{tab:mild-{number}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (len(names) - 2)}l}}",
            r"\toprule",
            _latex_line(names),
            r"\midrule",
        ]
        for row in block.rows:
            # A line sets the yardsticks apart from the methods.
            if row.yardstick and not block.rows[block.rows.index(row) - 1].yardstick:
                lines.append(r"\midrule")
            lines.append(_latex_line(cells(block, row)))
        lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _latex(text: str) -> str:
    return "".join(LATEX_ESCAPES.get(letter, letter) for letter in text)


def _latex_line(words: Sequence[str]) -> str:
    return " & ".join(map(_latex, words)) + r" \\"

"""The paper's figures: one entry per row of its tables, as printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

#: The paper's ± is the standard deviation over this many runs.
PAPER_RUNS = 5
#: Data that stand in for the paper's.
STAND_INS = {"svhn5000": "svhn"}
#: The paper's language models, from strong to tiny, and what asking them costs.
QWEN = ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct")
BETA = (1.0, 0.6, 0.1)


@dataclass(frozen=True)
class PaperFigure:
    """One row of a table of the paper, keyed as our records.

    ``std`` is over five runs, ``shares`` are percent of the inputs sent to each expert; None or empty where
    none are printed.
    """

    table: str
    dataset: str
    setup: str
    cost: str
    method: str
    loss: float | None
    std: float | None
    shares: tuple[float, ...]


@cache
def paper_figures() -> tuple[PaperFigure, ...]:
    """All figures, in the paper's order."""
    content = json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))
    return tuple(
        PaperFigure(**{**entry, "shares": tuple(entry["shares"])}) for entry in content["figures"]
    )


def lookup(table: str, dataset: str, setup: str, cost: str, method: str) -> PaperFigure | None:
    """The figure of a method in a cell, or None where the paper has none.

    >>> lookup("table1", "cifar10", "I", "error", "mild").loss
    0.0403
    """
    wanted = (table, dataset, setup, cost, method)
    for figure in paper_figures():
        if (figure.table, figure.dataset, figure.setup, figure.cost, figure.method) == wanted:
            return figure
    return None


def paper_figure(cell: Mapping[str, Any], method: Mapping[str, Any]) -> PaperFigure | None:
    """The figure that a record stands beside; every reading of MILD stands beside the paper's MILD."""
    table, name, setup = cell["table"], method["name"], cell["setup"]
    if cell.get("validation") or cell.get("holdout"):
        return None
    if cell["experts"] == "language models":
        if setup != "qwen2.5" or (cell["cost"] == "cost" and tuple(cell["beta"]) != BETA):
            return None
        if table == "noise" and cell["noise"] is None:
            table = "llm"
        if table == "ablation":
            margins = {"uniform": "uniform", "theory": "theory", "tuned": "tuned", "grid": "tuned"}
            if name == "mild":
                name = margins.get(str(method.get("margins")), "")
            else:
                table = "llm"
        return lookup(table, "mmlu", setup, cell["cost"], name)
    if cell["experts"] == "people" or cell.get("ambiguous") is not None:
        return None
    if table == "readings":
        table = "table2" if cell["experts"] == "real" else "table1"
    if setup == "severe":
        table = "severe"
    return lookup(table, STAND_INS.get(cell["dataset"], cell["dataset"]), setup, cell["cost"], name)

"""The paper's figures: one entry per row of its tables, as printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from mild.exceptions import check_option

__all__ = ["PAPER_RUNS", "PAPER_TABLES", "PaperFigure", "lookup", "paper_figures"]

#: The paper's ± is the standard deviation over this many runs.
PAPER_RUNS = 5

#: Names of the tables here, and what the paper calls them.
PAPER_TABLES = {
    "table1": "tab:comparison",
    "table2": "tab:comparison-real",
    "severe": "tab:comparison-severe",
    "llm": "tab:llm_results",
    "ablation": "sec:further_analysis",
    "noise": "sec:further_analysis",
    "extreme": "sec:further_analysis",
}


@dataclass(frozen=True)
class PaperFigure:
    """One row of one of the paper's tables, or what its text says in place of one.

    Attributes
    ----------
    table : "table1" (synthetic experts), "table2" (real experts), "severe", "llm", "ablation" (of the
        margins), "noise" (20 % on the costs) or "extreme" (95 to 5 %)
    dataset : "cifar10", "cifar100", "svhn", "tiny-imagenet" or "mmlu"
    setup : "I", "II", "III", "severe" or "qwen2.5"
    cost : "error", or "cost" for error plus cost
    method : "tdef", "mild", "ce", "cwce", "ldam" or "optimal"; in the ablation "uniform", "theory" or
        "tuned"
    loss, std : deferral loss and its standard deviation over five runs; None where none is printed
    shares : share of the inputs sent to each expert, in percent; none where none are printed. In
        "extreme" the 7B model, and both smaller ones together
    """

    table: str
    dataset: str
    setup: str
    cost: str
    method: str
    loss: float | None
    std: float | None
    shares: tuple[float, ...]


def paper_figures(
    table: str | None = None,
    dataset: str | None = None,
    setup: str | None = None,
    cost: str | None = None,
    method: str | None = None,
) -> tuple[PaperFigure, ...]:
    """The figures that match, in the paper's order; None matches everything.

    Examples
    --------
    >>> len(paper_figures("severe"))
    6
    >>> [figure.loss for figure in paper_figures("severe", dataset="cifar10")]
    [0.081, 0.0125]
    """
    if table is not None:
        check_option("table", table, PAPER_TABLES)
    wanted = {"table": table, "dataset": dataset, "setup": setup, "cost": cost, "method": method}
    asked = {name: value for name, value in wanted.items() if value is not None}
    return tuple(
        figure
        for figure in _figures()
        if all(getattr(figure, name) == value for name, value in asked.items())
    )


def lookup(table: str, dataset: str, setup: str, cost: str, method: str) -> PaperFigure | None:
    """The one figure of a method in a cell, or None where the paper has none.

    Examples
    --------
    >>> lookup("table1", "cifar10", "I", "error", "mild").loss
    0.0403
    >>> lookup("table1", "digits", "I", "error", "mild") is None
    True
    """
    return _by_place().get((table, dataset, setup, cost, method))


@cache
def _figures() -> tuple[PaperFigure, ...]:
    text = (files("mild.reproduce") / "paper.json").read_text(encoding="utf-8")
    entries = json.loads(text)["figures"]
    return tuple(PaperFigure(**{**entry, "shares": tuple(entry["shares"])}) for entry in entries)


@cache
def _by_place() -> dict[tuple[str, str, str, str, str], PaperFigure]:
    return {(f.table, f.dataset, f.setup, f.cost, f.method): f for f in _figures()}

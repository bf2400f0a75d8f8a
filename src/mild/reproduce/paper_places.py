"""Which of the paper's figures a result stands beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mild.reproduce.llm.trio import BETA, SETUP
from mild.reproduce.paper import PaperFigure, lookup
from mild.reproduce.records import MODELS

__all__ = ["levels_differ", "paper_figure"]

#: Data that stand in for the paper's.
STAND_INS = {"svhn5000": "svhn"}
# The paper's ablation by how our methods find their margins.
MARGINS = {"uniform": "uniform", "theory": "theory", "tuned": "tuned", "grid": "tuned"}


def paper_figure(cell: Mapping[str, Any], method: Mapping[str, Any]) -> PaperFigure | None:
    """The paper's figure for a method in a cell; any reading of MILD stands beside its one MILD.

    Examples
    --------
    >>> cell = {"table": "readings", "experts": "real", "setup": "I", "cost": "error"}
    >>> paper_figure({**cell, "dataset": "cifar10"}, {"name": "tdef"}).loss
    0.117
    """
    name = str(method["name"])
    if cell["experts"] == MODELS:
        return _of_models(cell, method)
    if cell["experts"] == "people":
        return None
    table = cell["table"]
    if table not in ("table1", "table2", "severe"):
        table = "table2" if cell["experts"] == "real" else "table1"
        table = "severe" if cell["setup"] == "severe" else table
    dataset = STAND_INS.get(cell["dataset"], cell["dataset"])
    return lookup(table, dataset, cell["setup"], cell["cost"], name)


def levels_differ(cell: Mapping[str, Any]) -> bool:
    """Whether the paper's loss is on another scale: it does not print its skewed prices."""
    return cell["table"] == "extreme"


def _of_models(cell: Mapping[str, Any], method: Mapping[str, Any]) -> PaperFigure | None:
    """Only its own experts at its own prices; which questions they answered is another matter."""
    if cell["setup"] != SETUP or (cell["cost"] == "cost" and tuple(cell["beta"]) != BETA):
        return None
    table, name = str(cell["table"]), str(method["name"])
    if table == "noise" and cell["noise"] is None:
        table = "llm"
    if table == "ablation" and name == "mild":
        name = MARGINS.get(str(method.get("margins")), "")
    elif table == "ablation":
        table = "llm"
    return lookup(table, "mmlu", SETUP, cell["cost"], name)

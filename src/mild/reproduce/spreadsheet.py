"""Blocks as CSV: every setting and every number in full."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from mild.reproduce.paper import PaperFigure
from mild.reproduce.summary import Block, Row

__all__ = ["to_csv"]


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
        "shuffled_control": row.control,
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
        "seeds_of_other_experts": row.other_experts,
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

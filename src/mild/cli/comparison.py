"""A comparison of methods on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mild.cli.console import number, print_table, say
from mild.errors import DataFileError
from mild.evaluation.comparison import Comparison, Row
from mild.evaluation.tasks import minority_recall
from mild.metrics.money import amount

__all__ = ["check_results", "print_comparison"]


def check_results(out: Path) -> None:
    """Refuse, before any work, a file that could not be written at the end."""
    if out.suffix.lower() != ".json":
        raise DataFileError(f"{out}: results must end in .json; got {out.suffix!r}.")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise DataFileError(f"cannot write to {out}: {out.absolute().parent} is not a folder.")


def print_comparison(found: Comparison, result: Mapping[str, Any]) -> None:
    """Tables of methods and experts, and the one sentence."""
    say(f"cost = {result['cost']['words']}; text features: {result['text']}")
    header = ["method", "mean cost", "minus constant", "verdict", "gain"]
    rows = [[row.label, *_costs(found, row)] for row in found.rows]
    rows.append(["oracle", number(found.oracle), "", "", "100.0 %"])
    print_table(
        _title(found), header, rows, unbroken=[name for name in header if name != "mean cost"]
    )
    _print_behaviour(found)
    _print_experts(found)
    if found.dropped:
        say(f"{found.dropped:,} test rows were left out: their query is in the training rows, too.")
    if found.not_compared is not None:
        say(found.not_compared[:1].upper() + found.not_compared[1:])
    say(found.statement.sentence)
    if "out" in result:
        say(f"Written to {result['out']}.")


def _title(found: Comparison) -> str:
    splits = "1 split" if found.n_splits == 1 else f"{found.n_splits} splits"
    return (
        f"{found.n_rows:,} rows, {splits}: {found.n_train:,.0f} to fit on, {found.n_test:,.0f} to judge "
        f"by; intervals of {found.confidence * 100:g} % for all methods at once"
    )


def _costs(found: Comparison, row: Row) -> list[str]:
    gain = _percent(found.captured(row))
    if row.difference is None:
        return [number(row.mean), "", "", gain]
    middle, low, high = row.difference
    interval = f"{middle:+.4f} [{low:+.4f}, {high:+.4f}]"
    return [number(row.mean), interval, row.verdict, gain]


def _print_behaviour(found: Comparison) -> None:
    """How evenly the methods ask, what the same shares cost at random, and what it all takes."""
    many = found.n_splits > 1
    priced = any(row.price is not None for row in found.rows)
    header = ["method", *(["± over splits"] if many else []), "shares at random"]
    header += ["balanced cost", "largest share", "minority recall", "worst recall"]
    header += [*(["$ per 1,000"] if priced else []), "seconds"]
    rows = []
    for row in found.rows:
        cells = [row.label, *([number(float(row.costs.std(ddof=1)))] if many else [])]
        cells += [number(row.control), number(row.balanced), _percent(float(row.shares.max()))]
        cells.append(_percent(minority_recall(row.recall, found.oracle_shares)))
        cells.append(_percent(row.worst_recall))
        if priced:
            cells.append("–" if row.price is None else amount(1000 * row.price))
        rows.append([*cells, f"{row.seconds:.1f}"])
    print_table("how they ask", header, rows, unbroken=("method",))


def _print_experts(found: Comparison) -> None:
    row, constant = found.row(found.chosen), found.row("constant")
    print_table(
        f"experts, as {row.label} asks them",
        ["expert", "share", "oracle's share", "recall", "best constant"],
        [
            [name, *(_percent(float(value)) for value in cells)]
            for name, *cells in zip(
                found.expert_names,
                row.shares,
                found.oracle_shares,
                row.recall,
                constant.shares,
                strict=True,
            )
        ],
    )


def _percent(value: float | None) -> str:
    return "–" if value is None or value != value else f"{100 * value:.1f} %"

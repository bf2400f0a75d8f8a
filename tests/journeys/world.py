"""Experts that answer questions of several kinds, and what each question takes: the columns of a table.

``small`` can do sums, ``medium`` also knows novels, and ``large`` does everything and is dear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

EXPERTS = ("large", "medium", "small")
#: Share of right answers by the kind of a question.
RIGHT = {
    "sum": {"large": 0.97, "medium": 0.97, "small": 0.97},
    "novel": {"large": 0.97, "medium": 0.95, "small": 0.1},
    "code": {"large": 0.97, "medium": 0.1, "small": 0.05},
}
SHARES = {"sum": 0.5, "novel": 0.3, "code": 0.2}
#: The cheapest expert that can answer it.
BEST = {"sum": "small", "novel": "medium", "code": "large"}
#: Means: dollars and seconds of an answer.
DOLLARS = {"large": 0.012, "medium": 0.002, "small": 0.0002}
SECONDS = {"large": 2.5, "medium": 0.8, "small": 0.3}
TEXTS = {
    "sum": "What is {a:,} plus {b:,}?",
    "novel": 'Who says "call me {a}", and to whom,\nin chapter {b} of the novel?',
    "code": 'Write a function that prints "{a}", {b} times',
}
#: Wrong answers that a dollar is worth.
PRICE_WEIGHT = 20
#: A table: its columns by their names, a list of cells each.
Columns = dict[str, list[Any]]


def log(seed: int, n: int) -> Columns:
    """Outcomes of so many different questions with all experts."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(SHARES), n, p=list(SHARES.values())).tolist()
    first = rng.choice(np.arange(1000, 10_000), n, replace=False).tolist()
    second = rng.integers(1000, 10_000, n).tolist()
    queries = []
    for kind, a, b in zip(kinds, first, second, strict=True):
        queries.append(TEXTS[kind].format(a=a, b=b))
    columns: Columns = {"query": queries, "kind": kinds}
    for name in EXPERTS:
        shares = np.array([RIGHT[kind][name] for kind in kinds])
        columns[f"correct__{name}"] = (rng.random(n) < shares).astype(int).tolist()
        dollars = DOLLARS[name] * rng.uniform(0.5, 1.5, n)
        columns[f"cost__{name}"] = dollars.round(7).tolist()
        milliseconds = 1000 * SECONDS[name] * rng.uniform(0.8, 1.2, n)
        columns[f"latency_ms__{name}"] = milliseconds.round().tolist()
    return columns


def take(columns: Columns, rows: Sequence[int]) -> Columns:
    """Some rows of a table."""
    return {name: [cells[row] for row in rows] for name, cells in columns.items()}


def without(columns: Columns, prefix: str) -> Columns:
    """A table without the columns whose names begin so."""
    return {name: cells for name, cells in columns.items() if not name.startswith(prefix)}


def matrix(columns: Mapping[str, Sequence[Any]], prefix: str, experts: Sequence[str] = EXPERTS):
    """Numbers (n, n_experts) of the columns of the experts; NaN where a cell is empty."""
    return np.column_stack([np.array(columns[prefix + name], float) for name in experts])


def costs_of(columns: Columns):
    """What each answer costs: 1 for an error, and its price."""
    return 1 - matrix(columns, "correct__") + PRICE_WEIGHT * matrix(columns, "cost__")


def share_of_best(columns: Columns, chosen: Sequence[str]) -> float:
    """How often the expert is chosen that is best for the kind of the question."""
    best = [BEST[kind] for kind in columns["kind"]]
    return float(np.mean(np.array(best) == np.array(chosen)))


def chosen_cells(columns: Columns, prefix: str, chosen: Sequence[str]):
    """The number in each row of the expert that is chosen there."""
    return np.array([columns[prefix + name][row] for row, name in enumerate(chosen)], float)


def by_name(table, array, experts: Sequence[str] = EXPERTS):
    """Columns of a table's array in this order of the experts."""
    return array[:, [list(table.experts).index(name) for name in experts]]


def flat(figures: Any, path: str = "") -> dict[str, Any]:
    """Figures in dictionaries, tuples and dataclasses, each by its path, which pytest can compare."""
    if is_dataclass(figures):
        figures = asdict(figures)
    if isinstance(figures, tuple):
        figures = dict(enumerate(figures))
    if not isinstance(figures, dict):
        return {path: figures}
    found = {}
    for name, part in figures.items():
        found |= flat(part, f"{path}/{name}")
    return found

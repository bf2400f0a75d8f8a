"""Where routing helps: router minus best constant, by a column of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.data import duplicate_groups
from mild.evaluation.report.evidence import Evidence
from mild.metrics import (
    best_constant,
    chosen_costs,
    clustered_rows,
    linearised_rows,
    simultaneous_intervals,
)

__all__ = ["find_column", "groups"]

#: Columns that say where a row comes from, the first that is there.
USUAL = (
    "source", "subject", "category", "task", "dataset", "eval_name", "domain", "topic", "group",
)  # fmt: skip
FEWEST_ROWS = 20
MOST_GROUPS = 24
# A column with more values than this names rows, not groups.
MOST_VALUES = 500


def find_column(columns: Any) -> str | None:
    """Name of the usual column with two or more values, not too many; None if there is none."""
    for name in USUAL:
        if name in columns.column_names:
            values = len(columns[name].unique())
            if 2 <= values <= min(MOST_VALUES, max(2, columns.num_rows // 2)):
                return name
    return None


def groups(
    evidence: Evidence, column: str, values: Sequence[Any], constant: int, confidence: float
) -> dict[str, Any]:
    """Difference in each group, from where routing gains most to where it loses most.

    Groups in which fewer than 20 rows have a known cost are merged, and all but the 24 largest. The
    intervals hold for all groups at once: each at ``confidence ** (1 / groups)``, the rows being apart.
    Within a group equal queries count once.

    Returns
    -------
    dict with ``column``, ``merged`` (number of groups in the last one), ``confidence`` and ``rows``:
    name, rows, estimate, low, high, router, constant (mean costs), expert (cheapest in this group),
    asked (whom the router asks most), share (how often)
    """
    labels = np.array(["not said" if value is None else str(value) for value in values])
    both = np.column_stack(
        [chosen_costs(evidence.costs, evidence.chosen), evidence.costs[:, constant]]
    )
    names, place = np.unique(labels, return_inverse=True)
    known = ~np.isnan(both)
    sizes = np.array([known[place == g].sum(axis=0).min() for g in range(len(names))])
    order = np.argsort(-sizes, kind="stable")
    own = [int(g) for g in order if sizes[g] >= FEWEST_ROWS]
    # One group too many is better shown than merged alone.
    own = own if len(own) <= MOST_GROUPS + 1 else own[:MOST_GROUPS]
    rest = [g for g in range(len(names)) if g not in own]
    parts = [(str(names[g]), np.flatnonzero(place == g)) for g in own]
    left = np.flatnonzero(np.isin(place, rest))
    merged = len(rest)
    if merged and known[left].sum(axis=0).min() >= 2:
        name = str(names[rest[0]]) if merged == 1 else f"{merged} smaller groups"
        parts.append((name, left))
    each = confidence ** (1 / max(1, len(parts)))
    rows = [_row(evidence, name, index, both[index], each) for name, index in parts]
    rows.sort(key=lambda row: float(row["estimate"]))
    return {
        "column": column,
        "merged": merged if merged > 1 else 0,
        "confidence": confidence,
        "rows": rows,
    }


def _row(
    evidence: Evidence, name: str, index: IntArray, both: FloatArray, confidence: float
) -> dict[str, Any]:
    rows = linearised_rows(both)
    difference: FloatArray = rows[:, :1] - rows[:, 1:]
    if evidence.queries is not None:
        clustered = clustered_rows(
            difference, duplicate_groups([evidence.queries[i] for i in index])
        )
        # A single query, however often it stands there, has no spread of its own.
        difference = clustered if len(clustered) > 1 else difference
    draws = max(20_000, int(np.ceil(20 / (1 - confidence))))
    found = simultaneous_intervals(difference, confidence, 0, n_draws=draws)
    asked = np.bincount(evidence.chosen[index], minlength=len(evidence.expert_names))
    return {
        "name": name,
        "rows": len(index),
        "estimate": float(found.estimate[0]),
        "low": float(found.low[0]),
        "high": float(found.high[0]),
        "router": float(rows[:, 0].mean()),
        "constant": float(rows[:, 1].mean()),
        "expert": evidence.expert_names[best_constant(evidence.costs[index]).expert],
        "asked": evidence.expert_names[int(asked.argmax())],
        "share": float(asked.max() / len(index)),
    }

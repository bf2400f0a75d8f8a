"""An evaluation as one JSON-ready document: every number that a report shows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mild._version import __version__
from mild.artifact import Router, fingerprint
from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable
from mild.evaluation import sections
from mild.evaluation.figures import RoutingFigures, routing_figures, task_figures
from mild.metrics.outcomes import Outcomes
from mild.report.document import SCHEMA, Document
from mild.tuning.tasks import Task
from mild.tuning.training_rows import constant_at_fit, training_overlap

# Facts about a router that have a place of their own in a report, or are of no use there.
ELSEWHERE = ("cost", "target", "table", "schema")


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with known outcomes, and the router that is judged by them."""

    router: Router
    costs: FloatArray  # (n_samples, n_experts), NaN where an expert was not asked
    X: Any  # (n_samples, n_features) features of the inputs
    chosen: IntArray  # (n_samples,) the router's choices
    task: Task | None = None  # None if only costs are known

    def figures(self, confidence: float, seed: int) -> RoutingFigures:
        """The figures of the router's choices."""
        names, fitted = self.router.expert_names, constant_at_fit(self.router)
        if self.task is None:
            outcomes = Outcomes(self.costs)
            return routing_figures(
                outcomes, self.chosen, names, confidence=confidence, seed=seed, fitted=fitted
            )
        return task_figures(self.task, self.chosen, confidence, seed, fitted)

    @property
    def overlap(self) -> dict[str, Any]:
        """Whether the router was fitted on these rows, and how many of their queries."""
        table = None if self.task is None else self.task.table
        return training_overlap(self.router, table, self.costs, self.X)


def build_document(
    judged: JudgedRows,
    found: RoutingFigures,
    *,
    group: str | None = None,
    comparison: Mapping[str, Any] | None = None,
    split: str | None = None,
    title: str = "Router report",
    queries: int = 20,
    seed: int = 0,
) -> Document:
    """Every number of a report on a router; the result is ready for JSON.

    ``group`` names the column of the section on groups, by default that of the task, that of ``balance``,
    or source, subject, ... if there. ``comparison`` is ``Comparison.as_dict()`` on the same table,
    ``split`` how the rows were chosen, ``queries`` how many with the largest regret are shown; 0 leaves
    all texts out.
    """
    router, task, X = judged.router, judged.task, judged.X
    names, table = list(router.expert_names), None if task is None else task.table
    cost = {} if task is None else task.cost
    balance = None if task is None else task.balance
    shares = router.predict_proba(X).astype(np.float64)
    strata = None if task is None else task.strata
    routed = sections.RoutedRows(names, judged.costs, judged.chosen, shares, strata=strata)
    column, labels, groups = None, None, None
    if task is not None and table is not None:
        routed, groups = routed.with_table(table), task.groups
        column = group or task.group_column or balance
        column = column or sections.find_group_column(table.columns)
        labels = None if column is None else table.column(column)
    if not found.rows.all():
        routed, X = routed.take(found.rows), X[found.rows]
        groups = None if groups is None else groups[found.rows]
        if labels is not None:
            labels = [labels[i] for i in np.flatnonzero(found.rows)]
    confidence = found.verdict.confidence
    constant = found.summary["constant_expert"]
    n = len(routed.costs)
    mark = fingerprint(judged.X, judged.costs) if table is None else table.fingerprint()
    form, scale, strength = sections.reward_form(router.info.estimator)
    return document_header("evaluation", title, names, cost) | {
        "rows": n,
        "balance": balance,
        "left_out": found.left_out,
        "verdict": found.verdict.as_dict(),
        "figures": found.summary
        | {
            "constant_losses": [
                None if np.isnan(loss) else float(loss) for loss in found.constant_losses
            ],
            "means": {
                "router": routed.means(routed.chosen),
                "constant": routed.means(np.full(n, constant)),
                "oracle": routed.means(routed.outcomes.oracle()),
            },
            "baselines": found.baselines,
        },
        "frontier": sections.frontier(
            routed,
            sections.operating_points(router, X, routed, cost),
            sections.method_points(comparison, names, cost),
            sections.target_limits(routed, router.info.target),
        ),
        "calibration": sections.calibration(routed, form, scale, confidence, groups, strength),
        "groups": None
        if column is None or labels is None
        else sections.groups(routed, column, labels, constant, confidence),
        "regrets": sections.regrets(routed, queries, labels),
        "comparison": comparison,
        **judged.overlap,
        "router": [[name, fact] for name, fact in router.facts.items() if name not in ELSEWHERE],
        "data": data_entries(names, table, n, mark, cost.get("words"), split),
        "settings": [
            ["confidence", f"{confidence * 100:g} %"],
            ["seed", str(seed)],
            *([] if balance is None else [["means", f"over the values of {balance}"]]),
        ],
    }


def document_header(
    kind: str, title: str, names: Sequence[str], cost: Mapping[str, Any]
) -> Document:
    """What every document has."""
    return {
        "schema": SCHEMA,
        "kind": kind,
        "title": title,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "mild": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "experts": list(names),
        "cost": dict(cost) or None,
    }


def data_entries(
    experts: Sequence[str],
    table: OutcomeTable | None,
    rows: int,
    mark: str,
    words: str | None,
    split: str | None,
) -> list[list[str]]:
    """The table, the rows that were used, the cost, the fingerprint."""
    entries: dict[str, Any] = {
        "rows judged by": f"{rows:,}",
        "split": split,
        "experts": ", ".join(experts),
        "table": None if table is None else table.explanation or None,
        "cost": words,
        "fingerprint": mark,
    }
    found = [] if table is None else [[f.kind, f.sentence] for f in table.findings]
    return [[key, str(value)] for key, value in entries.items() if value is not None] + found

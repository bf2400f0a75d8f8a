"""An evaluation as one JSON-ready document: every number that a report shows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mild._version import __version__
from mild.artifact import Router
from mild.core.arrays import FloatArray, IntArray, first_columns
from mild.data import OutcomeTable
from mild.evaluation.cascades import cascade_figures, cascade_outcomes
from mild.evaluation.figures import RoutingFigures, routing_figures
from mild.metrics.outcomes import Outcomes
from mild.policies.cascade import CascadeRun
from mild.report.document import SCHEMA, Document
from mild.tuning.tasks import Task
from mild.tuning.training_rows import constant_at_fit, training_overlap

# Facts about a router that have a place of their own in a report, or are of no use there.
ELSEWHERE = ("cost", "table", "schema")


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with known outcomes, and the router that is judged by them."""

    router: Router
    costs: FloatArray  # (n_samples, n_experts), NaN where an expert was not asked
    X: Any  # (n_samples, n_features) features of the inputs
    # (n_samples,) the router's choices; of a cascade, the column behind those of the experts
    chosen: IntArray
    task: Task
    # the table before rows that the router was trained on were left out; None if none were
    given: OutcomeTable | None = None
    seen_left_out: int = 0  # number of these rows
    run: CascadeRun | None = None  # what a cascade does with the rows; None for another router

    @property
    def table(self) -> OutcomeTable:
        """The table that was given."""
        return self.task.table if self.given is None else self.given

    @property
    def outcomes(self) -> Outcomes:
        """What is known of every expert."""
        task = self.task
        if self.run is None:
            return task.outcomes
        return cascade_outcomes(task.outcomes, task.table, task.terms, self.run)

    def figures(self, confidence: float, seed: int) -> RoutingFigures:
        """The figures of the router's choices."""
        names, fitted = self.router.expert_names, constant_at_fit(self.router)
        target = self.router.info.target
        if target is not None and target.best_expert in names:
            fitted = names.index(target.best_expert)
        task, known = self.task, self.outcomes
        about = (task.groups, task.counted, confidence, seed, fitted, target)
        found = routing_figures(known, self.chosen, names, *about)
        if self.run is None:
            return found
        direct_router = self.router.direct
        direct = direct_router.predict(direct_router.own_columns(self.X))
        judged = (known, found.rows, direct, confidence, seed)
        own, means = cascade_figures(self.run, task, *judged, target is not None)
        line = {"key": "direct", "expert": None, **means}
        lines = [found.baselines[0], line, *found.baselines[1:]]
        return replace(found, baselines=lines, cascade=own)

    @property
    def overlap(self) -> dict[str, Any]:
        """Whether the router was fitted on these rows, and how many of their queries."""
        features = first_columns(self.X, self.router.n_features)
        return training_overlap(self.router, self.table, self.costs, features, self.seen_left_out)


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
    fingerprint: str,
    words: str | None,
    split: str | None,
) -> list[list[str]]:
    """The table, the rows that were used, the cost, the fingerprint."""
    entries: dict[str, Any] = {
        "rows evaluated": f"{rows:,}",
        "split": split,
        "experts": ", ".join(experts),
        "table": None if table is None else table.explanation or None,
        "cost": words,
        "fingerprint": fingerprint,
    }
    found = [] if table is None else [[f.kind, f.sentence] for f in table.findings]
    return [[key, str(value)] for key, value in entries.items() if value is not None] + found

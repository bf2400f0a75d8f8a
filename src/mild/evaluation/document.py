"""An evaluation as one JSON-ready document, with all numbers that a report shows."""

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
from mild.evaluation.cascades import CascadeComparison, cascade_outcomes
from mild.evaluation.figures import RoutingFigures, routing_figures
from mild.metrics.results import Results
from mild.policies.cascade import CascadeRun
from mild.tuning.tasks import Task
from mild.tuning.training_rows import constant_at_fit, training_overlap

# Facts about a router that have a place of their own in a report, or are of no use there.
ELSEWHERE = ("cost", "table", "schema")


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with known outcomes, and the router that is judged on them."""

    router: Router
    costs: FloatArray  # (n_samples, n_experts), NaN where an expert was not asked
    X: Any  # (n_samples, n_features) features of the inputs
    # (n_samples,) the router's choices; for a cascade, the column after those of the experts
    chosen: IntArray
    task: Task
    run: CascadeRun | None = None  # what a cascade does with the rows; None for another router

    @property
    def outcomes(self) -> Results:
        """Outcomes of the experts, with a column for a cascade."""
        task = self.task
        if self.run is None:
            return task.outcomes
        return cascade_outcomes(task.outcomes, task.table, task.terms, self.run)

    def figures(self, confidence: float, seed: int) -> RoutingFigures:
        """Compute the figures of the router's choices, beside what they are compared with."""
        outcomes = self.outcomes
        target = self.router.info.target
        figures = routing_figures(
            outcomes,
            self.chosen,
            self.router.experts,
            self.task.groups,
            self.task.unit,
            confidence,
            seed,
            self._best_at_fit(),
            target,
        )
        if self.run is None:
            return figures
        direct_router = self.router.direct
        direct = direct_router.predict(direct_router.own_columns(self.X))
        comparison = CascadeComparison.of(self.run, figures.rows, outcomes, direct, self.task)
        direct_line = {"key": "direct", "expert": None, **comparison.direct_means}
        return replace(
            figures,
            baselines=[figures.baselines[0], direct_line, *figures.baselines[1:]],
            cascade=comparison.figures(confidence, seed, has_target=target is not None),
        )

    def _best_at_fit(self) -> int | None:
        """Return the single expert that was best when the router was fitted or tuned for a target."""
        names = self.router.experts
        target = self.router.info.target
        if target is not None and target.best_expert in names:
            return names.index(target.best_expert)
        return constant_at_fit(self.router)

    @property
    def overlap(self) -> dict[str, Any]:
        """Whether the router was fitted on these rows, and how many of their queries."""
        features = first_columns(self.X, self.router.n_features)
        return training_overlap(self.router, self.task.table, self.costs, features)


def document_header(title: str, names: Sequence[str], cost: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that say what the document is about and what made it."""
    return {
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


def data_entries(experts: Sequence[str], task: Task, rows: int) -> list[list[str]]:
    """Return what a report says about its data: rows, experts, cost, fingerprint, findings."""
    table = task.table
    entries = [["rows evaluated", f"{rows:,}"], ["experts", ", ".join(experts)]]
    if table.layout:
        entries.append(["table", table.layout])
    if "words" in task.cost:
        entries.append(["cost", task.cost["words"]])
    entries.append(["fingerprint", table.fingerprint()])
    entries.extend([finding.kind, finding.sentence] for finding in table.findings)
    return entries

"""An evaluation as one JSON-ready document: every number that a report shows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mild._version import __version__
from mild.artifact import Router
from mild.artifact.info import EstimatorInfo
from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable
from mild.evaluation.figures import RoutingFigures, routing_figures, task_figures
from mild.metrics.outcomes import Outcomes
from mild.report.document import SCHEMA, Document
from mild.tuning.tasks import Task
from mild.tuning.training_rows import constant_at_fit, training_overlap

# Parameters of the fit that the report lists; the others are in router.json.
LISTED_PARAMS = (
    "loss", "rewards", "margins", "counts", "surrogate", "alpha", "decision", "n_neighbors",
    "families", "cv", "safe", "price_weight", "error_head", "hidden_sizes", "epochs", "random_state",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with known outcomes, and the router that is judged by them."""

    router: Router
    costs: FloatArray  # (n_samples, n_experts), NaN where an expert was not asked
    X: Any  # (n_samples, n_features) features of the inputs
    chosen: IntArray  # (n_samples,) the router's choices
    task: Task | None = None  # None if only costs are known

    @property
    def outcomes(self) -> Outcomes:
        """What is known of every expert."""
        return Outcomes(self.costs) if self.task is None else self.task.outcomes

    def figures(self, confidence: float, seed: int) -> RoutingFigures:
        """The figures of the router's choices."""
        names, fitted = self.router.expert_names, constant_at_fit(self.router)
        if self.task is not None:
            return task_figures(self.task, self.chosen, confidence, seed, fitted)
        return routing_figures(
            self.outcomes, self.chosen, names, confidence=confidence, seed=seed, fitted=fitted
        )

    @property
    def overlap(self) -> dict[str, Any]:
        """Whether the router was fitted on these rows, and how many of their queries."""
        table = None if self.task is None else self.task.table
        return training_overlap(self.router, table, self.costs, self.X)


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


def router_entries(router: Router) -> list[list[str]]:
    """Kind, parameters, margins and history of a router."""
    info = router.info
    estimator = info.estimator or EstimatorInfo("", {})
    params = estimator.params or {}
    inner = params.get("estimator")
    if isinstance(inner, Mapping):
        params = {**(inner.get("params") or {}), **params}
    if isinstance(params.get("cv"), (list, tuple)):
        params = {**params, "cv": f"{len(params['cv'])} folds"}
    margins = router.margins
    data = info.data
    entries: dict[str, Any] = {
        "kind": info.kind or type(router.policy).__name__,
        "fitted as": estimator.class_name or None,
        "family found": estimator.best_family,
        **{f"found: {key}": value for key, value in (estimator.best_params or {}).items()},
        **{key: params[key] for key in LISTED_PARAMS if params.get(key) is not None},
        "margins in use": margins and dict(zip(router.expert_names, margins, strict=False)),
        **_trust(router),
        "features": router.n_features,
        "text features": None if router.text is None else router.text.kind,
        "fitted on": data and f"{data.rows:,} rows, fingerprint {data.fingerprint[:16]}…",
        "written": info.created,
        "by mild": info.mild_version,
    }
    return [[key, _plain_text(value)] for key, value in entries.items() if value is not None]


def _trust(router: Router) -> dict[str, str]:
    """How far expected costs can be trusted."""
    entries = {}
    found = router.info.calibration
    if found is not None:
        before, after = found.squared_error
        use = "used for decisions" if found.decides else "shown, not used for decisions"
        entries["calibration"] = (
            f"held-out squared error {before:.4g} before, {after:.4g} after; {use}"
        )
    if router.novelty is not None:
        names = router.expert_names
        means = dict(zip(names, map(float, router.novelty.means[0]), strict=True))
        what = "mean error" if len(router.novelty.means) > 1 else "mean cost"
        entries["estimate for novel inputs"] = f"the {what} of each expert: {_plain_text(means)}"
    return entries


def _plain_text(value: Any) -> str:
    """A setting without the brackets of lists and objects."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain_text(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
        "rows judged by": f"{rows:,}",
        "split": split,
        "experts": ", ".join(experts),
        "table": None if table is None else table.explanation or None,
        "cost": words,
        "fingerprint": fingerprint,
    }
    found = [] if table is None else [[f.kind, f.sentence] for f in table.findings]
    return [[key, str(value)] for key, value in entries.items() if value is not None] + found

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
from mild.artifact.info import EstimatorInfo
from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable
from mild.evaluation import sections
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
        "router": _router_entries(router),
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


def _router_entries(router: Router) -> list[list[str]]:
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
        "best family": estimator.best_family,
        **{f"best {key}": value for key, value in (estimator.best_params or {}).items()},
        **{key: params[key] for key in LISTED_PARAMS if params.get(key) is not None},
        "margins in use": margins and dict(zip(router.expert_names, margins, strict=False)),
        **_trust(router),
        "features": router.n_features,
        "text features": None if router.text is None else router.text.kind,
        "fitted on": data and f"{data.rows:,} rows, fingerprint {data.fingerprint[:16]}…",
        "saved": info.created,
        "saved by mild": info.mild_version,
    }
    return [[key, _plain_text(value)] for key, value in entries.items() if value is not None]


def _trust(router: Router) -> dict[str, str]:
    """How far expected costs can be trusted."""
    entries = {}
    found = router.info.calibration
    if found is not None:
        before, after = found.squared_error
        use = "used for decisions" if found.decides else "shown only, not used for decisions"
        entries["calibration"] = (
            f"held-out squared error {before:.4g} before, {after:.4g} after; {use}"
        )
    if router.novelty is not None:
        names = router.expert_names
        means = dict(zip(names, map(float, router.novelty.means[0]), strict=True))
        what = "error" if len(router.novelty.means) > 1 else "cost"
        entries[f"expected {what} on novel inputs"] = _plain_text(means)
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
    mark: str,
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
        "fingerprint": mark,
    }
    found = [] if table is None else [[f.kind, f.sentence] for f in table.findings]
    return [[key, str(value)] for key, value in entries.items() if value is not None] + found

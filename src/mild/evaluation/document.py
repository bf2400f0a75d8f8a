"""An evaluation as one JSON-ready document: every number that a report shows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild._version import __version__
from mild.artifact import Router, fingerprint
from mild.core.arrays import IntArray, invalid
from mild.data import OutcomeTable, duplicate_groups
from mild.errors import listed
from mild.evaluation import sections
from mild.evaluation.comparison import Comparison
from mild.evaluation.evaluate import evaluate_outcomes
from mild.metrics.rows import evaluated_costs
from mild.report.document import SCHEMA, Document
from mild.tuning.tasks import constant_at_fit, training_overlap

# Parameters of the fit that the report lists; the others are in router.json.
LISTED_PARAMS = (
    "loss", "rewards", "margins", "counts", "surrogate", "alpha", "decision", "n_neighbors",
    "families", "cv", "safe", "price_weight", "error_head", "hidden_sizes", "epochs", "random_state",
)  # fmt: skip


def build_document(
    router: Router,
    table: OutcomeTable | None,
    costs: ArrayLike,
    inputs: Any,
    *,
    bundle: ArrayLike | None = None,
    group: str | None = None,
    balance: str | None = None,
    strata: IntArray | None = None,
    comparison: Mapping[str, Any] | None = None,
    cost: Mapping[str, Any] | None = None,
    split: str | None = None,
    title: str = "Router report",
    confidence: float = 0.95,
    queries: int = 20,
    seed: int = 0,
) -> Document:
    """Evaluate a router on rows whose outcomes are known; the result is ready for JSON.

    ``table`` has the router's experts (``with_experts``), or is None if only ``costs`` are known;
    ``inputs`` are features (n_samples, n_features). Rows of one ``bundle`` count as one in the
    verdict's interval, by default equal queries. ``group`` names the column of the section on groups,
    by default ``balance``, or source, subject, ... if there. With ``strata`` (n_samples,), numbers of
    the values of the column ``balance``, figures and frontier are means over these values.
    ``comparison`` is ``Comparison.as_dict()`` on the same table, ``cost`` as ``Task.cost``, ``split``
    how the rows were chosen, ``queries`` how many with the largest regret are shown; 0 leaves all
    texts out.
    """
    cost = dict(cost or {})
    names = list(router.expert_names)
    X = inputs if hasattr(inputs, "tocsr") else np.asarray(inputs)
    known = evaluated_costs(costs).astype(np.float64, copy=False)
    if table is not None and table.expert_names != names:
        raise invalid(
            "table",
            f"must have the router's experts, {listed(names, 6)}; got "
            f"{listed(table.expert_names, 6)}. Select them with with_experts.",
        )
    if known.shape != (X.shape[0], len(names)):
        shape = (X.shape[0], len(names))
        rule = f"must have shape (n_samples, n_experts) = {shape}; got {known.shape}."
        raise invalid("costs", rule)
    units = None if bundle is None else np.asarray(bundle)
    if units is None and table is not None and any(table.queries):
        units = duplicate_groups(table.queries)
    overlap = training_overlap(router, table, known, X)
    mark = fingerprint(X, known) if table is None else table.fingerprint()
    shares = router.predict_proba(X).astype(np.float64)
    routed = sections.RoutedRows(names, known, router.predict(X), shares, strata=strata)
    if table is not None:
        routed = routed.with_table(table)
    found = evaluate_outcomes(
        routed.outcomes,
        routed.chosen,
        names,
        units,
        "query" if bundle is None or group is None else "group",
        confidence,
        seed,
        constant_at_fit(router),
    )
    column, labels = None, None
    if table is not None:
        column = group or balance or sections.find_group_column(table.columns)
        labels = None if column is None else table.column(column)
    if not found.rows.all():
        routed, X = routed.take(found.rows), X[found.rows]
        units = None if units is None else units[found.rows]
        if labels is not None:
            labels = [labels[i] for i in np.flatnonzero(found.rows)]
    constant = found.summary["constant_expert"]
    n = len(routed.costs)
    form, scale, strength = sections.reward_form(router.metadata or {})
    return _header("evaluation", title, names, cost) | {
        "rows": n,
        "balance": balance,
        "left_out": found.left_out,
        "verdict": {
            key: None if isinstance(value, float) and np.isnan(value) else value
            for key, value in found.as_dict()["verdict"].items()
        },
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
            sections.target_limits(routed, router.metadata.get("notes") or {}),
        ),
        "calibration": sections.calibration(routed, form, scale, confidence, units, strength),
        "groups": None
        if column is None or labels is None
        else sections.groups(routed, column, labels, constant, confidence),
        "regrets": sections.regrets(routed, queries, labels),
        "comparison": comparison,
        **overlap,
        "router": _router_entries(router),
        "data": _data_entries(names, table, n, mark, cost.get("words"), split),
        "settings": [
            ["confidence", f"{confidence * 100:g} %"],
            ["seed", str(seed)],
            *([] if balance is None else [["means", f"over the values of {balance}"]]),
        ],
    }


def comparison_document(
    comparison: Comparison,
    *,
    cost: Mapping[str, Any] | None = None,
    table: OutcomeTable | None = None,
    settings: Mapping[str, str] | None = None,
    title: str = "Comparison of routers",
) -> Document:
    """A comparison alone: its statement, its methods, and the shares of the chosen one."""
    cost = dict(cost or {})
    names = list(comparison.expert_names)
    content = comparison.as_dict()
    row, constant = comparison.row(comparison.chosen), comparison.row("constant")
    chosen = next(one for one in content["methods"] if one["method"] == comparison.chosen)
    best = int(np.argmax(constant.shares))
    splits = "1 split" if comparison.n_splits == 1 else f"{comparison.n_splits} splits"
    return _header("comparison", title, names, cost) | {
        "rows": comparison.n_rows,
        "balance": (settings or {}).get("balance"),
        "left_out": comparison.not_compared,
        "verdict": content["statement"]
        | {"constant": names[best], "confidence": comparison.confidence},
        "figures": {
            "loss": row.mean,
            "constant_loss": constant.mean,
            "constant_expert": best,
            "oracle_loss": comparison.oracle,
            "headroom": comparison.headroom,
            "headroom_captured": comparison.captured(row),
            "shuffled_control": row.control,
            "shares": chosen["shares"],
            "oracle_shares": content["oracle_shares"],
            "recall": chosen["recall"],
            "baselines": comparison.baselines,
            "means": {
                name: {
                    "dollars": None if one.price is None else 1000 * one.price,
                    "quality": one.accuracy,
                }
                for name, one in (("router", row), ("constant", constant))
            },
        },
        "comparison": content,
        "data": _data_entries(
            names,
            table,
            comparison.n_rows,
            "not taken" if table is None else table.fingerprint(),
            cost.get("words"),
            f"{splits}, {comparison.n_train:,.0f} rows to train on and {comparison.n_test:,.0f} to test on",
        ),
        "settings": [
            ["confidence", f"{comparison.confidence * 100:g} %"],
            *([key, str(value)] for key, value in (settings or {}).items()),
        ],
    }


def _header(kind: str, title: str, names: Sequence[str], cost: Mapping[str, Any]) -> Document:
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
    metadata: Mapping[str, Any] = router.metadata or {}
    estimator = metadata.get("estimator") or {}
    params = estimator.get("params") or {}
    inner = params.get("estimator")
    if isinstance(inner, Mapping):
        params = {**(inner.get("params") or {}), **params}
    if isinstance(params.get("cv"), (list, tuple)):
        params = {**params, "cv": f"{len(params['cv'])} folds"}
    # Margins are those of the policy that decides in the end.
    policy: Any = router.policy
    while policy is not None and not hasattr(policy, "decoder"):
        policy = getattr(policy, "inner", None) or getattr(policy, "final", None)
    margins = None if policy is None else map(float, policy.decoder.margins)
    data = metadata.get("data") or {}
    mark = f"{data.get('rows', 0):,} rows, fingerprint {str(data.get('fingerprint', ''))[:16]}…"
    entries: dict[str, Any] = {
        "kind": metadata.get("kind") or type(router.policy).__name__,
        "fitted as": estimator.get("class"),
        "family found": estimator.get("best_family"),
        **{f"found: {key}": value for key, value in (estimator.get("best_params") or {}).items()},
        **{key: params[key] for key in LISTED_PARAMS if params.get(key) is not None},
        "margins in use": margins and dict(zip(router.expert_names, margins, strict=False)),
        **_trust(router),
        "features": router.n_features,
        "text features": None if router.text is None else router.text.kind,
        "fitted on": mark if data else None,
        "written": metadata.get("created"),
        "by mild": metadata.get("mild_version"),
    }
    return [[key, _plain_text(value)] for key, value in entries.items() if value is not None]


def _trust(router: Router) -> dict[str, str]:
    """How far expected costs can be trusted."""
    entries = {}
    found = (router.metadata.get("notes") or {}).get("calibration")
    if found:
        before, after = found["squared_error"]
        use = "used for decisions" if found["decides"] else "shown, not used for decisions"
        entries["calibration"] = (
            f"held-out squared error {before:.4g} before, {after:.4g} after; {use}"
        )
    if router.novelty is not None:
        names = router.expert_names
        means = dict(zip(names, map(float, router.novelty.means[0]), strict=True))
        what = "mean error" if len(router.novelty.means) > 1 else "mean cost"
        entries["of novel inputs is expected"] = f"the {what} of each expert: {_plain_text(means)}"
    return entries


def _plain_text(value: Any) -> str:
    """A setting without the brackets of lists and objects."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain_text(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _data_entries(
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

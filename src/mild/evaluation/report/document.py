"""An evaluation as one JSON-ready object: every number that a report shows, and no drawing."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.artifact import LoadedRouter, fingerprint
from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable, duplicate_groups
from mild.errors import InvalidInputError
from mild.evaluation.comparison import Comparison
from mild.evaluation.report.calibration import calibration, reward_form
from mild.evaluation.report.evidence import Evidence, judge, same_experts
from mild.evaluation.report.frontier import frontier, method_points, operating_points
from mild.evaluation.report.groups import find_column, groups
from mild.evaluation.report.regrets import regrets
from mild.metrics import common_rows

__all__ = ["SCHEMA", "build_document", "comparison_document"]

SCHEMA = 1

Document = dict[str, Any]
Facts = list[list[str]]

# What a fit is told and a reader wants to know; the other parameters are in router.json.
TOLD = (
    "loss", "rewards", "margins", "counts", "surrogate", "alpha", "decision", "n_neighbors",
    "families", "cv", "safe", "price_weight", "error_head", "hidden_sizes", "epochs", "random_state",
)  # fmt: skip


def build_document(
    router: Any,
    table: OutcomeTable | None,
    costs: ArrayLike,
    inputs: Any,
    *,
    rows: ArrayLike | None = None,
    bundle: ArrayLike | None = None,
    group: str | None = None,
    comparison: Comparison | Mapping[str, Any] | None = None,
    cost: Mapping[str, Any] | None = None,
    split: str | None = None,
    settings: Mapping[str, str] | None = None,
    title: str = "Router report",
    confidence: float = 0.95,
    queries: int = 20,
    seed: int = 0,
) -> Document:
    """Judge a router on rows whose outcomes are known.

    Parameters
    ----------
    router : LoadedRouter, or anything with ``expert_names``, ``predict`` and ``predict_proba``
    table : OutcomeTable of the same experts, in any order; None where only costs are known
    costs : (n_samples, n_experts) in the table's order of experts, or the router's without a table
    inputs : (n_samples, n_features) features, or texts for a router that has text features
    rows : numbers or mask of the rows to judge by; None for all
    bundle : (n_samples,) rows that are drawn together for the verdict's interval; None for those of the
        same query, otherwise groups where ``group`` is given, and equal queries where not
    group : column of the table to say where routing helps; None for source, subject, ... if there
    comparison : all methods on splits of the same table, to be shown beside; itself or its ``as_dict()``
    cost : as ``mild data describe`` gives it: words, beta, price_weight, latency_weight
    split : how the rows were chosen, in words
    settings : further facts to be listed
    confidence : of every interval
    queries : how many of the most regretted queries to show; 0 leaves all texts out
    seed : of the resampling

    Returns
    -------
    dict that ``json.dumps(..., allow_nan=False)`` takes

    Examples
    --------
    >>> import numpy as np
    >>> from mild.artifact import LoadedRouter
    >>> from mild.policies import LinearCostPolicy
    >>> policy = LinearCostPolicy(np.array([[1.0], [-1.0]]), np.array([0.5, 0.5]))
    >>> X = np.array([[-0.4], [-0.2], [0.3], [0.5]])
    >>> router = LoadedRouter(policy, ["small", "large"])
    >>> document = build_document(router, None, [[0, 1], [0, 1], [1, 0], [1, 0]], X)
    >>> document["figures"]["loss"], document["figures"]["constant_loss"]
    (0.0, 0.5)
    """
    settled = dict(cost or {})
    known: FloatArray = np.asarray(costs, dtype=np.float64)
    names = list(router.expert_names)
    X = _features(router, inputs)
    if table is not None:
        table, known = same_experts(names, table, known)
    if len(known) != X.shape[0]:
        raise InvalidInputError(
            f"costs and inputs must have as many rows; got {len(known)} and {X.shape[0]}."
        )
    together = _bundle(table, bundle)
    if rows is not None:
        index = np.arange(len(known))[np.asarray(rows)]
        known, X = known[index], X[index]
        table = None if table is None else table.take(index)
        together = None if together is None else together[index]
    mark = table_mark = fingerprint(X, known)
    if table is not None:
        table_mark = table.fingerprint()
    evidence = Evidence.gather(names, known, router.predict(X), _probabilities(router, X), table)
    unit = "query" if bundle is None or group is None else "group"
    verdict, figures = judge(evidence, confidence, seed, together, unit)
    common = common_rows(evidence.costs, evidence.chosen)
    column, labels = _labels(table, group)
    if common.left_out:
        evidence, X = evidence.take(common.rows), X[common.rows]
        together = None if together is None else together[common.rows]
        if labels is not None:
            labels = [labels[i] for i in np.flatnonzero(common.rows)]
    sweep = operating_points(router, X, evidence, settled)
    metadata = getattr(router, "metadata", None) or {}
    form, scale, strength = reward_form(metadata)
    parted = None
    if column is not None and labels is not None:
        parted = groups(evidence, column, labels, figures["constant_expert"], confidence)
    beside = comparison.as_dict() if isinstance(comparison, Comparison) else comparison
    document = _frame("evaluation", title, names, settled)
    document |= {
        "rows": evidence.rows,
        "left_out": common.sentence,
        "verdict": verdict,
        "figures": figures,
        "frontier": frontier(evidence, sweep, method_points(beside, names, settled)),
        "calibration": calibration(evidence, form, scale, confidence, together, strength),
        "groups": parted,
        "regrets": regrets(evidence, queries, labels),
        "comparison": None if beside is None else dict(beside),
        "same_data_as_fit": not {mark, table_mark}.isdisjoint(_fitted_on(metadata)),
        "seen_in_fit": _seen_in_fit(router, table),
        "router": _router_facts(router),
        "data": _data_facts(
            names,
            table,
            evidence.rows,
            table_mark,
            settled.get("words"),
            split,
        ),
        "settings": [
            ["confidence", f"{confidence * 100:g} %"],
            ["seed", str(seed)],
            *([key, str(value)] for key, value in (settings or {}).items()),
        ],
    }
    return document


def comparison_document(
    comparison: Comparison,
    *,
    cost: Mapping[str, Any] | None = None,
    table: OutcomeTable | None = None,
    settings: Mapping[str, str] | None = None,
    title: str = "Comparison of routers",
) -> Document:
    """A comparison alone: its statement, its methods, and whom the chosen one asks."""
    settled = dict(cost or {})
    row, constant = comparison.row(comparison.chosen), comparison.row("constant")
    names = list(comparison.expert_names)
    content = comparison.as_dict()
    chosen = next(one for one in content["methods"] if one["method"] == comparison.chosen)
    best = int(np.argmax(constant.shares))
    document = _frame("comparison", title, names, settled)
    document |= {
        "rows": comparison.n_rows,
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
            "means": {
                "router": {"dollars": None if row.price is None else 1000 * row.price},
                "constant": {"dollars": None if constant.price is None else 1000 * constant.price},
            },
        },
        "comparison": content,
        "data": _data_facts(
            names,
            table,
            comparison.n_rows,
            "not taken" if table is None else table.fingerprint(),
            settled.get("words"),
            f"{'1 split' if comparison.n_splits == 1 else f'{comparison.n_splits} splits'}, "
            f"{comparison.n_train:,.0f} rows to train on and "
            f"{comparison.n_test:,.0f} to test on",
        ),
        "settings": [
            ["confidence", f"{comparison.confidence * 100:g} %"],
            *([key, str(value)] for key, value in (settings or {}).items()),
        ],
    }
    return document


def _frame(kind: str, title: str, names: Sequence[str], cost: Mapping[str, Any]) -> Document:
    """What every document has."""
    return {
        "schema": SCHEMA,
        "kind": kind,
        "title": title,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "experts": list(names),
        "cost": dict(cost) or None,
    }


def _features(router: Any, inputs: Any) -> Any:
    """Features as they are, or made of texts by the router's own step."""
    texts = isinstance(inputs, (list, tuple)) and len(inputs) > 0 and isinstance(inputs[0], str)
    if not texts:
        return inputs if hasattr(inputs, "tocsr") else np.asarray(inputs)
    step = getattr(router, "text", None)
    if step is None:
        raise InvalidInputError(
            "inputs must be numbers: this router has no text features; it was fitted on "
            f"{getattr(router, 'n_features', 'its own')} of them."
        )
    return step.transform(inputs)


def _probabilities(router: Any, X: Any) -> FloatArray | None:
    return router.predict_proba(X) if hasattr(router, "predict_proba") else None


def _labels(table: OutcomeTable | None, group: str | None) -> tuple[str | None, list[Any] | None]:
    """The column that says where rows come from, and its values."""
    if table is None:
        return None, None
    column = find_column(table.columns) if group is None else group
    return column, None if column is None else table.column(column)


def _bundle(table: OutcomeTable | None, bundle: ArrayLike | None) -> IntArray | None:
    """Rows that count once: as told, or those with the same query."""
    if bundle is not None:
        return np.asarray(bundle)
    if table is None or not any(table.queries):
        return None
    return duplicate_groups(table.queries)


def _router_facts(router: Any) -> Facts:
    """Kind, parameters, margins and history of a router, as words."""
    metadata: Mapping[str, Any] = getattr(router, "metadata", None) or {}
    estimator = metadata.get("estimator") or {}
    params = estimator.get("params") or {}
    inner = params.get("estimator")
    if isinstance(inner, Mapping):
        params = {**(inner.get("params") or {}), **params}
    policy = getattr(router, "policy", None)
    facts: dict[str, Any] = {
        "kind": metadata.get("kind") or type(policy or router).__name__,
        "fitted as": estimator.get("class"),
        "family found": estimator.get("best_family"),
        **{f"found: {key}": value for key, value in (estimator.get("best_params") or {}).items()},
        **{key: _told(key, params[key]) for key in TOLD if params.get(key) is not None},
        "margins in use": _margins(policy, list(router.expert_names)),
        "features": getattr(router, "n_features", None),
        "text features": getattr(getattr(router, "text", None), "kind", None),
        "fitted on": _fit_words(metadata.get("data")),
        "written": metadata.get("created"),
        "by mild": metadata.get("mild_version"),
    }
    return [[key, _words(value)] for key, value in facts.items() if value is not None]


def _data_facts(
    experts: Sequence[str],
    table: OutcomeTable | None,
    rows: int,
    fingerprint: str,
    words: str | None,
    split: str | None,
) -> Facts:
    """The table, the rows judged by, the cost, the fingerprint."""
    facts: dict[str, Any] = {
        "rows judged by": f"{rows:,}",
        "split": split,
        "experts": ", ".join(experts),
        "table": None if table is None else table.explanation or None,
        "cost": words,
        "fingerprint": fingerprint,
    }
    found = [] if table is None else [[f.kind, f.sentence] for f in table.findings]
    return [[key, str(value)] for key, value in facts.items() if value is not None] + found


def _fitted_on(metadata: Mapping[str, Any]) -> set[Any]:
    """Fingerprints of what a router was fitted on: its matrices, and its table."""
    notes = metadata.get("notes") or {}
    known = (metadata.get("data"), notes.get("table"))
    return {part["fingerprint"] for part in known if part}


def _seen_in_fit(router: Any, table: OutcomeTable | None) -> dict[str, int] | None:
    """How many of the queries the router was fitted on, where that can be told."""
    if table is None or not isinstance(router, LoadedRouter) or router.marks is None:
        return None
    # Fitting comes with it, and scikit-learn: a saved evaluation is rendered without.
    from mild.evaluation.tasks.training_queries import TrainingQueryIndex

    seen = TrainingQueryIndex.by(router)
    if seen is None:
        return None
    found = seen.overlap(table)
    return {"queries": found.seen, "checked": found.checked}


def _versions() -> dict[str, str]:
    """Versions of what computed the figures."""
    # Imported by name: the root package knows every room, this room must not.
    own = importlib.import_module("mild").__version__
    return {"mild": own, "python": platform.python_version(), "numpy": np.__version__}


def _told(key: str, value: Any) -> Any:
    """A parameter, or what it amounts to: folds are many rows."""
    folds = key == "cv" and isinstance(value, (list, tuple))
    return f"{len(value)} folds" if folds else value


def _margins(policy: Any, names: list[str]) -> str | None:
    """Margins of the policy that decides in the end; None if it has none."""
    while policy is not None and not hasattr(policy, "decoder"):
        policy = getattr(policy, "inner", None) or getattr(policy, "final", None)
    if policy is None:
        return None
    pairs = zip(names, policy.decoder.margins, strict=False)
    return ", ".join(f"{name} {margin:.4g}" for name, margin in pairs)


def _fit_words(data: Any) -> str | None:
    if not isinstance(data, Mapping):
        return None
    return f"{data.get('rows', 0):,} rows, fingerprint {str(data.get('fingerprint', ''))[:16]}…"


def _words(value: Any) -> str:
    """A setting for people: lists and objects without their brackets."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_words(entry) for entry in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)

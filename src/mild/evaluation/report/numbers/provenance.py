"""What the figures rest on: the router's settings, the data, the versions."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mild.artifact import LoadedRouter
from mild.data import OutcomeTable

__all__ = ["data_facts", "fitted_on", "router_facts", "seen_in_fit", "versions"]

Facts = list[list[str]]

# What a fit is told and a reader wants to know; the other parameters are in router.json.
TOLD = (
    "loss", "rewards", "margins", "counts", "surrogate", "alpha", "decision", "n_neighbors",
    "families", "cv", "safe", "price_weight", "error_head", "hidden_sizes", "epochs", "random_state",
)  # fmt: skip


def router_facts(router: Any) -> Facts:
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
        "fitted on": _fitted_on(metadata.get("data")),
        "written": metadata.get("created"),
        "by mild": metadata.get("mild_version"),
    }
    return [[key, _words(value)] for key, value in facts.items() if value is not None]


def data_facts(
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


def fitted_on(metadata: Mapping[str, Any]) -> set[Any]:
    """Fingerprints of what a router was fitted on: its matrices, and its table."""
    notes = metadata.get("notes") or {}
    known = (metadata.get("data"), notes.get("table"))
    return {part["fingerprint"] for part in known if part}


def seen_in_fit(router: Any, table: OutcomeTable | None) -> dict[str, int] | None:
    """How many of the queries the router was fitted on, where that can be told."""
    if table is None or not isinstance(router, LoadedRouter) or router.marks is None:
        return None
    # Fitting comes with it, and scikit-learn: a saved evaluation is rendered without.
    from mild.evaluation.tasks import Seen

    seen = Seen.by(router)
    if seen is None:
        return None
    found = seen.overlap(table)
    return {"queries": found.seen, "checked": found.checked}


def versions() -> dict[str, str]:
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


def _fitted_on(data: Any) -> str | None:
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

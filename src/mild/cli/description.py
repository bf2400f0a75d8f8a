"""A saved router in words and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mild.artifact import LoadedRouter
from mild.cli.console import print_table

__all__ = [
    "describe",
    "describe_tuning",
    "feature_line",
    "margins_of",
    "print_description",
    "surrogate_words",
]

# What the fit was told; the other losses know no rewards and no margins.
TOLD = ("loss", "rewards", "margins", "counts", "alpha")
TOLD_TO_OTHER_LOSSES = ("loss", "alpha")


def describe(router: LoadedRouter, folder: Path) -> dict[str, Any]:
    """What ``mild show`` reports."""
    meta = router.metadata
    return {
        "folder": str(folder),
        "kind": meta["kind"],
        "parts": parts_of(router.policy),
        "experts": router.expert_names,
        "margins": margins_of(router.policy),
        "settings": meta["settings"],
        "estimator": meta["estimator"],
        "n_features": router.n_features,
        "text": None if router.text is None else router.text.kind,
        "notes": meta.get("notes"),
        "feature_names": router.feature_names,
        "data": meta["data"],
        "tensors": meta["tensors"],
        "bytes": {file.name: file.stat().st_size for file in sorted(folder.iterdir())},
        "mild_version": meta["mild_version"],
        "created": meta["created"],
        "schema_version": meta["schema_version"],
    }


def parts_of(policy: Any) -> list[str]:
    """Kinds of the policies inside, outermost first."""
    inside = [
        *([policy.inner] if hasattr(policy, "inner") else []),
        *getattr(policy, "members", []),
        *([policy.final] if hasattr(policy, "final") else []),
    ]
    return [policy.kind, *(kind for part in inside for kind in parts_of(part))]


def margins_of(policy: Any) -> list[float] | None:
    """Margins of the policy that decides in the end; None if it has none."""
    while not hasattr(policy, "decoder"):
        policy = getattr(policy, "inner", None) or getattr(policy, "final", None)
        if policy is None:
            return None
    return [float(margin) for margin in policy.decoder.margins]


def print_description(report: dict[str, Any]) -> None:
    """Tables of a report of ``describe``."""
    data = report["data"]
    estimator = report["estimator"]
    settings = {
        **{key: value for key, value in estimator.items() if key.startswith("best_")},
        **_told(report),
        **_settings(report),
    }
    facts = {
        "kind": " > ".join(report["parts"]),
        "fitted as": estimator["class"],
        **{key.replace("_", " "): _words(value) for key, value in settings.items()},
        "features": feature_line(report["feature_names"], report["n_features"]),
        **({} if report["text"] is None else {"text features": report["text"]}),
        **_noted(report["notes"] or {}),
        "data": "unknown"
        if data is None
        else f"{data['rows']} rows, fingerprint {data['fingerprint'][:16]}...",
        "size": f"{sum(report['bytes'].values()):,} bytes",
        "written": f"{report['created']} by mild {report['mild_version']}",
        "schema": str(report["schema_version"]),
    }
    print_table(
        report["folder"], ["router", ""], [list(fact) for fact in facts.items()], left=("",)
    )
    margins = report["margins"]
    print_table(
        "experts",
        ["expert", "index", "margin"],
        [
            [name, str(k), "–" if margins is None else f"{margins[k]:.4g}"]
            for k, name in enumerate(report["experts"])
        ],
    )
    print_table(
        "tensors",
        ["tensor", "shape", "type"],
        [
            [name, " x ".join(map(str, entry["shape"])), entry["dtype"]]
            for name, entry in report["tensors"].items()
        ],
    )


def _noted(notes: Mapping[str, Any]) -> dict[str, str]:
    """What was written down about the table that the router was fitted on."""
    facts = {
        "cost": notes.get("cost", {}).get("words"),
        "table": notes.get("table", {}).get("explanation"),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _words(value: Any) -> str:
    """A setting for people: lists and objects without their brackets."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return " ".join(_words(entry) for entry in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _settings(report: dict[str, Any]) -> dict[str, Any]:
    """Settings of the policy that decides in the end, those that are set."""
    settings = report["settings"]
    while "parts" in settings:
        settings = settings["parts"][-1]["settings"]
    settings = dict(settings)
    # Told already, in a row of its own.
    settings.pop("n_features", None)
    if "surrogate" in settings:
        settings["surrogate"] = surrogate_words(*settings["surrogate"])
    return {key: value for key, value in settings.items() if value is not None}


def _told(report: dict[str, Any]) -> dict[str, Any]:
    """What the fit was told and made use of, less what a search found by itself."""
    estimator = report["estimator"]
    params = estimator.get("params") or {}
    found = estimator.get("best_params") or {}
    if "best_family" in estimator:
        # Only a linear router is told anything, and a safe search may have kept a constant.
        searched = estimator["best_family"] == "linear" and report["margins"] is not None
        inner = (params.get("estimator") or {}) if searched else {}
        params = {**inner.get("params", {}), **found} if searched else {}
    used: tuple[str, ...] = TOLD if params.get("loss", "mild") == "mild" else TOLD_TO_OTHER_LOSSES
    if params.get("margins") != "theory":
        used = tuple(key for key in used if key != "counts")
    return {key: params[key] for key in used if params.get(key) is not None and key not in found}


def surrogate_words(form: str, tau: float) -> str:
    """Name of a surrogate as a policy stores it.

    Examples
    --------
    >>> surrogate_words("comp_sum", 1.0), surrogate_words("comp_sum", 0.5)
    ('logistic', 'tau 0.5')
    >>> surrogate_words("pairwise", 0.0), surrogate_words("hinge", 1.0)
    ('pairwise exponential', 'hinge')
    """
    if form == "hinge":
        return form
    name = {1.0: "logistic", 0.0: "exponential"}.get(float(tau), f"tau {tau:.4g}")
    return name if form == "comp_sum" else f"{form} {name}"


def feature_line(names: Sequence[str] | None, count: int, most: int = 12) -> str:
    """Features by name, not more of them than can be read.

    Examples
    --------
    >>> feature_line(["id", "age", "length"], 3, most=2), feature_line(None, 4)
    ('id, age (+ 1 more)', '4, unnamed')
    """
    if names is None:
        return f"{count}, unnamed"
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" (+ {rest} more)" if rest > 0 else "")


def describe_tuning(search: Any) -> dict[str, Any]:
    """What a search found, and among what."""
    return {
        "best_family": search.best_family_,
        "best_params": search.best_params_,
        "interrupted": search.interrupted_,
        "skipped_families": list(search.skipped_families_),
        "dropped_margins": search.dropped_margins_,
        "candidates": [
            {**dict(zip(search.cv_results_, row, strict=True)), "taken": i == search.best_index_}
            for i, row in enumerate(zip(*search.cv_results_.values(), strict=True))
        ],
    }

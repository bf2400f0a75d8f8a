"""``mild show``, and words for parts of a saved router."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mild.cli import options as o
from mild.cli.console import emit, print_table

if TYPE_CHECKING:
    from mild.artifact import LoadedRouter

__all__ = ["feature_line", "margins_of", "show"]

# Parameters of a fit that are shown; losses other than mild use no rewards and no margins.
SHOWN = ("loss", "rewards", "margins", "counts", "alpha")
SHOWN_FOR_OTHER_LOSSES = ("loss", "alpha")


def show(folder: o.RouterArgument, as_json: o.AsJson = False) -> None:
    """Describe a saved router: kind, experts, margins, settings, training data, sizes.

    \b
    Example:
      mild show router
    """
    from mild.artifact import load

    report = _describe(load(folder), folder)
    emit(report, as_json, lambda: _show(report))


def _describe(router: LoadedRouter, folder: Path) -> dict[str, Any]:
    meta = router.metadata
    return {
        "folder": str(folder),
        "kind": meta["kind"],
        "parts": _parts(router.policy),
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


def _parts(policy: Any) -> list[str]:
    """Kinds of the policies inside, outermost first."""
    inside = [
        *([policy.inner] if hasattr(policy, "inner") else []),
        *getattr(policy, "members", []),
        *([policy.final] if hasattr(policy, "final") else []),
    ]
    return [policy.kind, *(kind for part in inside for kind in _parts(part))]


def margins_of(policy: Any) -> list[float] | None:
    """Margins of the innermost deciding policy; None if it has none."""
    while not hasattr(policy, "decoder"):
        policy = getattr(policy, "inner", None) or getattr(policy, "final", None)
        if policy is None:
            return None
    return [float(margin) for margin in policy.decoder.margins]


def _show(report: dict[str, Any]) -> None:
    data, estimator, notes = report["data"], report["estimator"], report["notes"] or {}
    settings = {
        **{key: value for key, value in estimator.items() if key.startswith("best_")},
        **_fit_parameters(report),
        **_policy_settings(report),
    }
    facts = {
        "kind": " > ".join(report["parts"]),
        "fitted as": estimator["class"],
        **{key.replace("_", " "): _words(value) for key, value in settings.items()},
        "features": feature_line(report["feature_names"], report["n_features"]),
        "text features": report["text"],
        "cost": notes.get("cost", {}).get("words"),
        "table": notes.get("table", {}).get("explanation"),
        "data": "unknown"
        if data is None
        else f"{data['rows']} rows, fingerprint {data['fingerprint'][:16]}...",
        "size": f"{sum(report['bytes'].values()):,} bytes",
        "written": f"{report['created']} by mild {report['mild_version']}",
        "schema": str(report["schema_version"]),
    }
    known = [[name, fact] for name, fact in facts.items() if fact]
    print_table(report["folder"], ["router", ""], known, left=("",))
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


def _words(value: Any) -> str:
    """A setting without brackets."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return " ".join(_words(entry) for entry in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _policy_settings(report: dict[str, Any]) -> dict[str, Any]:
    """Settings of the innermost policy, those that are set."""
    settings = report["settings"]
    while "parts" in settings:
        settings = settings["parts"][-1]["settings"]
    settings = {key: value for key, value in settings.items() if value is not None}
    # Shown in a row of its own.
    settings.pop("n_features", None)
    if "surrogate" in settings:
        settings["surrogate"] = surrogate_words(*settings["surrogate"])
    return settings


def _fit_parameters(report: dict[str, Any]) -> dict[str, Any]:
    """Parameters that the fit used, without those that a search found."""
    estimator = report["estimator"]
    params = estimator.get("params") or {}
    found = estimator.get("best_params") or {}
    if "best_family" in estimator:
        # Only a linear router has such parameters, and a safe search may have kept a constant.
        searched = estimator["best_family"] == "linear" and report["margins"] is not None
        inner = (params.get("estimator") or {}) if searched else {}
        params = {**inner.get("params", {}), **found} if searched else {}
    used: tuple[str, ...] = (
        SHOWN if params.get("loss", "mild") == "mild" else SHOWN_FOR_OTHER_LOSSES
    )
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
    """Names of the features, at most ``most`` of them.

    Examples
    --------
    >>> feature_line(["id", "age", "length"], 3, most=2), feature_line(None, 4)
    ('id, age (+ 1 more)', '4, unnamed')
    """
    if names is None:
        return f"{count}, unnamed"
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" (+ {rest} more)" if rest > 0 else "")

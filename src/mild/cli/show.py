"""``mild show``"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mild.cli import options as o
from mild.cli.console import emit, print_facts, print_table
from mild.cli.outcomes import feature_line

if TYPE_CHECKING:
    from mild.artifact.info import RouterInfo

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

    router = load(folder)
    info = router.info
    report = {
        "folder": str(folder),
        "kind": info.kind,
        "parts": router.policy.parts,
        "experts": router.expert_names,
        "margins": router.margins,
        "settings": router.settings,
        "estimator": info.estimator and info.estimator.as_dict(),
        "n_features": router.n_features,
        "text": None if router.text is None else router.text.kind,
        "notes": info.notes,
        "feature_names": router.feature_names,
        "data": info.data and info.data.as_dict(),
        "tensors": info.tensors,
        "bytes": {file.name: file.stat().st_size for file in sorted(folder.iterdir())},
        "mild_version": info.mild_version,
        "created": info.created,
        "schema_version": info.schema_version,
    }
    emit(report, as_json, lambda: _show(report, info))


def _show(report: dict[str, Any], info: RouterInfo) -> None:
    data, estimator = report["data"], report["estimator"]
    settings = {
        **{key: value for key, value in estimator.items() if key.startswith("best_")},
        **_fit_parameters(report),
        **_policy_settings(report["settings"]),
    }
    trained = "unknown"
    if data is not None:
        trained = f"{data['rows']} rows, fingerprint {data['fingerprint'][:16]}..."
    facts = {
        "kind": " > ".join(report["parts"]),
        "fitted as": estimator["class"],
        **{key.replace("_", " "): _words(value) for key, value in settings.items()},
        "features": feature_line(report["feature_names"], report["n_features"]),
        "text features": report["text"],
        "cost": info.cost and info.cost.formula,
        "target": info.target and info.target.sentence,
        "table": info.table and info.table.explanation,
        "data": trained,
        "size": f"{sum(report['bytes'].values()):,} bytes",
        "written": f"{report['created']} by mild {report['mild_version']}",
        "schema": str(report["schema_version"]),
    }
    known = {name: fact for name, fact in facts.items() if fact}
    print_facts(report["folder"], "router", known, left=True)
    names, margins = report["experts"], report["margins"]
    columns = {
        "expert": names,
        "index": [str(k) for k in range(len(names))],
        "margin": ["–"] * len(names) if margins is None else [f"{m:.4g}" for m in margins],
    }
    print_table("experts", columns)
    tensors = report["tensors"].values()
    columns = {
        "tensor": list(report["tensors"]),
        "shape": [" x ".join(map(str, entry["shape"])) for entry in tensors],
        "type": [entry["dtype"] for entry in tensors],
    }
    print_table("tensors", columns)


def _words(value: Any) -> str:
    """A setting without brackets."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return " ".join(_words(entry) for entry in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _policy_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of the innermost policy, those that are set; n_features has a row of its own."""
    while "parts" in settings:
        settings = settings["parts"][-1]["settings"]
    found = {key: v for key, v in settings.items() if v is not None and key != "n_features"}
    if "surrogate" in found:
        form, tau = found["surrogate"]
        name = {1.0: "logistic", 0.0: "exponential"}.get(float(tau), f"tau {tau:.4g}")
        names = {"hinge": "hinge", "comp_sum": name}
        found["surrogate"] = names.get(form, f"{form} {name}")
    return found


def _fit_parameters(report: dict[str, Any]) -> dict[str, Any]:
    """Parameters that the fit used, without those that a search found."""
    estimator = report["estimator"]
    params = estimator.get("params") or {}
    found = estimator.get("best_params") or {}
    if "best_family" in estimator:
        # Only a linear router has such parameters, and a safe search may have kept a constant.
        if estimator["best_family"] != "linear" or report["margins"] is None:
            return {}
        params = {**(params.get("estimator") or {}).get("params", {}), **found}
    used = SHOWN if params.get("loss", "mild") == "mild" else SHOWN_FOR_OTHER_LOSSES
    known = {key: params[key] for key in used if params.get(key) is not None and key not in found}
    if params.get("margins") != "theory":
        known.pop("counts", None)
    return known

"""What there is to say about a router, name by name: for mild explain, reports and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mild.artifact.info import EstimatorInfo, RouterInfo
from mild.artifact.novelty import Novelty
from mild.core.answers import KINDS
from mild.errors import counted
from mild.policies import CascadePolicy, MixPolicy, Policy, cascade_of, mix_of

# Parameters of a fit that are listed, if they were given; the others are in router.json.
LISTED = (
    "loss", "rewards", "margins", "counts", "surrogate", "alpha", "decision", "n_neighbors", "families",
    "cv", "safe", "price_weight", "error_head", "hidden_sizes", "epochs", "random_state",
)  # fmt: skip
# Of these, the parameters of a search; the others are those of the router that it found.
OF_SEARCH = ("families", "cv", "safe", "random_state")
# Losses other than mild do not use them.
OF_MILD_LOSS = ("rewards", "margins", "counts")
# Features that are named; of the others the number is given.
NAMED_FEATURES = 12


def router_facts(
    policy: Policy,
    expert_names: Sequence[str],
    feature_names: Sequence[str] | None,
    info: RouterInfo,
    text: str | None,
    novelty: Novelty | None,
) -> dict[str, str]:
    """Facts about a router by name, those that are known. ``text`` is the kind of its text features."""
    estimator = info.estimator or EstimatorInfo("", {})
    margins = None if policy.margins is None else policy.margins.tolist()
    trained = info.data or info.table
    features = feature_line(feature_names, policy.n_features)
    facts: dict[str, Any] = {
        "kind": " > ".join(policy.parts),
        "fitted as": estimator.class_name,
        "best family": estimator.best_family,
        "best params": estimator.best_params,
        **_fit_parameters(estimator, margins is not None),
        **_mix_facts(policy, expert_names, info),
        **_cascade_facts(policy, expert_names),
        **_settings_of(policy),
        "margins in use": margins and dict(zip(expert_names, margins, strict=True)),
        "calibration": _calibration(info),
        "novel inputs": _novel_inputs(novelty, expert_names),
        "features": features if text is None else policy.n_features,
        "text features": text,
        "fitted on": trained
        and f"{counted(trained.rows, 'row')}, fingerprint {trained.fingerprint[:16]}…",
        "version": info.version,
        "written": info.created,
        "by mild": info.mild_version,
        "schema": info.schema_version,
        "cost": info.cost and info.cost.formula,
        "target": info.target and info.target.sentence,
        "table": info.table and info.table.explanation,
    }
    return {name: as_text(fact) for name, fact in facts.items() if fact is not None and fact != ""}


def _mix_facts(policy: Policy, expert_names: Sequence[str], info: RouterInfo) -> dict[str, str]:
    mix = mix_of(policy)
    if mix is not None:
        return {"mix": mix_words(mix, expert_names)}
    if info.dropped_mix is not None:
        return {"mix": f"none; new prices replaced that of the tuned router: {info.dropped_mix}"}
    return {}


def _cascade_facts(policy: Policy, expert_names: Sequence[str]) -> dict[str, str]:
    cascade = cascade_of(policy)
    if cascade is None:
        return {}
    answers = f"{cascade.answer_kind}, compared {KINDS[cascade.answer_kind]}"
    gates = [_gate_words(part) for part in cascade.cascades]
    facts = {"gate": " and ".join(dict.fromkeys(gates)), "answers": answers}
    if mix_of(policy) is not None:
        return facts
    return {"cascade": cascade_words(cascade.cascades[0], expert_names), **facts}


def _gate_words(cascade: CascadePolicy) -> str:
    if cascade.gate is None:
        return "counts of agreement"
    return "linear"


def _settings_of(policy: Policy) -> dict[str, Any]:
    """Settings of the policy that decides without answers; those of a mix are in its own line."""
    cascade = cascade_of(policy)
    deciding = policy if cascade is None else cascade.direct
    if mix_of(deciding) is not None:
        return {}
    return _policy_settings(deciding.state()[0])


def mix_words(mix: MixPolicy, expert_names: Sequence[str]) -> str:
    """What a mix does: the share of each setting, the smaller one first.

    >>> from mild.policies import ConstantPolicy
    >>> always = [ConstantPolicy(np.zeros(2), 1, expert) for expert in (0, 1)]
    >>> mix_words(MixPolicy(*always, share=0.3, salt=""), ["small", "large"])
    '30 % of the queries: always large; 70 %: always small'
    """
    settings = sorted(
        [(mix.share, mix.second), (1 - mix.share, mix.first)], key=lambda pair: pair[0]
    )
    (smaller, rare), (larger, usual) = settings
    return (
        f"{100 * smaller:.3g} % of the queries: {setting_words(rare, expert_names)}; "
        f"{100 * larger:.3g} %: {setting_words(usual, expert_names)}"
    )


def setting_words(policy: Policy, expert_names: Sequence[str]) -> str:
    """What one setting of a mix does."""
    reading = cascade_of(policy)
    if reading is not None:
        (cascade,) = reading.cascades
        if len(cascade.order) == 1:
            return f"always {expert_names[cascade.order[0]]}"
        return f"a cascade that {cascade_words(cascade, expert_names)}"
    if policy.is_constant:
        expert = policy.decide_one(np.zeros(policy.n_features))
        return f"always {expert_names[expert]}"
    settings = _policy_settings(policy.state()[0])
    if "price_weight" in settings:
        return f"a router with price weight {settings['price_weight']:.4g}"
    return f"a {' > '.join(policy.parts)} router"


def cascade_words(cascade: CascadePolicy, expert_names: Sequence[str]) -> str:
    """What a cascade does, step by step."""
    steps = [[expert_names[k] for k in step] for step in cascade.steps]
    asks = [" and ".join(step) + " at the same time" * (len(step) > 1) for step in steps]
    accepts = (
        f"accepts the leading answer if it is right with probability >= {cascade.threshold:.4g}"
    )
    words = [f"asks {asks[0]}"]
    for number, ask in enumerate(asks[1:]):
        words += ["accepts the leading answer likewise" if number else accepts, f"else asks {ask}"]
    if cascade.start_error is not None:
        words.append(
            f"begins with {asks[-1]} if an error above {cascade.start_error:.4g} is expected of "
            f"{' and '.join(steps[0])}"
        )
    return "; ".join(words)


def feature_line(names: Sequence[str] | None, count: int) -> str:
    """Names of the features, the first of them.

    >>> feature_line(["age", "length"], 2), feature_line(None, 4)
    ('age, length', '4, unnamed')
    """
    if names is None:
        return f"{count}, unnamed"
    rest = len(names) - NAMED_FEATURES
    return ", ".join(names[:NAMED_FEATURES]) + (f" (+ {rest} more)" if rest > 0 else "")


def as_text(value: Any) -> str:
    """A setting without the brackets of lists and objects.

    >>> as_text({"alpha": 0.01, "margins": [1.0, 2.5]})
    'alpha 0.01, margins 1 2.5'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {as_text(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(as_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _fit_parameters(estimator: EstimatorInfo, has_margins: bool) -> dict[str, Any]:
    """Parameters that the fit used, without those that a search found."""
    params = estimator.params or {}
    found = estimator.best_params or {}
    listed: tuple[str, ...] = LISTED
    if estimator.best_family is not None:
        inner = (params.get("estimator") or {}).get("params") or {}
        params = {**inner, **{key: params.get(key) for key in OF_SEARCH}, **found}
        # Only a linear router has the others, and a safe search may have kept a constant.
        if estimator.best_family != "linear" or not has_margins:
            listed = OF_SEARCH
    if params.get("loss", "mild") != "mild":
        listed = tuple(name for name in listed if name not in OF_MILD_LOSS)
    elif params.get("margins") != "theory":
        listed = tuple(name for name in listed if name != "counts")
    known = {name: params[name] for name in listed if params.get(name) is not None}
    if isinstance(known.get("cv"), (list, tuple)):
        known["cv"] = f"{len(known['cv'])} folds"
    return {name: value for name, value in known.items() if name not in found}


def _policy_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the innermost policy, but for the number of features."""
    while "parts" in settings:
        settings = settings["parts"][-1]["settings"]
    found = {name: value for name, value in settings.items() if name != "n_features"}
    if "surrogate" in found:
        form, tau = found["surrogate"]
        name = {1.0: "logistic", 0.0: "exponential"}.get(float(tau), f"tau {tau:.4g}")
        found["surrogate"] = {"hinge": "hinge", "comp_sum": name}.get(form, f"{form} {name}")
    return found


def _calibration(info: RouterInfo) -> str | None:
    if info.calibration is None:
        return None
    before, after = info.calibration.squared_error
    use = "used for decisions" if info.calibration.decides else "shown, not used for decisions"
    return f"held-out squared error {before:.4g} before, {after:.4g} after; {use}"


def _novel_inputs(novelty: Novelty | None, expert_names: Sequence[str]) -> str | None:
    if novelty is None:
        return None
    means = dict(zip(expert_names, map(float, novelty.means[0]), strict=True))
    what = "mean error" if len(novelty.means) > 1 else "mean loss"
    return f"recognised; the {what} of each expert in training: {as_text(means)}"

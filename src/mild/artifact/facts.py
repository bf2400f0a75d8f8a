"""What there is to say about a router, name by name: for mild explain, reports and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mild.artifact.info import EstimatorInfo, RouterInfo
from mild.artifact.novelty import Novelty
from mild.artifact.parts import RouterParts
from mild.core.answers import KINDS
from mild.errors import count_noun
from mild.policies import CascadePolicy, MixPolicy, Policy, cascade_of, mix_of

# Parameters of a fit that are listed, if they were given; the others are in router.json.
LISTED = (
    "loss", "rewards", "margins", "counts", "surrogate", "alpha", "decision", "n_neighbors", "families",
    "cv", "safe", "price_weight", "error_head", "hidden_sizes", "epochs", "random_state",
)  # fmt: skip
# Of these, the parameters of a search; the others are those of the router that it found.
OF_SEARCH = ("families", "cv", "safe", "random_state")
# Only the loss "mild" uses them.
OF_MILD_LOSS = ("rewards", "margins", "counts")
# Features that are named; of the others the number is given.
NAMED_FEATURES = 12


def router_facts(router: RouterParts) -> dict[str, str]:
    """Facts about a router by name, those that are known."""
    policy = router.policy
    facts: dict[str, Any] = {
        "kind": " > ".join(policy.parts),
        **_estimator_facts(router.info.estimator, has_margins=policy.margins is not None),
        **_mix_facts(router),
        **_cascade_facts(policy, router.experts),
        **_settings_of(policy),
        **_margin_facts(policy, router.experts),
        **_confidence_facts(router),
        **_feature_facts(router),
        **_training_facts(router.info),
        **_purpose_facts(router.info),
    }
    known = {}
    for name, fact in facts.items():
        if fact is not None and fact != "":
            known[name] = as_text(fact)
    return known


def _estimator_facts(estimator: EstimatorInfo | None, has_margins: bool) -> dict[str, Any]:
    """What was fitted, what a search found, and the parameters of the fit."""
    if estimator is None:
        return {}
    return {
        "fitted as": estimator.class_name,
        "best family": estimator.best_family,
        "best params": estimator.best_params,
        **_fit_parameters(estimator, has_margins),
    }


def _mix_facts(router: RouterParts) -> dict[str, str]:
    """The two settings of a mix, or what was dropped with one."""
    mix = mix_of(router.policy)
    if mix is not None:
        return {"mix": mix_words(mix, router.experts)}
    dropped_mix = router.info.dropped_mix
    if dropped_mix is not None:
        return {"mix": f"none; new prices replaced that of the tuned router: {dropped_mix}"}
    return {}


def _cascade_facts(policy: Policy, expert_names: Sequence[str]) -> dict[str, str]:
    """The steps of a cascade, and how it compares answers."""
    cascade = cascade_of(policy)
    if cascade is None:
        return {}
    facts = {}
    if mix_of(policy) is None:
        facts["cascade"] = cascade_words(cascade.cascades[0], expert_names)
    facts["answers"] = f"{cascade.answer_kind}, compared {KINDS[cascade.answer_kind]}"
    return facts


def _settings_of(policy: Policy) -> dict[str, Any]:
    """Settings of the policy that decides without answers; those of a mix are in its own line."""
    deciding = policy
    cascade = cascade_of(policy)
    if cascade is not None:
        deciding = cascade.direct
    if mix_of(deciding) is not None:
        return {}
    return _policy_settings(deciding.state()[0])


def _margin_facts(policy: Policy, expert_names: Sequence[str]) -> dict[str, Any]:
    """The margin of each expert."""
    if policy.margins is None:
        return {}
    return {"margins in use": dict(zip(expert_names, policy.margins.tolist(), strict=True))}


def _confidence_facts(router: RouterParts) -> dict[str, Any]:
    """How far expected costs can be trusted."""
    facts = {}
    if router.novelty is not None:
        facts["novel inputs"] = _novelty_words(router.novelty, router.experts)
    return facts


def _feature_facts(router: RouterParts) -> dict[str, Any]:
    """What the router reads."""
    n_features = router.policy.n_features
    if router.text is None:
        return {"features": feature_line(router.feature_names, n_features)}
    return {"features": n_features, "text features": router.text.kind}


def _training_facts(info: RouterInfo) -> dict[str, Any]:
    """The training data, and when and by which version the router was written."""
    facts: dict[str, Any] = {}
    data = info.data or info.table
    if data is not None:
        fingerprint = data.fingerprint[:16]
        facts["fitted on"] = f"{count_noun(data.rows, 'row')}, fingerprint {fingerprint}…"
    facts["written"] = info.created
    facts["by mild"] = info.mild_version
    facts["schema"] = info.schema_version
    return facts


def _purpose_facts(info: RouterInfo) -> dict[str, Any]:
    """What the router was fitted for: its cost, its target, and how the table was read."""
    facts: dict[str, Any] = {}
    if info.cost is not None:
        facts["cost"] = info.cost.formula
    if info.target is not None:
        facts["target"] = info.target.sentence
    if info.table is not None:
        facts["table"] = info.table.explanation
    return facts


def mix_words(mix: MixPolicy, expert_names: Sequence[str]) -> str:
    """What a mix does: the share of each setting, the smaller one first.

    >>> from mild.policies import ConstantPolicy
    >>> always = [ConstantPolicy(np.zeros(2), 1, expert) for expert in (0, 1)]
    >>> mix_words(MixPolicy(*always, share=0.3, salt=""), ["small", "large"])
    '30 % of the queries: always large; 70 %: always small'
    """
    larger = f"{100 * (1 - mix.share):.3g} %"
    smaller = f"{100 * mix.share:.3g} %"
    usual = setting_words(mix.first, expert_names)
    rare = setting_words(mix.second, expert_names)
    if mix.share > 0.5:
        larger, smaller = smaller, larger
        usual, rare = rare, usual
    return f"{smaller} of the queries: {rare}; {larger}: {usual}"


def setting_words(policy: Policy, expert_names: Sequence[str]) -> str:
    """What one setting of a mix does."""
    cascade_policy = cascade_of(policy)
    if cascade_policy is not None:
        (cascade,) = cascade_policy.cascades
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
    step_names = []
    for experts in cascade.steps:
        names = " and ".join(expert_names[expert] for expert in experts)
        if len(experts) > 1:
            names += " at the same time"
        step_names.append(names)
    phrases = [f"asks {step_names[0]}"]
    for number, names in enumerate(step_names[1:]):
        if number == 0:
            phrases.append(
                "accepts the leading answer if it is right with probability >= "
                f"{cascade.threshold:.4g}"
            )
        else:
            phrases.append("accepts the leading answer likewise")
        phrases.append(f"else asks {names}")
    return "; ".join(phrases)


def feature_line(names: Sequence[str] | None, count: int) -> str:
    """Names of the features, the first of them.

    >>> feature_line(["age", "length"], 2), feature_line(None, 4)
    ('age, length', '4, unnamed')
    """
    if names is None:
        return f"{count}, unnamed"
    line = ", ".join(names[:NAMED_FEATURES])
    n_others = len(names) - NAMED_FEATURES
    if n_others > 0:
        line += f" (+ {n_others} more)"
    return line


def as_text(value: Any) -> str:
    """A setting without the brackets of lists and objects.

    >>> as_text({"alpha": 0.01, "margins": [1.0, 2.5]})
    'alpha 0.01, margins 1 2.5'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {as_text(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(as_text, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _fit_parameters(estimator: EstimatorInfo, has_margins: bool) -> dict[str, Any]:
    """Parameters that the fit used, without those that a search found."""
    params = dict(estimator.params or {})
    best_params = estimator.best_params or {}
    names: Sequence[str] = LISTED
    if estimator.best_family is not None:
        params = _params_of_search(params, best_params)
        # Only a linear router has the others, and a safe search may have kept a constant.
        if estimator.best_family != "linear" or not has_margins:
            names = OF_SEARCH
    unused: Sequence[str] = ()
    if params.get("loss", "mild") != "mild":
        unused = OF_MILD_LOSS
    elif params.get("margins") != "theory":
        unused = ("counts",)
    listed = {}
    for name in names:
        value = params.get(name)
        if value is None or name in unused or name in best_params:
            continue
        if name == "cv" and isinstance(value, (list, tuple)):
            value = f"{len(value)} folds"
        listed[name] = value
    return listed


def _params_of_search(params: Mapping[str, Any], best_params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a search and of the router that it found."""
    searched = params.get("estimator") or {}
    all_params = dict(searched.get("params") or {})
    for name in OF_SEARCH:
        all_params[name] = params.get(name)
    all_params.update(best_params)
    return all_params


def _policy_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the innermost policy, but for the number of features."""
    while "parts" in settings:
        settings = settings["parts"][-1]["settings"]
    shown = {name: value for name, value in settings.items() if name != "n_features"}
    if "surrogate" in shown:
        form, tau = shown["surrogate"]
        shown["surrogate"] = _surrogate_words(form, float(tau))
    return shown


def _surrogate_words(form: str, tau: float) -> str:
    """The name of a surrogate loss."""
    if form == "hinge":
        return "hinge"
    name = f"tau {tau:.4g}"
    if tau == 1.0:
        name = "logistic"
    elif tau == 0.0:
        name = "exponential"
    if form == "comp_sum":
        return name
    return f"{form} {name}"


def _novelty_words(novelty: Novelty, expert_names: Sequence[str]) -> str:
    """That novel inputs are recognised, and what the experts' means in training were."""
    means = dict(zip(expert_names, novelty.means[0].tolist(), strict=True))
    quantity = "mean loss"
    if len(novelty.means) > 1:
        quantity = "mean error"
    return f"recognised; the {quantity} of each expert in training: {as_text(means)}"

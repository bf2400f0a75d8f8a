"""The one door from serving to the library: what a router decides, and what its cascade asks next.

Everything that the gateway asks of a router, or of an answer, stands here in the gateway's own words; the
rest of the package keeps routers and cascades only to hand them back. Tables and learning have a door of
their own, the folder ``learning``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from mild import Router
from mild.artifact import Explanation, Target, features_tag, load, mix_words
from mild.core import (
    abridge,
    canonical_answer,
    detect_kind,
    extract_letter,
    extract_number,
    is_number_text,
    numbers_in,
    same_number,
)
from mild.policies import Ask, CascadePolicy, MixPolicy
from mild_gateway.arrays import FloatArray, IntArray

__all__ = [
    "Explanation",
    "Router",
    "Target",
    "abridge",
    "canonical_answer",
    "detect_kind",
    "extract_letter",
    "extract_number",
    "is_number_text",
    "numbers_in",
    "same_number",
]

#: One cascade, which asks experts in steps.
Cascade: TypeAlias = CascadePolicy
#: The cascades of a router: one, or two that divide the queries.
Cascades: TypeAlias = CascadePolicy | MixPolicy


class Decided(NamedTuple):
    """What a router makes of n texts; larger values are better."""

    chosen: IntArray  # (n,)
    probabilities: FloatArray  # (n, p)
    values: FloatArray  # (n, p)
    costs: FloatArray | None  # (n, p) expected; None where the router has not learned them


class Step(NamedTuple):
    """What a cascade does next: it asks experts at the same time, or accepts the answer of one."""

    ask: tuple[int, ...]
    accepted: int = -1


class UsualShares(NamedTuple):
    """How often a router chose each expert in training."""

    rows: int
    shares: Mapping[str, float]
    price_weight: float | None  # under which it chose


# Routers, and what is known about them.


def load_router(folder: str | os.PathLike[str]) -> Router:
    """The router in a folder; of a folder with versions, the one that serves."""
    return load(folder)


def fingerprint_of(router: Router) -> str | None:
    """What tells routers apart in the ledger; None for one that was never saved."""
    return router.info.fingerprint


def created_at(router: Router) -> str:
    """When the router was saved, in ISO format; empty for one that never was."""
    return router.info.created or ""


def direct_router(router: Router) -> Router:
    """The router that reads no answers: of a cascade, its companion that chooses one expert."""
    return router.direct


def at_price_weight(router: Router, price_weight: float | None) -> Router:
    """The router under another weight of dollars; None for its own."""
    return router.with_prices(price_weight=price_weight)


def at_target(router: Router, target: Target) -> Router:
    """The router at the trade-off that meets a target."""
    return router.with_target(target)


def has_target(router: Router) -> bool:
    """Whether the router was set to a target."""
    return router.info.target is not None


def target_of(router: Router) -> str | None:
    """What the router was set to, and what is expected of it, in a sentence; None without a target."""
    if router.info.target is None:
        return None
    return router.info.target.sentence


def trade_off_of(router: Router) -> float | None:
    """The weight of dollars that meets the router's target; None where it has none."""
    if router.info.target is None:
        return None
    return router.info.target.t


def price_weight_of(router: Router) -> float | None:
    """Wrong answers that a dollar is worth to the router: by its target, otherwise by its cost."""
    return router.info.price_weight


def has_prices(router: Router) -> bool:
    """Whether the router knows errors and prices apart, so that dollars can be weighted anew."""
    return router.has_prices


def mixes(router: Router) -> bool:
    """Whether the router decides some queries by one setting and the others by another one."""
    return router.mix is not None


def mix_in_words(router: Router) -> str | None:
    """The two settings of a router that mixes them; None for any other router."""
    if router.mix is None:
        return None
    return mix_words(router.mix, router.experts)


def standard_errors(router: Router) -> FloatArray | None:
    """(p,) standard errors of the experts' mean costs: those of learning, or of a table's mean scores."""
    info = router.info
    learned = info.standard_errors or {}
    scores = info.mean_scores or {}
    if not learned and (not scores or info.table is None):
        return None
    n_rows = 1
    if info.table is not None:
        n_rows = info.table.rows
    errors = []
    for name in router.experts:
        mean = scores.get(name, 0.5)
        error_of_table = np.sqrt(max(mean * (1 - mean), 0.02) / n_rows)
        errors.append(learned.get(name, error_of_table))
    return np.array(errors)


def usual_shares(router: Router) -> UsualShares | None:
    """The router's shares in training; None if it does not say."""
    shares = router.info.shares
    if shares is None:
        return None
    cost = router.info.cost
    price_weight = None if cost is None else cost.price_weight
    return UsualShares(shares.rows, shares.experts, price_weight)


# Texts.


def input_of(router: Router) -> str:
    """What the router reads: "text", "vectors" or "numbers"."""
    if router.text is None:
        return "numbers"
    return "vectors" if router.text.kind == "vectors" else "text"


def features_of(router: Router, texts: Sequence[str]) -> FloatArray:
    """Features (n, n_columns) of texts, with their draws where the router is a mix."""
    if len(texts) == 1:
        return router.features_one(texts[0])[None]
    return router.features(texts)


def n_features(router: Router) -> int:
    """Number of features of a text, without the draw of a mix."""
    return router.n_features


def n_columns(router: Router) -> int:
    """Columns that the router decides by: its features, and the draws of a mix."""
    return router.policy.n_columns


def step_tag(router: Router) -> str:
    """What tells the router's step from texts to features from others; empty without one."""
    if router.text is None:
        return ""
    return features_tag(router.text, router.mix)


def knows_novelty(router: Router) -> bool:
    """Whether the router records how far texts are from those of its training."""
    return router.novelty is not None


def are_novel(router: Router, texts: Sequence[str], X: FloatArray | None = None) -> list[bool]:
    """Whether each text is farther from the training texts than nearly all others; X are its features."""
    return router.is_novel(texts, X).tolist()


# Decisions.


def decide(router: Router, X: FloatArray) -> Decided:
    """Decide by features, which may have a draw that this router does not read."""
    decisions = router.decide_features(router.own_columns(X))
    return Decided(decisions.chosen, decisions.probabilities, decisions.values, decisions.costs)


def scores_of(router: Router, X: FloatArray) -> FloatArray:
    """(n, p) scores of the experts, larger is better; X are features as ``decide`` takes them."""
    return router.decision_function(X)


def explain(router: Router, text: str) -> Explanation:
    """The decision on a text, and the evidence behind it."""
    return router.explain(text)


# Cascades.


def cascade_of(router: Router) -> Cascades | None:
    """What asks experts in steps and reads their answers; None for a router that chooses one expert."""
    return router.cascade


def for_json(cascade: Cascades) -> Cascades:
    """The cascade that compares answers as JSON, whatever it has learned from."""
    return cascade.with_answer_kind("json")


def drawn_cascade(cascade: Cascades, features: FloatArray | None) -> Cascade:
    """The cascade that serves a text: of two, the one that is drawn for it."""
    return cascade.drawn_cascade(features)


def restricted_to(cascade: Cascade, experts: Collection[int]) -> Cascade | None:
    """The cascade with some of its experts; None if it asks nobody then."""
    return cascade.asking(experts)


def steps_of(cascade: Cascade) -> list[list[int]]:
    """The experts of each step, who are asked at the same time."""
    return [list(step) for step in cascade.steps]


def asked_experts(cascade: Cascades) -> list[int]:
    """Every expert that a cascade may ask, in the order of its steps."""
    return list(cascade.order)


def first_asked(cascade: Cascades, X: FloatArray) -> list[list[int]]:
    """Whom a cascade asks first for each of n texts."""
    return cascade.first_asked(X)


def next_step(
    cascade: Cascade, features: FloatArray | None, answers: Mapping[int, str | None]
) -> Step:
    """What to do after some answers, by expert; None is that of an expert without one."""
    outcome = cascade.next(_own_features(cascade, features), answers)
    if isinstance(outcome, Ask):
        return Step(outcome.experts)
    return Step((), outcome.expert)


def leading_expert(
    cascade: Cascade, features: FloatArray | None, answers: Mapping[int, str]
) -> int:
    """Whose answer is the best so far."""
    return cascade.leading(_own_features(cascade, features), answers).expert


def _own_features(cascade: Cascade, features: FloatArray | None) -> FloatArray | None:
    """The features without the draw of a mix."""
    if features is None:
        return None
    return features[: cascade.n_features]

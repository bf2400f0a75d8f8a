"""Choice, probabilities and expected costs of a policy in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last
from mild.errors import UnsupportedError
from mild.policies import (
    CostPolicy,
    Policy,
    ScorePolicy,
    StackPolicy,
    StandardizedPolicy,
    TradeoffPolicy,
)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions for n inputs among p experts."""

    chosen: IntArray  # (n,) index of the expert
    probabilities: FloatArray  # (n, p) estimate of each expert's share of the expected reward
    costs: FloatArray | None  # (n, p) expected costs; None where the router has not learned them
    values: FloatArray  # (n, p) the quantity that the choice maximises
    by: str  # its name: "expected cost" (negated), "probability", "score" or "confidence"


def decide_all(policy: Policy, X: Any) -> Decisions:
    """Decide for every row of X (n, n_features), float and finite. Scores are computed once."""
    if isinstance(policy, StandardizedPolicy):
        return decide_all(policy.inner, (X - policy.mean) / policy.scale)
    if isinstance(policy, TradeoffPolicy):
        return decide_all(policy.inner, X)
    if isinstance(policy, StackPolicy):
        return decide_all(policy.final, policy.features(X))
    if isinstance(policy, ScorePolicy):
        scores = policy.decision_function(X)
        shares = policy.decoder.distribution(scores)
        values, by = (scores, "score") if policy.decoder.by_argmax else (shares, "probability")
        return Decisions(argmax_last(values), shares, None, values, by)
    if isinstance(policy, CostPolicy):
        costs = policy.expected_costs(X)
        values = -costs
        # A constant policy may choose an expert by name.
        least = type(policy).predict is CostPolicy.predict
        chosen = argmax_last(values) if least else policy.predict(X)
        return Decisions(chosen, policy.distribution_of(costs), costs, values, "expected cost")
    chosen, shares, values = policy.predict(X), policy.predict_proba(X), policy.decision_function(X)
    try:
        return Decisions(chosen, shares, policy.expected_costs(X), values, "expected cost")
    except UnsupportedError:
        return Decisions(chosen, shares, None, values, "confidence")

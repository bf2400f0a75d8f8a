"""Choice, probabilities and expected costs of a policy in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last
from mild.errors import UnsupportedError
from mild.policies import CostPolicy, Policy, ScorePolicy, StackPolicy, StandardizedPolicy

__all__ = ["Decisions", "decide_all"]


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions for n inputs.

    Attributes
    ----------
    chosen : (n,) index of the expert
    probabilities : (n, n_experts) estimate of each expert's share of the expected reward
    costs : (n, n_experts) expected costs; None where the router has not learned them
    values : (n, n_experts) the quantity that the choice maximises
    by : name of that quantity: "expected cost" (negated), "probability", "score" or "confidence"
    """

    chosen: IntArray
    probabilities: FloatArray
    costs: FloatArray | None
    values: FloatArray
    by: str


def decide_all(policy: Policy, X: Any) -> Decisions:
    """Decide for every row of X (n, n_features), float and finite. Scores are computed once.

    Examples
    --------
    >>> import numpy as np
    >>> from mild.policies import LinearCostPolicy
    >>> policy = LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 0.5]))
    >>> found = decide_all(policy, np.array([[0.25], [2.0]]))
    >>> found.chosen, found.costs.tolist()
    (array([0, 1]), [[0.25, 0.5], [2.0, 0.5]])
    """
    if isinstance(policy, StandardizedPolicy):
        return decide_all(policy.inner, (X - policy.mean) / policy.scale)
    if isinstance(policy, StackPolicy):
        return decide_all(policy.final, policy.features(X))
    if isinstance(policy, ScorePolicy):
        scores = policy.decision_function(X)
        shares = policy.decoder.distribution(scores)
        values, by = (scores, "score") if policy.decoder.by_argmax else (shares, "probability")
        return Decisions(argmax_last(values), shares, None, values, by)
    if isinstance(policy, CostPolicy):
        costs = policy.expected_costs(X)
        # A constant policy may choose an expert by name.
        least = type(policy).predict is CostPolicy.predict
        chosen = argmax_last(-costs) if least else policy.predict(X)
        return Decisions(chosen, policy.distribution_of(costs), costs, -costs, "expected cost")
    chosen, shares, values = policy.predict(X), policy.predict_proba(X), policy.decision_function(X)
    try:
        return Decisions(chosen, shares, policy.expected_costs(X), values, "expected cost")
    except UnsupportedError:
        return Decisions(chosen, shares, None, values, "confidence")

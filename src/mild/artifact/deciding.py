"""Choice, probabilities and expected costs in one pass: what is costly is worked out once."""

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
    """What a router makes of n inputs.

    Attributes
    ----------
    chosen : (n,) index of the expert
    probabilities : (n, n_experts) estimate of each expert's share of the expected reward
    costs : (n, n_experts) expected costs; None where the router has not learned them
    values : (n, n_experts) what the choice is the largest of
    by : what the values are: "expected cost" (with a minus), "probability", "score", "confidence"
    """

    chosen: IntArray
    probabilities: FloatArray
    costs: FloatArray | None
    values: FloatArray
    by: str


def decide_all(policy: Policy, X: Any) -> Decisions:
    """Decide for every row of X (n, n_features), float and finite.

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
        return _by_scores(policy, X)
    if isinstance(policy, CostPolicy):
        return _by_costs(policy, X)
    chosen, shares = policy.predict(X), policy.predict_proba(X)
    try:
        costs = policy.expected_costs(X)
    except UnsupportedError:
        return Decisions(chosen, shares, None, policy.decision_function(X), "confidence")
    return Decisions(chosen, shares, costs, policy.decision_function(X), "expected cost")


def _by_costs(policy: CostPolicy, X: Any) -> Decisions:
    costs = policy.expected_costs(X)
    # A constant may be told whom to ask.
    own = type(policy).predict is not CostPolicy.predict
    chosen = policy.predict(X) if own else argmax_last(-costs)
    return Decisions(chosen, policy.distribution_of(costs), costs, -costs, "expected cost")


def _by_scores(policy: ScorePolicy, X: Any) -> Decisions:
    scores = policy.decision_function(X)
    shares = policy.decoder.distribution(scores)
    if policy.decoder.by_argmax:
        return Decisions(argmax_last(scores), shares, None, scores, "score")
    return Decisions(argmax_last(shares), shares, None, shares, "probability")

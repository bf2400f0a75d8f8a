"""Policies: how a fitted router decides, in NumPy alone.

Estimators in ``mild.routers`` fit a policy and delegate to it; an artefact on disk is a policy.
Loading one and deciding needs neither scikit-learn nor scipy nor torch.
"""

from mild.policies.base import CostPolicy, Policy, ScorePolicy
from mild.policies.compose import (
    BlendPolicy,
    StackPolicy,
    StandardizedPolicy,
    TradeoffPolicy,
    believed_costs,
)
from mild.policies.costs import (
    ConstantPolicy,
    GroupPolicy,
    LinearCostPolicy,
    NearestPolicy,
    PricedPolicy,
)
from mild.policies.decoder import Decoder
from mild.policies.scores import CascadePolicy, LinearPolicy, PerceptronPolicy

_SCORES = (LinearPolicy, PerceptronPolicy, CascadePolicy)
_COSTS = (LinearCostPolicy, NearestPolicy, ConstantPolicy, PricedPolicy, GroupPolicy)
_COMPOSED = (StandardizedPolicy, BlendPolicy, StackPolicy, TradeoffPolicy)
POLICIES: dict[str, type[Policy]] = {
    policy.kind: policy for policy in (*_SCORES, *_COSTS, *_COMPOSED)
}

__all__ = [
    "POLICIES",
    "BlendPolicy",
    "CascadePolicy",
    "ConstantPolicy",
    "CostPolicy",
    "Decoder",
    "GroupPolicy",
    "LinearCostPolicy",
    "LinearPolicy",
    "NearestPolicy",
    "PerceptronPolicy",
    "Policy",
    "PricedPolicy",
    "ScorePolicy",
    "StackPolicy",
    "StandardizedPolicy",
    "TradeoffPolicy",
    "believed_costs",
]

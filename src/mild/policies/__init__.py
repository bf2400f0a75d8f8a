"""Policies: how a fitted router decides, with NumPy only.

Estimators in ``mild.routers`` fit a policy and delegate to it; an artefact on disk is a policy.
Loading one and deciding needs neither scikit-learn nor scipy nor torch.
"""

from mild.policies.base import POLICIES, CostPolicy, Decisions, Policy, ScorePolicy
from mild.policies.cascade import Accept, AgreementTable, Ask, CascadePolicy, CascadeRun
from mild.policies.compose import (
    BlendPolicy,
    StandardizedPolicy,
    TradeoffPolicy,
    believed_costs,
)
from mild.policies.costs import (
    ConstantPolicy,
    LinearCostPolicy,
    NearestPolicy,
    PricedPolicy,
)
from mild.policies.decoder import Decoder
from mild.policies.deferral import (
    READINGS,
    DeferralPolicy,
    DeferralValues,
    full_deferral_policy,
    score_network,
)
from mild.policies.mix import MixPolicy, cascade_of, cascades_of, mix_of, tradeoff_of
from mild.policies.scores import LinearPolicy, PerceptronPolicy

__all__ = [
    "POLICIES",
    "READINGS",
    "Accept",
    "AgreementTable",
    "Ask",
    "BlendPolicy",
    "CascadePolicy",
    "CascadeRun",
    "ConstantPolicy",
    "CostPolicy",
    "Decisions",
    "Decoder",
    "DeferralPolicy",
    "DeferralValues",
    "LinearCostPolicy",
    "LinearPolicy",
    "MixPolicy",
    "NearestPolicy",
    "PerceptronPolicy",
    "Policy",
    "PricedPolicy",
    "ScorePolicy",
    "StandardizedPolicy",
    "TradeoffPolicy",
    "believed_costs",
    "cascade_of",
    "cascades_of",
    "full_deferral_policy",
    "mix_of",
    "score_network",
    "tradeoff_of",
]

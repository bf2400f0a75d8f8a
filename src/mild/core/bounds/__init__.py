"""Guarantees: margin bound, Rademacher complexity, and the consistency inequality.

Derivations and proofs are in docs/theory.md.
"""

from mild.core.bounds.concavity import StrongConcavity, modulus_floor, strong_concavity
from mild.core.bounds.margin import MarginBound, margin_bound, router_bound
from mild.core.bounds.minimiser import exact_minimiser, minimal_risk
from mild.core.bounds.rademacher import (
    Estimate,
    feature_norms,
    rademacher_closed_form,
    rademacher_monte_carlo,
)
from mild.core.bounds.regret import Consistency, consistency

__all__ = [
    "Consistency",
    "Estimate",
    "MarginBound",
    "StrongConcavity",
    "consistency",
    "exact_minimiser",
    "feature_norms",
    "margin_bound",
    "minimal_risk",
    "modulus_floor",
    "rademacher_closed_form",
    "rademacher_monte_carlo",
    "router_bound",
    "strong_concavity",
]

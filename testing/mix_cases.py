"""Routers that mix two settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import mild
from answer_table_cases import answer_table, fitted_cascade
from mild.artifact import Router
from mild.policies import ConstantPolicy, MixPolicy
from mild.routers.cost_models import PricedRouter

QUERIES = [f"What is {number} + {7 * number % 41}? ({number})" for number in range(60)]


def mixed_router(share=0.4, salt="test") -> Router:
    """Two price weights of one router, of which the second asks the cheap experts more often."""
    table = answer_table(300)
    router = mild.fit(table, router=PricedRouter(), price_weight=1.0)
    first = router.policy.with_prices(price_weight=0.0)
    second = router.policy.with_prices(price_weight=15.0)
    return replace(router, policy=MixPolicy(first, second, share, salt))


def mixed_cascades(share=0.4, salt="test") -> Router:
    """A cascade, and always its strongest expert."""
    router = fitted_cascade(answer_table(300))
    strongest = ConstantPolicy(np.array([0.2, 0.25, 0.05]), router.n_features, 2)
    return replace(router, policy=MixPolicy(router.policy, strongest, share, salt))

"""Small routers of texts, for tests of both distributions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from frontier_cases import small_frontier
from mild.artifact import Router, RouterInfo
from mild.artifact.info import CostInfo
from mild.features import HashingFeatures
from mild.policies import LinearPolicy, PricedPolicy, TradeoffPolicy
from mild.policies.decoder import Decoder

TEXTS = ["2 + 2 = ?", "What is the capital of France?", "Add 3 and 4.", "Where is Rome?"]


@cache
def features():
    return HashingFeatures(n_components=2).fit(TEXTS)


def priced_router(names=("small", "large"), errors=(0.6, 0.1), prices=(0.001, 0.1), weight=1.0):
    """A router that expects the same of every text: errors and prices as given."""
    step = features()
    zero = np.zeros((len(names), step.n_features_), np.float32)
    policy = PricedPolicy(
        zero,
        np.array(errors, np.float32),
        zero,
        np.array(prices, np.float32),
        np.zeros(len(names), np.float32),
        weight,
        "ridge",
    )
    cost = CostInfo("error + 1 × dollars", None, 1.0, None)
    info = RouterInfo(cost=cost, fingerprint=f"errors {errors}")
    return Router(policy, names, info=info, text=step)


def trading_router(best=0.88, **errors):
    """The router of ``priced_router`` with a record of what its settings do on held-out rows."""
    router = priced_router()
    frontier = small_frontier(best, **errors).as_dict(router.experts)
    policy = TradeoffPolicy(router.policy, router.policy)
    return replace(router, policy=policy, info=replace(router.info, frontier=frontier))


def scored_router(names=("small", "large")):
    """A router with one head, which chooses the last expert."""
    step = features()
    zero = np.zeros((len(names), step.n_features_), np.float32)
    decoder = Decoder(np.ones(len(names)), "stationary", "logistic")
    intercept = np.arange(len(names), dtype=np.float32)
    return Router(LinearPolicy(zero, intercept, decoder), names, text=step)

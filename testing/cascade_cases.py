"""Routers that ask experts in steps and read their answers."""

from __future__ import annotations

import numpy as np

from mild.artifact import Router
from mild.features import HashingFeatures
from mild.policies import CascadePolicy, PricedPolicy
from mild.policies.cascade import AgreementTable

NAMES = ["small", "medium", "large", "spare"]
EASY, HARD = "What is 17 * 23?", "Prove that there are infinitely many primes of the form 4n + 3."


def cascade_router(text=True, steps=((0, 1), (2,)), n_features=4):
    """Asks small and medium, then large."""
    features = HashingFeatures(n_components=16).fit([EASY, HARD]) if text else None
    if features is not None:
        n_features = features.n_features_
    coef = np.zeros((4, n_features))
    if features is not None:
        # The small experts fail more on what is like HARD.
        easy, hard = features.transform([EASY, HARD])
        coef[:2] = (hard - easy) / ((hard - easy) @ (hard - easy))
    none, prices = np.zeros((4, n_features)), np.array([0.01, 0.02, 0.3, 0.4])
    errors = np.array([0.4, 0.35, 0.1, 0.5])
    heads = PricedPolicy(coef, errors, none, prices, np.zeros(4), 1.0, "ridge")
    order = [expert for step in steps for expert in step]
    codes = np.array([[0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 1, 1], [-1, 0, 1, 1]])[:, order]
    scores = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 0], [0, 0.5, 1, 0]])[:, order]
    table = AgreementTable.of_rows(codes, scores, np.array([200.0, 50.0, 5.0, 10.0]))
    policy = CascadePolicy("number", [list(step) for step in steps], 0.9, table, heads)
    return Router(policy, NAMES, text=features)

"""A small world of texts: three kinds of queries, three experts, and what each costs and gets wrong."""

from __future__ import annotations

import numpy as np

from mild.artifact import Router
from mild.features import HashingFeatures
from mild.policies import LinearCostPolicy

NAMES = ["small", "middle", "large"]
# Mean dollars of each expert on each kind of query.
DOLLARS = {
    "sum": (0.001, 0.004, 0.010),
    "place": (0.002, 0.004, 0.020),
    "code": (0.002, 0.006, 0.030),
}
# Probability of a wrong answer.
WRONG = {"sum": (0.1, 0.1, 0.05), "place": (0.6, 0.2, 0.1), "code": (0.9, 0.7, 0.1)}
FORMS = {
    "sum": "what is {} plus {} together",
    "place": "which city lies near number {} of region {}",
    "code": "def f(x): return x[{}] + {};",
}
# The expert of each kind, by the router that served and by a new one.
OLD = {"sum": "middle", "place": "middle", "code": "large"}
NEW = {"sum": "small", "place": "middle", "code": "large"}
KINDS = list(FORMS)


def texts_of(kinds, rng):
    return [FORMS[kind].format(*rng.integers(1, 99, 2)) for kind in kinds]


def make_router(best=NEW, names=NAMES):
    """A router that sends each kind of query to its expert."""
    rng = np.random.default_rng(0)
    kinds = KINDS * 60
    texts = texts_of(kinds, rng)
    features = HashingFeatures(n_components=16).fit(texts)
    X = np.column_stack([features.transform(texts), np.ones(len(texts))])
    costs = np.array([[float(best[kind] != name) for name in names] for kind in kinds])
    slopes = np.linalg.lstsq(X, costs, rcond=None)[0]
    policy = LinearCostPolicy(slopes[:-1].T.copy(), slopes[-1].copy())
    router = Router(policy, names, text=features)
    assert [names[k] for k in router.predict_texts(texts[:3])] == [best[kind] for kind in kinds[:3]]
    return router


def true_cost(best, weight=None, pinned=False):
    """Mean cost per request of a router; ``pinned`` for sessions that follow their first query."""
    total = 0.0
    for kind in KINDS:
        place = NAMES.index(best[kind])
        later = KINDS if pinned else [kind]
        for asked in later:
            dollars = DOLLARS[asked][place]
            cost = dollars
            if weight is not None:
                cost = WRONG[asked][place] + weight * dollars
            total += cost / len(later)
    return total / len(KINDS)

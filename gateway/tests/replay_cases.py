"""A small world of texts with known costs, logged by an old router that explored."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ledger_cases import record, write_all
from mild.artifact import Router
from mild.evaluation import replay_draws
from mild.features import HashingFeatures
from mild.policies import LinearCostPolicy
from mild_gateway.ledger.draws import read_draws

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
    features = HashingFeatures(dimensions=16).fit(texts)
    X = np.column_stack([features.transform(texts), np.ones(len(texts))])
    costs = np.array([[float(best[kind] != name) for name in names] for kind in kinds])
    slopes = np.linalg.lstsq(X, costs, rcond=None)[0]
    policy = LinearCostPolicy(slopes[:-1].T.copy(), slopes[-1].copy())
    router = Router(policy, names, text=features)
    assert [names[k] for k in router.predict_texts(texts[:3])] == [best[kind] for kind in kinds[:3]]
    return router


def make_log(draws=1500, explore=0.3, pinned=0.0, seed=0, names=NAMES, old=OLD, **fields):
    """Records, and request -> error; sessions go on with queries of any kind."""
    rng = np.random.default_rng(seed)
    records, errors = [], {}
    number = 0
    for draw in range(draws):
        length = int(rng.integers(2, 5)) if rng.random() < pinned else 1
        first = None
        for _ in range(length):
            kind = KINDS[rng.integers(3)]
            if first is None:
                best = old[kind]
                chosen = names[rng.integers(len(names))] if rng.random() < explore else best
                chance = explore / len(names) + (1 - explore) * (chosen == best)
            place = NAMES.index(chosen)
            entry = record(
                number, time=1e9 + number, expert=chosen, chosen=chosen, propensity=chance,
                price=float(DOLLARS[kind][place] * rng.gamma(4, 0.25)),
                text=texts_of([kind], rng)[0], session=f"s{draw}" if length > 1 else None,
                pinned_by=first,
            )  # fmt: skip
            for name, value in fields.items():
                setattr(entry, name, value)
            first = first or entry.request_id
            errors[entry.request_id] = float(rng.random() < WRONG[kind][place])
            records.append(entry)
            number += 1
    return records, errors


def true_cost(best, weight=None, pinned=False):
    """Mean cost per request of a router; ``pinned`` for sessions that follow their first query."""
    total = 0.0
    for kind in KINDS:
        place = NAMES.index(best[kind])
        later = KINDS if pinned else [kind]
        for asked in later:
            dollars, wrong = DOLLARS[asked][place], WRONG[asked][place]
            total += (dollars if weight is None else wrong + weight * dollars) / len(later)
    return total / len(KINDS)


def write_log(path, records, keep_text=True):
    return write_all(path, records, keep_text=keep_text, experts=NAMES)


def replay_log(
    read, router, *, texts=None, errors=None, weights=None, since=None, until=None, **options
):
    """What ``replay_draws`` says of the draws of a ledger."""
    left_out = Counter()
    draws = read_draws(read, left_out, texts, errors, weights, since, until)
    return replay_draws(draws, router, left_out=left_out, graded=errors is not None, **options)

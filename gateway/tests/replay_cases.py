"""The world of ``world_cases``, in a ledger of an old router that explored."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ledger_cases import record, write_all
from mild_gateway.learning.draws import read_draws
from mild_gateway.learning.estimating import replay_draws
from world_cases import (  # noqa: F401
    DOLLARS,
    KINDS,
    NAMES,
    NEW,
    OLD,
    WRONG,
    make_router,
    texts_of,
    true_cost,
)


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
                pinned_by=first, preferred=best if first is None else None,
            )  # fmt: skip
            for name, value in fields.items():
                setattr(entry, name, value)
            first = first or entry.request_id
            errors[entry.request_id] = float(rng.random() < WRONG[kind][place])
            records.append(entry)
            number += 1
    return records, errors


def write_log(path, records, keep_text=True):
    return write_all(path, records, keep_text=keep_text, experts=NAMES)


def replay_log(
    read, router, *, texts=None, errors=None, weights=None, since=None, until=None, **options
):
    """What ``replay_draws`` says of the draws of a ledger."""
    left_out = Counter()
    draws = read_draws(read, left_out, texts, errors, weights, since, until)
    return replay_draws(draws, router, left_out=left_out, graded=errors is not None, **options)

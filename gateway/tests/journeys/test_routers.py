"""Routers of every kind that ``mild tune`` and ``mild fit`` save are served, learned from and exported."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from journeys import adapter
from journeys.processes import mild, served
from journeys.world import (
    PRICE_WEIGHT,
    ask,
    experts_of,
    outcomes,
    questions,
    send_feedback,
    set_knowledge,
)
from model_server import ModelServer
from waiting import wait_until

pytestmark = pytest.mark.slow

TABLE = "log.parquet"
# ``learn`` runs in earnest for these, and only judges for the others.
IN_EARNEST = ("tuned to a price weight", "tuned to a target")
# For each kind of router.
ROUTED = {"plus": 20, "river": 20, "primes": 20}
ROUTERS = {
    "tuned to a price weight": adapter.tune(TABLE, adapter.ROUTER, price_weight=PRICE_WEIGHT),
    "tuned to a target": adapter.tune(TABLE, adapter.ROUTER, keep_quality=0.95),
    "cascade": adapter.tune(TABLE, adapter.ROUTER, price_weight=2, cascade=True),
    "linear": adapter.fit(TABLE, adapter.ROUTER, "linear", PRICE_WEIGHT),
    "ridge": adapter.fit(TABLE, adapter.ROUTER, "ridge", PRICE_WEIGHT),
    "priced": adapter.fit(TABLE, adapter.ROUTER, "priced", PRICE_WEIGHT),
    "nearest neighbours": adapter.fit(TABLE, adapter.ROUTER, "knn", PRICE_WEIGHT),
    "constant": adapter.fit(TABLE, adapter.ROUTER, "constant", PRICE_WEIGHT),
    "neural": adapter.fit(TABLE, adapter.ROUTER, "neural", PRICE_WEIGHT),
}


def test_routers_of_every_kind_are_served_learned_from_and_exported(tmp_path):
    rng = np.random.default_rng(11)
    table = outcomes(rng, questions(rng, {"plus": 40, "river": 40, "primes": 40}))
    pq.write_table(table, tmp_path / TABLE)
    n_routed = sum(ROUTED.values())
    with ModelServer() as models:
        set_knowledge(models)
        adapter.write_config(tmp_path, experts_of(models), explore=0.3)
        # The gateway needs one to start with.
        mild(tmp_path, adapter.fit(TABLE, adapter.ROUTER, "priced", PRICE_WEIGHT))
        with served(tmp_path) as gateway:
            serving = wait_until(lambda: gateway.routers)

            def served_anew():
                routers = gateway.routers
                return routers if routers - serving else None

            for n_routers, (name, words) in enumerate(ROUTERS.items(), start=1):
                mild(tmp_path, words)
                serving = wait_until(served_anew)
                asked = questions(rng, ROUTED)
                models.set_answers(asked)
                n_before = len(models.received())
                send_feedback(gateway, ask(gateway, asked))
                n_calls = len(models.received()) - n_before
                assert (n_calls > n_routed) == (name == "cascade")
                words = adapter.learn(TABLE, dry_run=name not in IN_EARNEST)
                learned = adapter.read_learned(mild(tmp_path, words, adapter.NOT_PROMOTED).figures)
                # So few judge that it cannot be promoted.
                assert not learned.promoted
                assert gateway.routers == serving
                assert learned.n_answers == n_routers * n_routed
                # At most the newer half judges: of a cascade, only answers that chance has picked.
                assert 0 < learned.n_judged <= n_routed / 2
                assert math.isfinite(learned.gain)
            assert gateway.stop() == 0
        for file in ("all.jsonl", "all.parquet"):
            mild(tmp_path, adapter.export_ledger(file))
            rows = adapter.read_rows(tmp_path / file)
            assert sorted(Counter(row.router for row in rows).values()) == [n_routed] * len(ROUTERS)
            assert {row.score for row in rows} == {0.0, 1.0}

"""An expert becomes another model and forgets what it knew: ``ledger show`` says so, and how surely."""

from __future__ import annotations

import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from journeys import adapter
from journeys.processes import mild, served
from journeys.world import (
    PRICE_WEIGHT,
    TOKENS,
    WRONG,
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


def test_the_ledger_shows_that_an_expert_has_changed(tmp_path):
    rng = np.random.default_rng(3)
    table = outcomes(rng, questions(rng, {"plus": 60, "river": 60, "primes": 60}))
    pq.write_table(table, tmp_path / "log.parquet")
    mild(tmp_path, adapter.tune("log.parquet", adapter.ROUTER, price_weight=PRICE_WEIGHT))
    before, after = questions(rng, {"plus": 260}), questions(rng, {"plus": 120})

    def drift():
        return adapter.read_drift(mild(tmp_path, adapter.show_ledger()).figures)

    with ModelServer() as models:
        for part in (before, after):
            models.set_answers(part)
        adapter.write_config(tmp_path, experts_of(models))
        with served(tmp_path) as gateway:
            set_knowledge(models)
            answered = ask(gateway, before)
            send_feedback(gateway, answered)
            n_small = sum(expert == "small" for _, expert, _ in answered)
            assert n_small > 250
            found = drift()
            assert found.versions == {}
            ((expert, change),) = found.changes.items()
            assert expert == "small"
            assert change.low < 0 < change.high

            # From now on, small is another model, which knows less.
            models.set_rules(
                "small-model",
                {"right": 0.3, "wrong": WRONG["small"], "tokens": TOKENS, "reports": "small-2"},
            )
            first = len(answered)
            answered += ask(gateway, after)
            send_feedback(gateway, answered[first:])
            found = drift()
            assert found.versions == {"small": ["small-model", "small-2"]}
            change = found.changes["small"]
            scores = [score for _, expert, score in answered if expert == "small"]
            difference = np.mean(scores[200:][-200:]) - np.mean(scores[:200])
            assert change.mean == pytest.approx(difference)
            assert change.low < difference < change.high < 0

            # One request in a second is looked at for novelty.
            for text, right in list(after.items())[:45]:
                ask(gateway, {text: right})
                time.sleep(1)
            n_looked_at, low, high = wait_until(lambda: drift().novel)
            assert n_looked_at >= 30
            assert 0 <= low < high < 0.5
            assert gateway.stop() == 0
    shown = mild(tmp_path, adapter.show_ledger()[:-1]).out
    assert "small-2" in shown
    assert "novel" in shown

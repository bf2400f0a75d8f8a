"""Margins that are searched on rows which the network has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.llm.transformer import TransformerRouter
from experiments.llm.transformer.router import held_out_rows
from mild.core.costs import cheapest
from transformer_cases import make_task

TEXTS, COSTS = make_task(120)
FAST = {
    "lr": 3e-3,
    "head_lr": 3e-2,
    "batch_size": 16,
    "max_length": 16,
    "epochs": 3,
    "pooling": "mean",
    "margins": "tuned",
}


def test_a_fifth_is_held_out_with_every_expert_in_its_share():
    labels = np.repeat([0, 1, 2], [150, 40, 10])
    rest, held = held_out_rows(1 - np.eye(3)[labels], 0)
    assert len(held) == 40
    assert sorted([*rest, *held]) == list(range(200))
    assert np.bincount(labels[held]).tolist() == [30, 8, 2]
    assert not np.array_equal(held, held_out_rows(1 - np.eye(3)[labels], 1)[1])


def test_tuned_margins_have_the_sum_that_was_asked_for_and_repeat_themselves(models):
    first = TransformerRouter(models["bert"], total=6.0, **FAST).fit(TEXTS, COSTS)
    assert first.margins_.sum() == pytest.approx(6.0)
    assert (first.margins_ > 0).all()
    second = TransformerRouter(models["bert"], total=6.0, **FAST).fit(TEXTS, COSTS)
    np.testing.assert_array_equal(first.margins_, second.margins_)
    assert first.get_params()["margins"] == "tuned"
    assert set(cheapest(COSTS)) == set(first.predict(TEXTS))


def test_too_few_rows_leave_the_theory(models):
    tuned = TransformerRouter(models["bert"], **FAST).fit(TEXTS[:40], COSTS[:40])
    theory = TransformerRouter(models["bert"], **{**FAST, "margins": "theory"})
    np.testing.assert_array_equal(tuned.margins_, theory.fit(TEXTS[:40], COSTS[:40]).margins_)

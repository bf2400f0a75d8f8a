"""Batches, the schedule, the network and the groups of the optimiser."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks are trained with it")

from experiments.llm.transformer.network import (  # noqa: E402
    DensePooledEncoder,
    RoutingNetwork,
    batches,
)
from experiments.llm.transformer.router import warmup_rate  # noqa: E402
from mild.features.pooling import PooledEncoder  # noqa: E402
from mild.routers.neural.training import make_optimizer  # noqa: E402


class Ramp(torch.nn.Module):
    """The hidden state of a token is its number, and its number squared."""

    def forward(self, input_ids, attention_mask):
        values = input_ids.float()
        hidden = torch.stack([values, values**2], dim=-1)
        return type("Output", (), {"last_hidden_state": hidden})


ROWS = [np.array([3, 4, 5]), np.array([2]), np.array([7, 1])]


def test_all_rows_are_in_one_batch_each_of_nearly_equal_size():
    lengths = np.random.default_rng(1).integers(1, 50, 103)
    parts = batches(np.arange(103), lengths, 16, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(103))
    assert {len(part) for part in parts} == {14, 15}


def test_texts_of_like_length_are_put_together_and_batches_are_shuffled():
    lengths = np.random.default_rng(1).permutation(256)
    parts = batches(np.arange(256), lengths, 16, np.random.default_rng(0))
    assert all(np.ptp(lengths[part]) == 15 for part in parts)
    means = [lengths[part].mean() for part in parts]
    assert means != sorted(means)


def test_the_rate_rises_then_falls_to_zero():
    rates = [warmup_rate(step, 100, 0.1) for step in range(100)]
    assert rates[9] == 1.0
    assert rates[0] == 0.1
    assert np.all(np.diff(rates[10:]) < 0)
    assert 0 < rates[-1] < 0.02
    assert warmup_rate(0, 1, 0.0) == 1.0


def test_pooling_leaves_padding_out():
    mean = RoutingNetwork(PooledEncoder(Ramp(), "mean", 2), 2, pad=9).embed(ROWS)
    np.testing.assert_allclose(mean, [[4, 50 / 3], [2, 4], [4, 25]], rtol=1e-6)
    first = RoutingNetwork(PooledEncoder(Ramp(), "cls", 2), 2, pad=9).embed(ROWS)
    np.testing.assert_allclose(first, [[3, 9], [2, 4], [7, 49]])
    unit = RoutingNetwork(PooledEncoder(Ramp(), "mean", 2, True), 2, pad=9).embed(ROWS)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)


def test_all_experts_start_equal_and_training_mode_scores_alike():
    network = RoutingNetwork(PooledEncoder(Ramp(), "mean", 2), 3, pad=0)
    assert torch.equal(network.train()(ROWS), torch.zeros(3, 3))
    torch.nn.init.normal_(network.head.weight)
    torch.testing.assert_close(network.train()(ROWS), network.eval()(ROWS))


def test_decay_spares_vectors_and_the_head_has_its_own_rate():
    network = RoutingNetwork(DensePooledEncoder(Ramp(), "cls", 2), 3, pad=0)
    parts = [(network.encoder, 5e-5), (network.head, 1e-3)]
    groups = make_optimizer(parts, 0.01).param_groups
    found = [(g["lr"], g["weight_decay"], [v.ndim for v in g["params"]]) for g in groups]
    assert found == [(5e-5, 0.01, [2]), (5e-5, 0.0, [1]), (1e-3, 0.01, [2]), (1e-3, 0.0, [1])]

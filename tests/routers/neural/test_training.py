"""The training loop: batches, schedule, optimizers, generators."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from mild.routers.neural import NeuralRouter  # noqa: E402
from mild.routers.neural.training import learning_rate, own_randomness  # noqa: E402


def two_experts(n):
    X = np.arange(n, dtype=float)[:, None] / n
    return X, np.column_stack([X[:, 0] > 0.5, X[:, 0] <= 0.5]).astype(float)


def on_cpu(module=None, **options):
    return NeuralRouter(module, device="cpu", **options)


SEEN: list[list[float]] = []


class Watcher(nn.Linear):
    """Writes down the rows that it is trained on."""

    def forward(self, x):
        if self.training:
            SEEN.append(x[:, 0].tolist())
        return super().forward(x)


@pytest.mark.parametrize(("n", "batch_size", "sizes"), [(10, 4, [4, 3, 3]), (7, 100, [7])])
def test_every_epoch_sees_every_row_once_in_batches_of_nearly_equal_size(n, batch_size, sizes):
    SEEN.clear()
    X, costs = two_experts(n)
    on_cpu(Watcher, epochs=2, batch_size=batch_size, validation_fraction=0).fit(X, costs)
    assert [len(batch) for batch in SEEN] == sizes * 2
    epochs = [[*chain(*SEEN[: len(sizes)])], [*chain(*SEEN[len(sizes) :])]]
    for rows in epochs:
        assert_allclose(sorted(rows), X[:, 0], rtol=1e-6)
    assert epochs[0] != epochs[1]


def test_rows_held_out_are_never_trained_on():
    SEEN.clear()
    X, costs = two_experts(40)
    on_cpu(Watcher, epochs=3, validation_fraction=0.25).fit(X, costs)
    assert len({round(value, 6) for value in chain(*SEEN)}) == 30


@pytest.mark.parametrize("steps", [10, 11, 37, 500])
def test_the_one_cycle_is_that_of_torch(steps):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=steps, cycle_momentum=False
    )
    expected = []
    for step in range(steps):
        expected.append(cycle.get_last_lr()[0])
        optimizer.step()
        if step < steps - 1:
            cycle.step()
    assert_allclose([learning_rate(step, steps) for step in range(steps)], expected, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_shortest_cycles_have_a_rate_too(steps):
    assert all(0 < learning_rate(step, steps) <= 1 for step in range(steps))


def test_the_schedule_ends_near_zero_and_the_constant_rate_is_constant():
    X, costs = two_experts(20)
    cycle = on_cpu(epochs=20, lr=0.1, schedule="onecycle", validation_fraction=0).fit(X, costs)
    rates = [record["learning_rate"] for record in cycle.history_]
    assert rates[-1] == pytest.approx(0.1 / 25e4)
    assert max(rates) == pytest.approx(0.1)
    flat = on_cpu(epochs=3, lr=0.1).fit(X, costs)
    assert [record["learning_rate"] for record in flat.history_] == [0.1] * 3


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_every_optimizer_lowers_the_loss(optimizer):
    X, costs = two_experts(40)
    router = on_cpu(optimizer=optimizer, lr=0.02, epochs=30, batch_size=20).fit(X, costs)
    assert router.history_[-1]["loss"] < 0.8 * router.history_[0]["loss"]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_weight_decay_shrinks_matrices_and_spares_biases(optimizer):
    X, _ = two_experts(20)
    module = nn.Linear(1, 2)
    # Far enough from 0 that no step goes past it.
    nn.init.constant_(module.weight, 1.0)
    router = on_cpu(
        module, optimizer=optimizer, weight_decay=0.1, lr=0.1, epochs=3, validation_fraction=0,
        rewards="contrast",
    )  # fmt: skip
    with pytest.warns(UserWarning, match="nothing to learn"):
        trained = router.fit(X, np.ones((20, 2))).policy_.module
    assert (trained.weight.abs() < module.weight.abs()).all()
    assert_array_equal(trained.bias.detach(), module.bias.detach())


def test_the_loss_of_the_first_epoch_is_that_of_equal_scores():
    X, costs = two_experts(20)
    router = on_cpu(epochs=1, batch_size=20, validation_fraction=0, margins="uniform")
    assert router.fit(X, costs).history_[0]["loss"] == pytest.approx(np.log(2))


def test_generators_are_put_back_also_after_an_error():
    before = torch.get_rng_state()
    draws = []

    def draw():
        with own_randomness(torch.device("cpu")) as reseed:
            reseed(7)
            draws.append(torch.rand(3))
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            draw()
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(torch.get_rng_state(), before)

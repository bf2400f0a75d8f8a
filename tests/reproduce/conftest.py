"""A linear stand-in for the ResNet: it minimises the very loss that it is given, in milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mild.reproduce.diverged import DivergedError
from mild.reproduce.images.protocol import PROTOCOLS
from mild.reproduce.methods import Method
from mild.reproduce.requests import Request

STEPS = 40


class QuickNetwork:
    """Scores are linear in the pixels."""

    seconds = 0.25
    images_per_second = 4000.0

    def __init__(self, images, n_outputs, loss, seed):
        import torch  # most tests of this folder do without

        generator = torch.Generator().manual_seed(seed)
        inputs = self._inputs(images)
        rows = torch.arange(len(images))
        self.weights = 0.01 * torch.randn(inputs.shape[1], n_outputs, generator=generator)
        self.weights.requires_grad_()
        optimizer = torch.optim.Adam([self.weights], 0.05)
        for _ in range(STEPS):
            optimizer.zero_grad()
            value = loss(inputs @ self.weights, rows).mean()
            value.backward()
            optimizer.step()
        self.history = [{"epoch": 1, "loss": float(value.detach())}]

    @staticmethod
    def _inputs(images):
        import torch

        flat = torch.as_tensor(images.reshape(len(images), -1), dtype=torch.float32) / 255
        return torch.cat([flat, torch.ones(len(flat), 1)], dim=1)

    def scores(self, images):
        return (self._inputs(images) @ self.weights).detach().numpy()

    def features(self, images):
        return self._inputs(images)[:, :32].numpy()


class Trainings(list):
    """Identities of the trainings that were run; one may be told to fail, and some to diverge."""

    fail_at: int | None = None
    diverge_at: tuple[int, ...] = ()
    broken = False
    tried = 0

    def train(
        self,
        images,
        n_outputs,
        loss,
        protocol,
        seed,
        *,
        flip,
        device,
        checkpoint,
        identity,
        progress,
        evaluate=None,
    ):
        if len(self) == self.fail_at:
            self.fail_at = None
            raise KeyboardInterrupt
        self.tried += 1
        if self.tried - 1 in self.diverge_at:
            raise DivergedError("training diverged in epoch 1.")
        self.append({**identity, "seed": seed, "rows": len(images), "checkpoint": checkpoint})
        network = QuickNetwork(images, n_outputs, loss, seed)
        if self.broken:
            network.weights = network.weights * float("nan")
        if progress is not None:
            progress(protocol.epochs, protocol.epochs, "loss 0.1")
        return network


@pytest.fixture
def trainings(monkeypatch):
    """Networks are replaced by linear ones; the list says which were trained."""
    kept = Trainings()
    monkeypatch.setattr("mild.reproduce.routing.train_network", kept.train)
    monkeypatch.setattr("mild.reproduce.images.training.train_network", kept.train)
    return kept


@pytest.fixture
def make_request(tmp_path):
    """A small request on digits; keywords change it."""

    def make(table="table1", **fields) -> Request:
        usual = {
            "datasets": ("digits",),
            "costs": ("error",),
            "seeds": 1,
            "device": "cpu",
            "protocol": PROTOCOLS["fast"].changed(epochs=1, width=2, batch_size=128),
            "checkpoint_dir": tmp_path / "checkpoints",
        }
        fields = {**usual, **fields}
        if "methods" in fields:
            fields["methods"] = tuple(Method.parse(text) for text in fields["methods"])
        return Request.of(
            table, results=Path(fields.pop("results", tmp_path / "r.jsonl")), **fields
        )

    return make


@pytest.fixture
def costs():
    """Error costs of three experts, float32, with ties and with rows of no difference."""
    rng = np.random.default_rng(0)
    return (rng.random((200, 3)) < [0.2, 0.5, 0.7]).astype(np.float32)

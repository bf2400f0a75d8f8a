"""Small problems and networks for the tests of neural routers."""

from __future__ import annotations

import numpy as np
from torch import nn

from mild.routers.neural import NeuralRouter


def three_experts(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.abs(2 + X @ rng.normal(size=(4, 3)) + 0.3 * rng.normal(size=(n, 3)))


def quick(module=None, **options):
    defaults = {"hidden": (8,), "epochs": 5, "batch_size": 32, "lr": 0.01, "device": "cpu"}
    return NeuralRouter(module, **{**defaults, **options})


class Dropout(nn.Module):
    """A network with randomness of its own and with buffers."""

    def __init__(self, n_features, n_experts):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, n_experts)
        )

    def forward(self, x):
        return self.layers(x)

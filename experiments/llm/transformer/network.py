"""The network: an encoder with pooling, a linear head that scores experts, and its training data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import IntArray
from mild.features.base import Rows
from mild.features.pooling import PooledEncoder, encode_rows, model_inputs
from mild.features.pretrained import Ids
from mild.routers.neural.network import Problem

# Batches among whose texts those of similar length are put together: less padding, still random.
POOL = 16


class DensePooledEncoder(PooledEncoder):
    """A pooled encoder whose vectors go through a layer and a GELU, as in DeBERTa."""

    def __init__(self, model: nn.Module, pooling: str, width: int) -> None:
        super().__init__(model, pooling, width)
        self.dense = nn.Linear(width, width)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        pooled = super().forward(input_ids, attention_mask)
        return nn.functional.gelu(self.dense(pooled))


class RoutingNetwork(nn.Module):
    """Token numbers to scores (n, n_experts). The head is initialised to 0, so that experts start equal.

    ``pad`` is the padding token, ``dropout`` the share of the vector that is dropped in training, and
    ``precision`` that of the products of training on CUDA.
    """

    def __init__(
        self,
        encoder: PooledEncoder,
        n_experts: int,
        pad: int,
        dropout: float = 0.0,
        precision: str = "float32",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.width, n_experts)
        for value in self.head.parameters():
            nn.init.zeros_(value)
        self.pad = pad
        self.precision = precision

    def forward(self, rows: Sequence[Ids]) -> Tensor:
        """Scores (n, n_experts); in training all rows are one batch."""
        if not self.training:
            return torch.as_tensor(self.head(self.vectors(rows)))
        device = self.head.weight.device
        lower = self.precision == "bfloat16" and device.type == "cuda"
        with torch.autocast(device.type, torch.bfloat16, enabled=lower):
            vectors = self.encoder(*model_inputs(rows, self.pad, device))
        return torch.as_tensor(self.head(self.dropout(vectors.float())))

    def vectors(self, rows: Sequence[Ids]) -> Tensor:
        """Vectors (n, width) in float32, without gradients."""
        return encode_rows(self.encoder, rows, self.pad, self.head.weight.device)

    def embed(self, rows: Sequence[Ids]) -> Rows:
        """Vectors (n, width) as an array; the network is left in evaluation mode."""
        self.eval()
        return np.asarray(self.vectors(rows).cpu().numpy(), np.float32)


class TextProblem(Problem):
    """A problem whose inputs are the token numbers of texts."""

    def __init__(self, tokens: Sequence[Ids], *given: Any) -> None:
        # Texts have no columns of numbers.
        super().__init__(np.empty((len(tokens), 0), np.float32), *given)
        self.tokens = tokens
        self.lengths = np.array([len(row) for row in tokens])

    def inputs(self, rows: IntArray) -> Any:
        return [self.tokens[row] for row in rows]

    def batches(self, size: int, rng: np.random.Generator) -> list[IntArray]:
        return batches(self.train, self.lengths, size, rng)


def batches(
    rows: IntArray, lengths: IntArray, size: int, rng: np.random.Generator
) -> list[IntArray]:
    """All rows in batches whose sizes differ by at most one, in random order, of similar length each.

    >>> parts = batches(np.arange(5), np.array([9, 1, 8, 2, 3]), 2, np.random.default_rng(0))
    >>> sorted(sorted(part.tolist()) for part in parts)
    [[0], [1, 3], [2, 4]]
    """
    steps = math.ceil(len(rows) / size)
    order = rng.permutation(rows)
    pools = np.array_split(order, math.ceil(steps / POOL))
    alike = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    parts = np.array_split(alike, steps)
    return [parts[place] for place in rng.permutation(steps)]

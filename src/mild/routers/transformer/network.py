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
from mild.features.pretrained import Ids, batches_by_length, padded
from mild.routers.neural.network import Problem

# Batches among whose texts those of similar length are put together: less padding, still random.
POOL = 16


class PooledEncoder(nn.Module):
    """Token numbers and their mask (n, length) to vectors (n, width) of a module of transformers.

    Vectors are the mean of the tokens or the first one ("cls"), if ``dense`` with a layer and a GELU, as in
    DeBERTa, and if ``normalize`` scaled to norm 1.
    """

    def __init__(
        self, model: nn.Module, pooling: str, width: int, dense: bool, normalize: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.width = width
        self.normalize = normalize
        self.dense = nn.Linear(width, width) if dense else None
        if self.dense is not None:
            nn.init.normal_(self.dense.weight, std=0.02)
            nn.init.zeros_(self.dense.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "cls":
            rows = hidden[:, 0]
        else:
            kept = attention_mask[..., None].to(hidden.dtype)
            rows = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1)
        if self.dense is not None:
            rows = nn.functional.gelu(self.dense(rows))
        return nn.functional.normalize(rows, dim=1) if self.normalize else rows


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
        device = self.head.weight.device.type
        lower = self.precision == "bfloat16" and device == "cuda"
        with torch.autocast(device, torch.bfloat16, enabled=lower):
            vectors = self.encoder(*self._inputs(rows))
        return torch.as_tensor(self.head(self.dropout(vectors.float())))

    def vectors(self, rows: Sequence[Ids]) -> Tensor:
        """Vectors (n, width) in float32, without gradients."""
        result = torch.empty((len(rows), self.encoder.width), device=self.head.weight.device)
        with torch.no_grad():
            for places in batches_by_length(rows):
                result[places] = self.encoder(*self._inputs([rows[place] for place in places]))
        return result

    def embed(self, rows: Sequence[Ids]) -> Rows:
        """Vectors (n, width) as an array; the network is left in evaluation mode."""
        self.eval()
        return np.asarray(self.vectors(rows).cpu().numpy(), np.float32)

    def _inputs(self, rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        device = self.head.weight.device
        ids, mask = padded(rows, self.pad)
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


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

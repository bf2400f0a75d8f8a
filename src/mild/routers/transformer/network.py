"""The network: an encoder, its tokens pooled into one vector, and a linear head that scores experts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mild.features.base import Rows
from mild.features.tokens import Ids, batches_by_length, padded

__all__ = ["PooledEncoder", "RoutingNetwork"]


class PooledEncoder(nn.Module):
    """Token numbers and their mask (n, length) to vectors (n, width).

    Parameters
    ----------
    model : module of transformers
    pooling : "mean" of the tokens, or the first one ("cls")
    width : numbers per vector
    dense : whether a layer and a GELU follow, as after the first token of DeBERTa
    normalize : whether vectors are scaled to norm 1
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
        """Vectors (n, width)."""
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
    """Lists of token numbers to scores (n, n_experts). All experts start equal: the head is 0 at first.

    Parameters
    ----------
    encoder : PooledEncoder
    n_experts : int
    pad : number of the padding token
    dropout : share of the vector that is dropped in training
    precision : "float32", or "bfloat16" for the products of training on CUDA
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
        """Scores (n, n_experts); one batch in training, as many as it takes otherwise."""
        if self.training:
            with self._autocast():
                vectors = self.encoder(*self._inputs(rows))
            scores: Tensor = self.head(self.dropout(vectors.float()))
            return scores
        scored: Tensor = self.head(self.vectors(rows))
        return scored

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

    def _autocast(self) -> AbstractContextManager[Any]:
        device = self.head.weight.device
        if self.precision == "float32" or device.type != "cuda":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16)

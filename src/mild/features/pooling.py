"""Vectors of texts from an encoder's token vectors, as a torch module. Importing this imports torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mild.features.pretrained import Ids, batches_by_length, padded


class PooledEncoder(nn.Module):
    """Turns token numbers and their mask (n, length) into vectors (n, width).

    Parameters
    ----------
    model : torch.nn.Module
        A model of transformers.
    pooling : {"mean", "cls"}
        Whether the vector of a text is the mean of its tokens' or that of the first token.
    width : int
        Width of the vectors.
    normalize : bool, default=False
        Whether vectors are scaled to norm 1.
    """

    def __init__(self, model: nn.Module, pooling: str, width: int, normalize: bool = False) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.width = width
        self.normalize = normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "cls":
            rows = hidden[:, 0]
        else:
            kept = attention_mask[..., None].to(hidden.dtype)
            rows = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1)
        if self.normalize:
            rows = nn.functional.normalize(rows, dim=1)
        return torch.as_tensor(rows)


def model_inputs(rows: Sequence[Ids], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token numbers and their mask (n, length) on a device; ``pad`` is the padding token."""
    ids, mask = padded(rows, pad)
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def encode_rows(
    encoder: PooledEncoder, rows: Sequence[Ids], pad: int, device: torch.device
) -> Tensor:
    """Vectors (n, width) in float32 of token numbers, without gradients, in batches of like length.

    ``device`` is that of the encoder.
    """
    vectors = torch.empty((len(rows), encoder.width), device=device)
    with torch.no_grad():
        for indices in batches_by_length(rows):
            batch = [rows[index] for index in indices]
            input_ids, attention_mask = model_inputs(batch, pad, device)
            vectors[indices] = encoder(input_ids, attention_mask)
    return vectors

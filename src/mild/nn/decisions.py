"""Decisions from scores as tensors: computed by ``mild.core.decisions``, returned on the scores' device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mild.core import decisions
from mild.nn.tensors import Margins, Vector, float_matrix, to_numpy


def decide(
    scores: Tensor,
    margins: Vector | float | Margins | None = None,
    rule: str = "stationary",
    surrogate: object = "logistic",
) -> Tensor:
    """Expert of each row, ties to the highest index: an int64 tensor (n_samples,).

    ``rule`` is "stationary" (consistent) or "argmax" (the paper's).

    Examples
    --------
    >>> decide(torch.tensor([[-0.2036, 0.0]]), [2 / 3, 1 / 3])
    tensor([0])
    """
    f = float_matrix("scores", scores)
    chosen = decisions.decide(to_numpy(f), _to_numpy(margins), rule, surrogate)
    return torch.from_numpy(chosen).to(f.device, torch.int64)


def stationary_distribution(
    scores: Tensor, margins: Vector | float | Margins | None = None, surrogate: object = "logistic"
) -> Tensor:
    """The reward distribution (n_samples, n_experts) for which each row of scores is the exact minimiser.

    Computed in float64; no gradient flows through it. The hinge and tau >= 2 have no unique decoding and
    are refused.

    Examples
    --------
    >>> stationary_distribution(torch.tensor([[-0.2036, 0.0]]), [2 / 3, 1 / 3])
    tensor([[0.5500, 0.4500]])
    """
    f = float_matrix("scores", scores)
    found = decisions.stationary_distribution(to_numpy(f), _to_numpy(margins), surrogate)
    return torch.from_numpy(found).to(f.dtype).to(f.device)


def _to_numpy(margins: Any) -> Any:
    if isinstance(margins, Margins):
        return np.array(margins.distinct)[margins.group_of.cpu().numpy()]
    return to_numpy(margins)

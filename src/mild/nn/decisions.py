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
    decision: str = "stationary",
    surrogate: object = "logistic",
) -> Tensor:
    """Return the expert to choose in each row of scores; ties go to the highest index.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    margins : tensor of shape (n_experts,), sequence, float or Margins, default=None
        Positive margins that the scores were trained with. None means that all margins are equal.
    decision : {"stationary", "argmax"}, default="stationary"
        "argmax" takes the largest score, as in the paper. "stationary" takes the largest expected reward,
        by ``stationary_distribution``; it is consistent for any margins. With equal margins
        the two agree.
    surrogate : str or float, default="logistic"
        The surrogate that the scores were trained with.

    Returns
    -------
    chosen : tensor of int of shape (n_samples,)
        Index of the expert of each row.

    Examples
    --------
    >>> decide(torch.tensor([[-0.2036, 0.0]]), [2 / 3, 1 / 3])
    tensor([0])
    """
    f = float_matrix("scores", scores)
    chosen = decisions.decide(to_numpy(f), _to_numpy(margins), decision, surrogate)
    return torch.from_numpy(chosen).to(f.device, torch.int64)


def stationary_distribution(
    scores: Tensor, margins: Vector | float | Margins | None = None, surrogate: object = "logistic"
) -> Tensor:
    """Return the distribution of rewards over experts for which each row of scores minimises the loss.

    It estimates ``E[reward_k] / E[sum_j reward_j]``, and is ``softmax(f / rho)`` if all margins are equal.
    It is computed in float64; no gradient flows through it.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    margins : tensor of shape (n_experts,), sequence, float or Margins, default=None
        Positive margins that the scores were trained with. None stands for all ones.
    surrogate : str or float, default="logistic"
        The surrogate that the scores were trained with. The hinge and tau >= 2 do not determine a unique
        distribution and are refused.

    Returns
    -------
    distribution : tensor of shape (n_samples, n_experts)
        Estimated reward distribution; each row sums to 1.

    Examples
    --------
    >>> stationary_distribution(torch.tensor([[-0.2036, 0.0]]), [2 / 3, 1 / 3])
    tensor([[0.5500, 0.4500]])
    """
    f = float_matrix("scores", scores)
    distribution = decisions.stationary_distribution(to_numpy(f), _to_numpy(margins), surrogate)
    return torch.from_numpy(distribution).to(f.dtype).to(f.device)


def _to_numpy(margins: Any) -> Any:
    """Return margins as ``mild.core`` takes them; those of ``Margins`` with their exact values."""
    if isinstance(margins, Margins):
        return np.array(margins.distinct)[margins.group_of.cpu().numpy()]
    return to_numpy(margins)

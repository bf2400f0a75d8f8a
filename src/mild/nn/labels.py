"""Label-based baselines as tensors: the cheapest expert is the label."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.core.arrays import invalid
from mild.errors import InvalidInputError
from mild.nn.tensors import Vector, check_labels, check_vector, float_matrix

__all__ = [
    "class_dependent_temperature_loss",
    "cross_entropy_loss",
    "ldam_loss",
    "logit_adjusted_loss",
]


def cross_entropy_loss(scores: Tensor, labels: Tensor, weights: Vector | None = None) -> Tensor:
    """CE: ``-w_y log softmax_y(f)``; with inverse-frequency ``weights`` (n_experts,) it is CWCE.

    Examples
    --------
    >>> cross_entropy_loss(torch.zeros(1, 2), torch.tensor([1]))
    tensor([0.6931])
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)
    values = _negative_log_softmax(f, y)
    return values if weights is None else values * check_vector("weights", weights, f)[y]


def ldam_loss(
    scores: Tensor, labels: Tensor, counts: Vector, max_margin: float = 0.5, scale: float = 30.0
) -> Tensor:
    """LDAM (Cao et al. 2019): cross-entropy of ``scale * (f - Delta_y at y)``.

    ``Delta_k`` is proportional to ``n_k^(-1/4)``, the largest being ``max_margin``; n_k = 0 counts
    as 1, or as the smallest positive count if that is less.

    Examples
    --------
    >>> ldam_loss(torch.zeros(1, 2), torch.tensor([1]), counts=[16, 1], scale=1.0)
    tensor([0.9741])
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)
    if not (max_margin > 0 and scale > 0):
        raise InvalidInputError(
            f"max_margin and scale must be positive; got {max_margin} and {scale}."
        )
    raw = _counts(counts, f).pow(-0.25)
    delta = raw * (max_margin / raw.max())
    experts = torch.arange(f.shape[1], device=f.device)
    shifted = f - torch.where(experts == y[:, None], delta, torch.zeros_like(delta))
    return _negative_log_softmax(scale * shifted, y)


def logit_adjusted_loss(
    scores: Tensor, labels: Tensor, counts: Vector, strength: float = 1.0
) -> Tensor:
    """Logit adjustment (Menon et al. 2021): cross-entropy of ``f + strength * log prior``.

    Examples
    --------
    >>> logit_adjusted_loss(torch.zeros(1, 2), torch.tensor([1]), counts=[3, 1])
    tensor([1.3863])
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)
    n = _counts(counts, f)
    return _negative_log_softmax(f + strength * (n / n.sum()).log(), y)


def class_dependent_temperature_loss(
    scores: Tensor, labels: Tensor, counts: Vector, gamma: float = 0.3
) -> Tensor:
    """Class-dependent temperatures (Ye et al. 2020): CE of ``f_k / (n_max / n_k)^gamma``.

    Examples
    --------
    >>> class_dependent_temperature_loss(torch.tensor([[0.0, 1.0]]), torch.tensor([1]), [4, 1], 0.5)
    tensor([0.4741])
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)
    n = _counts(counts, f)
    return _negative_log_softmax(f * (n / n.max()).pow(gamma), y)


def _negative_log_softmax(f: Tensor, y: Tensor) -> Tensor:
    return -torch.log_softmax(f, dim=1).gather(1, y[:, None])[:, 0]


def _counts(counts: Vector, like: Tensor) -> Tensor:
    """Counts per expert, absent ones as 1 or as the smallest positive count if that is less."""
    array = check_vector("counts", counts, like)
    if not bool((torch.isfinite(array) & (array >= 0)).all() and array.any()):
        raise invalid(
            "counts", f"must be non-negative, one per expert, not all zero; got {array.tolist()}."
        )
    return torch.maximum(array, array[array > 0].min().clamp(max=1))

"""Per-expert margins from theory, as tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mild.core.arrays import invalid
from mild.core.costs import ALL_REWARDS
from mild.errors import check_option
from mild.nn.costs import reward_distribution, unchecked_rewards
from mild.nn.tensors import Vector, check_costs

__all__ = ["COUNTS", "expert_mass", "theory_margins"]

COUNTS = ("reward", "best")


def expert_mass(
    costs: Tensor, rewards: str = "others", counts: str = "reward", strength: float = 0.5
) -> Tensor:
    """Mass of each expert, in samples: the ``m_k`` of the margin bound.

    ``counts="reward"``: the sum over samples of the reward distribution; ``counts="best"``: how
    often expert k is cheapest, ties to the lowest index. Returns an (n_experts,) float64 tensor
    (float32 on devices without float64).

    Examples
    --------
    >>> expert_mass(torch.tensor([[0, 1], [0, 1], [1, 0]]), counts="best")
    tensor([2., 1.], dtype=torch.float64)
    """
    check_option("counts", counts, COUNTS)
    check_option("rewards", rewards, ALL_REWARDS)
    array = check_costs(costs)
    if counts == "reward":
        weight = reward_distribution(unchecked_rewards(array, rewards, None, strength))
    else:
        # torch's argmin, like NumPy's, takes the first of equals.
        best = array.masked_fill(torch.isnan(array), math.inf).argmin(dim=1)
        weight = torch.nn.functional.one_hot(best, array.shape[1])
    return weight.sum(dim=0, dtype=torch.float32 if array.device.type == "mps" else torch.float64)


def theory_margins(
    mass: Vector,
    norms: Vector | None = None,
    total: float | None = None,
    share_below: float = 0.0,
) -> Tensor:
    """Margins ``rho_k`` proportional to ``(m_k * X_k^2)^(1/3)``, summing to ``total``.

    A mass of 0 counts as one sample, or as the smallest mass if that is less. ``total`` is the number
    of experts by default. Experts with less than ``share_below`` of the mass get one common margin.

    Examples
    --------
    >>> theory_margins([8.0, 1.0])
    tensor([1.3333, 0.6667])
    """
    weights = torch.as_tensor(mass)
    if not weights.is_floating_point():
        weights = weights.to(torch.get_default_dtype())
    if weights.ndim != 1 or weights.numel() == 0:
        raise invalid("mass", f"must have shape (n_experts,); got {tuple(weights.shape)}.")
    if not bool((torch.isfinite(weights) & (weights >= 0)).all() and weights.any()):
        raise invalid(
            "mass", f"must be finite, non-negative and not all zero; got {weights.tolist()}."
        )
    if not 0 <= share_below <= 1:
        raise invalid("share_below", f"must lie in [0, 1]; got {share_below}.")
    target = float(weights.numel() if total is None else total)
    if not (math.isfinite(target) and target > 0):
        raise invalid("total", f"must be positive and finite; got {total}.")
    weights = weights.clamp(min=min(1.0, float(weights[weights > 0].min())))
    small = weights < share_below * weights.sum()
    if bool(small.any()):
        weights = torch.where(small, weights[small].mean(), weights)
    if norms is not None:
        weights = weights * _positive_norms(norms, weights).square()
    raw = weights.pow(1 / 3)
    return raw * (target / raw.sum())


def _positive_norms(norms: Vector, like: Tensor) -> Tensor:
    array = torch.as_tensor(norms, dtype=like.dtype, device=like.device)
    if array.shape != like.shape or not bool((torch.isfinite(array) & (array > 0)).all()):
        raise invalid(
            "norms", f"must be {len(like)} positive, finite numbers; got {array.tolist()}."
        )
    return array

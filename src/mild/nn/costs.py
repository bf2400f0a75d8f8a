"""Cost matrices, rewards and the deferral loss as tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mild.core.arrays import check_strength, invalid
from mild.core.costs import ALL_REWARDS, STRENGTHS
from mild.errors import check_option
from mild.nn.tensors import Vector, check_costs, check_labels, check_vector, float_matrix

__all__ = ["cost_matrix", "deferral_loss", "reward_distribution", "rewards"]


def cost_matrix(predictions: Tensor, labels: Tensor, betas: Vector | None = None) -> Tensor:
    """Cost of sending each sample to each expert: ``1[prediction_k != y] + beta_k``.

    Parameters
    ----------
    predictions : (n_samples, n_experts) tensor of class labels
    labels : (n_samples,) tensor of true labels
    betas : (n_experts,) non-negative, optional: what asking each expert costs

    Examples
    --------
    >>> cost_matrix(torch.tensor([[1, 2], [0, 0]]), torch.tensor([1, 0]), betas=[0.75, 0.25])
    tensor([[0.7500, 1.2500],
            [0.7500, 0.2500]])
    """
    if not isinstance(predictions, Tensor) or predictions.ndim != 2:
        raise invalid(
            "predictions",
            "must be a tensor of shape (n_samples, n_experts); got "
            + (str(tuple(predictions.shape)) if isinstance(predictions, Tensor) else "no tensor")
            + ".",
        )
    if not isinstance(labels, Tensor) or labels.shape != predictions.shape[:1]:
        raise invalid(
            "labels", f"must be a tensor of shape (n_samples,) = ({predictions.shape[0]},)."
        )
    wrong = (predictions != labels[:, None]).to(torch.get_default_dtype())
    if betas is None:
        return wrong
    prices = check_vector("betas", betas, wrong)
    if not bool((torch.isfinite(prices) & (prices >= 0)).all()):
        raise invalid("betas", f"must be finite and non-negative; got {prices.tolist()}.")
    return wrong + prices


def rewards(
    costs: Tensor, kind: str = "others", scale: float | None = None, strength: float = 0.5
) -> Tensor:
    """Non-negative weights whose weighted 'not chosen' loss equals the deferral loss.

    Over the asked experts S of a row: ``others`` is the sum of the other costs, ``complement`` is
    ``1 - c_k / scale``, ``contrast`` is the largest cost minus ``c_k``, ``baseline`` is
    ``max + strength * (sum - max) - c_k``. An expert that was never asked (NaN) gets 0. ``scale`` is
    the largest possible cost; its default, the largest cost present, is wrong for batches.

    Examples
    --------
    >>> rewards(torch.tensor([[1.0, 0.0, 0.5]]))
    tensor([[0.5000, 1.5000, 1.0000]])
    """
    check_option("kind", kind, ALL_REWARDS)
    array = check_costs(costs)
    if kind == "complement" and scale is not None:
        largest = float(array.nan_to_num(nan=0.0).max()) if array.numel() else 0.0
        if largest > scale * (1 + 1e-6):
            raise invalid(
                "scale",
                f"must be the largest possible cost; got {scale:g}, but a cost of "
                f"{largest:g} is present.",
            )
    return unchecked_rewards(array, kind, scale, strength)


def unchecked_rewards(
    costs: Tensor, kind: str, scale: float | None, strength: float = 0.5
) -> Tensor:
    """``rewards`` without checks of the values, for training steps."""
    asked = ~torch.isnan(costs)
    known = costs.masked_fill(~asked, 0)
    if kind == "complement":
        if scale is not None and not (math.isfinite(scale) and scale > 0):
            raise invalid("scale", f"must be positive and finite; got {scale}.")
        if scale is not None:
            result = (1 - known / scale).clamp(min=0)
        else:
            largest = known.max() if known.numel() else known.new_ones(())
            result = 1 - known / torch.where(largest > 0, largest, torch.ones_like(largest))
    else:
        share = STRENGTHS[kind] if kind in STRENGTHS else check_strength("strength", strength)
        level = known.amax(dim=1, keepdim=True)
        if share > 0:
            level = (1 - share) * level + share * known.sum(dim=1, keepdim=True)
        result = (level - known).clamp(min=0)
    return result.masked_fill(~asked, 0)


def reward_distribution(rewards: Tensor) -> Tensor:
    """Rewards divided by their row sum; a row of zeros carries no information and stays zero.

    Examples
    --------
    >>> reward_distribution(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    array = float_matrix("rewards", rewards)
    if not bool((torch.isfinite(array) & (array >= 0)).all()):
        raise invalid("rewards", "must be finite and non-negative.")
    # Dividing by the largest first keeps the sum of huge rewards finite.
    top = array.amax(dim=1, keepdim=True)
    scaled = array / torch.where(top > 0, top, torch.ones_like(top))
    total = scaled.sum(dim=1, keepdim=True)
    return scaled / torch.where(total > 0, total, torch.ones_like(total))


def deferral_loss(costs: Tensor, chosen: Tensor) -> Tensor:
    """Mean cost of the chosen experts: the mean over i of ``costs[i, chosen[i]]``, a 0-d tensor.

    Examples
    --------
    >>> deferral_loss(torch.tensor([[0.0, 1.0], [0.5, 0.25]]), torch.tensor([0, 1]))
    tensor(0.1250)
    """
    array = float_matrix("costs", costs)
    if len(array) == 0:
        raise invalid("costs", "must have at least one row to average over; got 0.")
    experts = check_labels(chosen, array, "chosen")
    if bool(((experts < 0) | (experts >= array.shape[1])).any()):
        raise invalid(
            "chosen",
            f"must lie in [0, {array.shape[1]}); got {int(experts.min())} to {int(experts.max())}.",
        )
    values = array.gather(1, experts[:, None])[:, 0]
    unknown = int(torch.isnan(values).sum())
    if unknown:
        raise invalid(
            "costs",
            f"must be known for the chosen expert of every row; {unknown} of {len(values)} "
            f"row(s) chose an expert that was never asked there.",
        )
    return values.mean()

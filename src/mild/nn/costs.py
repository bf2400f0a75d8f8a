"""Cost matrices, rewards, margins and the deferral loss as tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mild.core import margins
from mild.core.arrays import check_strength, invalid
from mild.core.costs import ALL_REWARDS, STRENGTHS
from mild.errors import check_option, counted
from mild.nn.tensors import (
    Vector,
    check_labels,
    check_non_negative,
    check_vector,
    float_matrix,
    to_numpy,
)


def cost_matrix(predictions: Tensor, labels: Tensor, betas: Vector | None = None) -> Tensor:
    """Cost of sending each sample to each expert: ``1[prediction_k != y] + beta_k``.

    ``predictions`` are (n_samples, n_experts), ``labels`` (n_samples,), ``betas`` (n_experts,).

    Examples
    --------
    >>> cost_matrix(torch.tensor([[1, 2], [0, 0]]), torch.tensor([1, 0]), betas=[0.75, 0.25])
    tensor([[0.7500, 1.2500],
            [0.7500, 0.2500]])
    """
    if not isinstance(predictions, Tensor) or predictions.ndim != 2:
        got = tuple(getattr(predictions, "shape", ()))
        raise invalid(
            "predictions", f"must be a tensor of shape (n_samples, n_experts); got {got}."
        )
    if not isinstance(labels, Tensor) or labels.shape != predictions.shape[:1]:
        raise invalid(
            "labels", f"must be a tensor of shape (n_samples,) = ({predictions.shape[0]},)."
        )
    wrong = (predictions != labels[:, None]).to(torch.get_default_dtype())
    if betas is None:
        return wrong
    return wrong + check_non_negative("betas", check_vector("betas", betas, wrong))


def rewards(
    costs: Tensor, kind: str = "others", scale: float | None = None, strength: float = 0.5
) -> Tensor:
    """Non-negative weights whose weighted 'not chosen' loss equals the deferral loss.

    Over the asked experts of a row: ``others`` is the sum of the other costs, ``complement`` is
    ``1 - c_k / scale``, ``contrast`` is the largest cost minus ``c_k``, ``baseline`` is
    ``max + strength * (sum - max) - c_k``. An expert that was never asked (NaN) gets 0. ``scale`` is
    the largest possible cost; its default, the largest cost present, is wrong for batches.

    Examples
    --------
    >>> rewards(torch.tensor([[1.0, 0.0, 0.5]]))
    tensor([[0.5000, 1.5000, 1.0000]])
    """
    check_option("kind", kind, ALL_REWARDS)
    array = float_matrix("costs", costs)
    if bool((torch.isinf(array) | (array < 0)).any()):
        raise invalid(
            "costs",
            "must be finite and non-negative, or NaN where an expert was never asked; "
            "got infinite or negative ones.",
        )
    if bool(torch.isnan(array).all(dim=1).any()):
        raise invalid(
            "costs", "must be known for at least one expert in every row; got a row with only NaN."
        )
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

    Parameters
    ----------
    rewards : (n_samples, n_experts) tensor of non-negative numbers

    Returns
    -------
    tensor of the same shape

    Examples
    --------
    >>> import torch
    >>> reward_distribution(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    array = check_non_negative("rewards", float_matrix("rewards", rewards))
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
            f"must be known for the chosen expert of every row; {unknown} of "
            f"{counted(len(values), 'row')} chose an expert that was never asked there.",
        )
    return values.mean()


def expert_mass(
    costs: Tensor, rewards: str = "others", counts: str = "reward", strength: float = 0.5
) -> Tensor:
    """Mass (n_experts,) of each expert, in samples, as ``mild.expert_mass``.

    Float64, or float32 on devices without it.

    Examples
    --------
    >>> expert_mass(torch.tensor([[0, 1], [0, 1], [1, 0]]), counts="best")
    tensor([2., 1.], dtype=torch.float64)
    """
    table = float_matrix("costs", costs)
    mass = margins.expert_mass(to_numpy(table), rewards, counts, strength)
    dtype = torch.float32 if table.device.type == "mps" else torch.float64
    return torch.from_numpy(mass).to(dtype).to(table.device)


def theory_margins(
    mass: Vector, norms: Vector | None = None, total: float | None = None, share_below: float = 0.0
) -> Tensor:
    """Margins ``rho_k`` proportional to ``(m_k * X_k^2)^(1/3)``, as ``mild.theory_margins``.

    Examples
    --------
    >>> theory_margins([8.0, 1.0])
    tensor([1.3333, 0.6667])
    """
    like = torch.as_tensor(mass)
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    found = margins.theory_margins(to_numpy(like), to_numpy(norms), total, share_below)
    return torch.from_numpy(found).to(dtype).to(like.device)

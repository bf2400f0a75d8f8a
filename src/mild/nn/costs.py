"""Cost matrices, rewards, margins and the deferral loss as tensors.

``mild.core.costs`` says what costs and rewards are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mild.core import margins
from mild.core.arrays import check_strength, invalid
from mild.core.costs import ALL_REWARDS, STRENGTHS
from mild.errors import check_option, count_noun
from mild.nn.tensors import (
    Vector,
    check_labels,
    check_non_negative,
    check_vector,
    float_matrix,
    to_numpy,
)


def cost_matrix(predictions: Tensor, labels: Tensor, betas: Vector | None = None) -> Tensor:
    """Return the cost of each expert on each sample, ``1[prediction_k != y] + beta_k``.

    Parameters
    ----------
    predictions : tensor of shape (n_samples, n_experts)
        Class label that each expert predicts.
    labels : tensor of shape (n_samples,)
        True class labels.
    betas : tensor of shape (n_experts,) or sequence, default=None
        Non-negative price of asking each expert, in units of one error. None means zero for every expert.

    Returns
    -------
    costs : tensor of shape (n_samples, n_experts)
        Cost of each expert.

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
    errors = (predictions != labels[:, None]).to(torch.get_default_dtype())
    if betas is None:
        return errors
    return errors + check_non_negative("betas", check_vector("betas", betas, errors))


def rewards(
    costs: Tensor, kind: str = "others", cost_scale: float | None = None, strength: float = 0.5
) -> Tensor:
    """Return a non-negative weight per expert and sample, large where the cost c_k is low.

    Weighted by them, the losses of all experts are a surrogate for the cost of the chosen one
    (``mild_loss``). The maximum and the sum are over the experts of the row whose cost is known:

    - ``others``: the sum of the other costs (paper, Lemma 1);
    - ``complement``: ``1 - c_k / cost_scale`` (paper, Lemma 2);
    - ``contrast``: the largest cost minus ``c_k``;
    - ``baseline``: ``max + strength * (sum - max) - c_k``.

    Parameters
    ----------
    costs : tensor of shape (n_samples, n_experts)
        Non-negative costs; NaN where an expert was never asked. Its reward is then 0.
    kind : {"others", "complement", "contrast", "baseline"}, default="others"
        Form of the rewards.
    cost_scale : float, default=None
        Only for ``complement``: the largest possible cost. None takes the largest cost present, which is
        wrong for batches.
    strength : float, default=0.5
        Only for ``baseline``: a number >= 0.

    Returns
    -------
    rewards : tensor of shape (n_samples, n_experts)
        Non-negative rewards.

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
    if kind == "complement" and cost_scale is not None and array.numel():
        largest = float(array.nan_to_num(nan=0.0).max())
        if largest > cost_scale * (1 + 1e-6):
            raise invalid(
                "cost_scale",
                f"must be the largest possible cost; got {cost_scale:g}, but a cost of "
                f"{largest:g} is present.",
            )
    return unchecked_rewards(array, kind, cost_scale, strength)


def unchecked_rewards(
    costs: Tensor, kind: str, cost_scale: float | None, strength: float = 0.5
) -> Tensor:
    """Return ``rewards`` without checks of the costs, for training steps."""
    is_unknown = torch.isnan(costs)
    filled_costs = costs.masked_fill(is_unknown, 0)
    if kind == "complement":
        weights = _complement(filled_costs, cost_scale)
    else:
        if kind in STRENGTHS:
            strength = STRENGTHS[kind]
        weights = _baseline_minus_cost(filled_costs, check_strength("strength", strength))
    return weights.masked_fill(is_unknown, 0)


def _complement(costs: Tensor, cost_scale: float | None) -> Tensor:
    """Return ``1 - c_k / cost_scale``; without one it is the largest cost."""
    if cost_scale is not None:
        if not (math.isfinite(cost_scale) and cost_scale > 0):
            raise invalid("cost_scale", f"must be positive and finite; got {cost_scale}.")
        return (1 - costs / cost_scale).clamp(min=0)
    if not costs.numel():
        return 1 - costs
    largest = costs.max()
    # Any scale will do for costs that are all zero. The condition stays on the device.
    return 1 - costs / torch.where(largest > 0, largest, torch.ones_like(largest))


def _baseline_minus_cost(costs: Tensor, strength: float) -> Tensor:
    """Return ``b - c_k`` with ``b = (1 - strength) * max + strength * sum`` of the costs of a row."""
    baseline = costs.amax(dim=1, keepdim=True)
    if strength > 0:
        total = costs.sum(dim=1, keepdim=True)
        baseline = (1 - strength) * baseline + strength * total
    # Rounding may leave a reward just below 0.
    return (baseline - costs).clamp(min=0)


def reward_distribution(rewards: Tensor) -> Tensor:
    """Return rewards divided by their row sum; a row of zeros carries no information and stays zero.

    Parameters
    ----------
    rewards : tensor of shape (n_samples, n_experts)
        Non-negative rewards.

    Returns
    -------
    distribution : tensor of shape (n_samples, n_experts)
        Rewards whose rows sum to 1, or to 0 where all rewards are zero.

    Examples
    --------
    >>> import torch
    >>> reward_distribution(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    array = check_non_negative("rewards", float_matrix("rewards", rewards))
    # Dividing by the largest first keeps the sum of huge rewards finite.
    largest = array.amax(dim=1, keepdim=True)
    scaled = array / torch.where(largest > 0, largest, torch.ones_like(largest))
    total = scaled.sum(dim=1, keepdim=True)
    return scaled / torch.where(total > 0, total, torch.ones_like(total))


def deferral_loss(costs: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean cost of the chosen experts, the mean over i of ``costs[i, chosen[i]]``.

    Parameters
    ----------
    costs : tensor of shape (n_samples, n_experts)
        Costs; that of a chosen expert must be known.
    chosen : tensor of int of shape (n_samples,)
        Index of the chosen expert of each sample.

    Returns
    -------
    loss : tensor of shape ()
        The mean cost.

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
    n_unknown = int(torch.isnan(values).sum())
    if n_unknown:
        raise invalid(
            "costs",
            f"must be known for the chosen expert of every row; {n_unknown} of "
            f"{count_noun(len(values), 'row')} chose an expert that was never asked there.",
        )
    return values.mean()


def expert_mass(
    costs: Tensor, rewards: str = "others", counts: str = "reward", strength: float = 0.5
) -> Tensor:
    """Return how many samples count for each expert, as ``mild.core.expert_mass``.

    Parameters
    ----------
    costs : tensor of shape (n_samples, n_experts)
        Costs; NaN where an expert was never asked.
    rewards : {"others", "complement", "contrast", "baseline"}, default="others"
        Kind of the rewards, as in ``rewards``.
    counts : {"reward", "best"}, default="reward"
        "reward" sums the reward distribution over samples. "best" counts how often the expert is cheapest.
    strength : float, default=0.5
        Strength of ``baseline`` rewards.

    Returns
    -------
    mass : tensor of shape (n_experts,)
        Mass of each expert, in float64, or in float32 on devices without it.

    Examples
    --------
    >>> expert_mass(torch.tensor([[0, 1], [0, 1], [1, 0]]), counts="best")
    tensor([2., 1.], dtype=torch.float64)
    """
    table = float_matrix("costs", costs)
    mass = margins.expert_mass(to_numpy(table), rewards, counts, strength)
    dtype = torch.float64
    if table.device.type == "mps":
        dtype = torch.float32
    return torch.from_numpy(mass).to(dtype).to(table.device)


def theory_margins(
    mass: Vector, norms: Vector | None = None, total: float | None = None, share_below: float = 0.0
) -> Tensor:
    """Return margins ``rho_k`` proportional to ``(m_k * X_k^2)^(1/3)``, as ``mild.core.theory_margins``.

    They minimise the complexity term of the paper's margin bound, for a fixed sum.

    Parameters
    ----------
    mass : tensor of shape (n_experts,) or sequence
        Non-negative masses ``m_k``, as ``expert_mass`` gives them.
    norms : tensor of shape (n_experts,) or sequence, default=None
        Positive feature norms ``X_k``. None takes all as equal.
    total : float, default=None
        Sum of the margins. None takes the number of experts, so that the mean margin is 1.
    share_below : float, default=0.0
        Experts with less than this share of the mass share one margin, that of their mean mass.

    Returns
    -------
    margins : tensor of shape (n_experts,)
        Positive margins.

    Examples
    --------
    >>> theory_margins([8.0, 1.0])
    tensor([1.3333, 0.6667])
    """
    mass_tensor = torch.as_tensor(mass)
    dtype = torch.get_default_dtype()
    if mass_tensor.is_floating_point():
        dtype = mass_tensor.dtype
    rho = margins.theory_margins(to_numpy(mass_tensor), to_numpy(norms), total, share_below)
    return torch.from_numpy(rho).to(dtype).to(mass_tensor.device)

"""MILD in one stage: classes and experts are alternatives of one cost-sensitive problem."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.nn.costs import unchecked_rewards
from mild.nn.defer.costs import class_costs, expert_cost_matrix
from mild.nn.defer.rows import check_rows
from mild.nn.losses import mild_loss
from mild.nn.tensors import Margins, Vector


def mild_defer_loss(
    scores: Tensor,
    y: Tensor,
    correct: Tensor,
    *,
    asked: Tensor | None = None,
    expert_costs: Tensor | None = None,
    margins: Vector | float | Margins | None = None,
    rewards: str = "complement",
    strength: float = 0.5,
    scale: float = 1.0,
) -> Tensor:
    """Return ``mild_loss`` over K classes and p experts: a class is an expert with a constant answer.

    With N = K + p, the costs c = (1[y != 1], ..., 1[y != K], c_1, ..., c_p) and rewards made of them,

        sum over k of reward_k * log sum over k' of exp((f_k' - f_k) / rho_k).

    **The bound.** It is the one of routing among N experts of which K are free to ask: costs at most 1 and
    margins fixed in advance. Its complexity term is a sum over classes and experts with mass m_k and
    margin rho_k, so margins proportional to ``m_k^(1/3)`` balance rare classes and rare experts together.

    **The rewards.** Exactly one class is right, and K - 1 classes cost 1.

    - ``complement``, 1 - c_k: with equal margins this is ``cross_entropy_defer_loss``. The shares estimate
      P(y = k) and 1 - c_j up to one factor, which the classes give because their probabilities sum to 1.
    - ``contrast``, max c - c_k: some class costs 1, so this is ``complement`` wherever no cost exceeds 1.
    - ``others``, the sum of the other costs: ``complement`` plus K - 2 + sum_j c_j for each of the N
      alternatives. With many classes the shares become almost equal: a strong smoothing of labels.
    - ``baseline``: between the two by ``strength``; 0 is ``contrast``, 1 is ``others``.

    In routing the scores tell relative costs only. Here the costs of the classes sum to K - 1 in every
    row, so the shares of the stationary distribution give the costs themselves, whatever the rewards.

    Decide by ``mild.nn.decide`` over all N, with the same margins.

    Parameters
    ----------
    scores : (n_samples, K + p) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, p) boolean tensor, whether an expert's answer equals y
    asked : (n_samples, p) boolean tensor, False where an expert has no answer; None for all True
    expert_costs : (n_samples, p) tensor of costs >= 0; None for ``1[m_j != y]``
    margins : (K + p,) positive margins, or one number; None for 1
    rewards : "complement", "contrast", "others" or "baseline"
    strength : of ``baseline``
    scale : largest possible cost, for ``complement``

    Returns
    -------
    (n_samples,) tensor

    Examples
    --------
    >>> import torch
    >>> scores = torch.zeros(2, 3)
    >>> mild_defer_loss(scores, torch.tensor([0, 1]), torch.tensor([[True], [False]]))
    tensor([2.1972, 1.0986])
    """
    rows = check_rows(scores, y, correct, asked)
    expert = expert_cost_matrix(rows, expert_costs).masked_fill(~rows.asked, torch.nan)
    costs = torch.cat([class_costs(rows), expert], dim=1)
    weights = unchecked_rewards(costs, rewards, scale, strength)
    return mild_loss(rows.scores, weights, margins, asked=~torch.isnan(costs))

"""A realizable-consistent and Bayes-consistent loss for learning to defer (Mao, Mohri, Zhong 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.nn.defer.costs import expert_cost_matrix
from mild.nn.defer.rows import check_rows, of_class


def rl2d_loss(
    scores: Tensor,
    y: Tensor,
    correct: Tensor,
    *,
    asked: Tensor | None = None,
    expert_costs: Tensor | None = None,
    q: float = 1.0,
) -> Tensor:
    """Return the RL2D loss, which weighs being right, and being right or deferring; for one expert.

    With P the softmax of the scores over the K classes and the expert, c the cost of asking it, and
    Psi(t) = (1 - t^q) / q,

        c Psi(P_y) + (1 - c) Psi(P_y + P_(K+1)).

    With q = 1, which is Psi(t) = 1 - t, the loss is the expected cost of a system that draws its decision
    from P. It is then realizable-consistent and Bayes-consistent, and costs may exceed 1. It differs from
    ``comp_sum_defer_loss`` with "mean_absolute_error" by 1 - c, on which no score depends. For q = 0, Psi
    is ``-log``, and the loss is half of ``realizable_loss``, which is not Bayes-consistent. The loss is not
    convex, and gives no estimate that the expert is right.

    Parameters
    ----------
    scores : (n_samples, K + 1) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, 1) boolean tensor, whether the expert's answer equals y
    asked : (n_samples, 1) boolean tensor, False where the expert has no answer; None for all True
    expert_costs : (n_samples, 1) tensor of costs, in [0, 1] unless q = 1; None for ``1[m != y]``
    q : number in [0, 1]

    Returns
    -------
    (n_samples,) tensor

    References
    ----------
    A. Mao, M. Mohri, Y. Zhong. Realizable H-consistent and Bayes-consistent loss functions for learning to
    defer. NeurIPS 2024.

    Examples
    --------
    >>> import torch
    >>> rl2d_loss(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([[True]]))
    tensor([0.3333])
    """
    rows = check_rows(scores, y, correct, asked, one_expert=True)
    log_probs = rows.log_probs()
    log_prob_of_y = of_class(log_probs, rows.y)
    # An expert who was not asked has no share: both terms are then Psi(P_y).
    log_prob_with_expert = torch.logaddexp(log_prob_of_y, log_probs[:, -1])
    costs = expert_cost_matrix(rows, expert_costs)[:, 0]
    return costs * _psi(log_prob_of_y, q) + (1 - costs) * _psi(log_prob_with_expert, q)


def _psi(log_prob: Tensor, q: float) -> Tensor:
    """Return ``(1 - t^q) / q`` of ``log t``; its limit ``-log t`` for q = 0."""
    if q == 0:
        return -log_prob
    return -torch.expm1(q * log_prob) / q

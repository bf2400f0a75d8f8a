"""The general comp-sum surrogates of learning to defer with several experts (Mao, Mohri, Zhong 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.errors import check_option
from mild.nn.defer.costs import class_costs, expert_cost_matrix
from mild.nn.defer.rows import check_rows

SURROGATES = ("logistic", "exponential", "generalized_cross_entropy", "mean_absolute_error")


def comp_sum_defer_loss(
    scores: Tensor,
    y: Tensor,
    correct: Tensor,
    *,
    asked: Tensor | None = None,
    expert_costs: Tensor | None = None,
    surrogate: str = "logistic",
    q: float = 0.7,
    scale: float = 1.0,
) -> Tensor:
    """Return the comp-sum loss: a loss of y, and of each expert with a weight that falls with its cost.

    With P the softmax of the scores over the K classes and the asked experts, and c_j the cost of asking
    expert j,

        L(P_y) + sum over experts of (1 - c_j) L(P_(K+j)),

    where L(t) is one of

        logistic                     -log t
        exponential                  1 / t - 1
        generalized_cross_entropy    (1 - t^q) / q
        mean_absolute_error          1 - t

    The loss is Bayes-consistent for ``c_j = alpha_j 1[m_j != y] + beta_j`` with alpha_j + beta_j <= 1.
    Larger costs would make a weight negative and the loss unbounded. With a ``scale`` at least as large as
    all costs, every class and every expert has the weight ``scale - cost``, where a wrong class costs 1.
    For scale 1 this is the formula above.

    With c_j = 1[m_j != y], "logistic" is ``cross_entropy_defer_loss``. At the minimiser, the share of the
    weight that k has in expectation is proportional to P_k ("logistic"), P_k^2 ("exponential") or P_k^(1-q)
    ("generalized_cross_entropy"); "mean_absolute_error" puts all P on the best k and estimates nothing.
    "exponential" is infinite, and its gradient not a number, where 1 / P overflows.

    Parameters
    ----------
    scores : (n_samples, K + p) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, p) boolean tensor, whether an expert's answer equals y
    asked : (n_samples, p) boolean tensor, False where an expert has no answer; None for all True
    expert_costs : (n_samples, p) tensor of costs in [0, scale]; None for ``1[m_j != y]``
    surrogate : name of L
    q : exponent in (0, 1) of the generalised cross-entropy
    scale : number at least 1, as large as the largest possible cost

    Returns
    -------
    (n_samples,) tensor

    References
    ----------
    A. Mao, M. Mohri, Y. Zhong. Principled approaches for learning to defer with multiple experts. 2023,
    arXiv:2310.14774.

    Examples
    --------
    >>> import torch
    >>> scores, y, correct = torch.zeros(1, 3), torch.tensor([0]), torch.tensor([[True]])
    >>> comp_sum_defer_loss(scores, y, correct, surrogate="mean_absolute_error")
    tensor([1.3333])
    """
    check_option("surrogate", surrogate, SURROGATES)
    rows = check_rows(scores, y, correct, asked)
    costs = torch.cat([class_costs(rows), expert_cost_matrix(rows, expert_costs)], dim=1)
    classes = torch.ones_like(rows.class_scores, dtype=torch.bool)
    takes_part = torch.cat([classes, rows.asked], dim=1)
    weights = (scale - costs).masked_fill(~takes_part, 0)
    # Entries without weight are set to a finite number: 0 * inf would be NaN.
    log_probs = rows.log_probs().masked_fill(weights == 0, 0)
    return (weights * _comp_sum(log_probs, surrogate, q)).sum(dim=1)


def _comp_sum(log_probs: Tensor, surrogate: str, q: float) -> Tensor:
    """Return L(t) of ``log t``, entry by entry."""
    if surrogate == "logistic":
        return -log_probs
    if surrogate == "exponential":
        return torch.expm1(-log_probs)
    if surrogate == "generalized_cross_entropy":
        return -torch.expm1(q * log_probs) / q
    return -torch.expm1(log_probs)

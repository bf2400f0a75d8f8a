"""Learning to defer as a mixture of experts (Madras et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.nn.defer.costs import expert_cost_matrix
from mild.nn.defer.rows import check_rows


def mixture_of_experts_loss(
    scores: Tensor,
    y: Tensor,
    correct: Tensor,
    *,
    asked: Tensor | None = None,
    expert_costs: Tensor | None = None,
) -> Tensor:
    """Return the loss of the classifier and the costs of the experts, mixed by weights that are learned.

    The scores g of the experts are those of a second network, the gate: expert j has the weight
    ``s_j = exp(g_j) / (1 + sum over asked experts of exp(g))``, which for one expert is sigmoid(g). With
    c_j the cost of asking expert j, the loss is

        -(1 - s_1 - ... - s_p) log softmax_y(f) + sum over experts of s_j c_j.

    The paper has one expert; the softmax over several is the obvious extension. The loss compares a
    cross-entropy with an error, so that its minimiser defers more than it should: it is neither
    Bayes-consistent nor an estimate that the expert is right.

    Parameters
    ----------
    scores : (n_samples, K + p) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, p) boolean tensor, whether an expert's answer equals y
    asked : (n_samples, p) boolean tensor, False where an expert has no answer; None for all True
    expert_costs : (n_samples, p) tensor of costs; None for ``1[m_j != y]``

    Returns
    -------
    (n_samples,) tensor

    References
    ----------
    D. Madras, T. Pitassi, R. Zemel. Predict responsibly: improving fairness and accuracy by learning to
    defer. NeurIPS 2018.

    Examples
    --------
    >>> import torch
    >>> mixture_of_experts_loss(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([[True]]))
    tensor([0.3466])
    """
    rows = check_rows(scores, y, correct, asked)
    gate_scores = rows.expert_scores.masked_fill(~rows.asked, -torch.inf)
    classifier_score = torch.zeros_like(gate_scores[:, :1])
    shares = torch.softmax(torch.cat([classifier_score, gate_scores], dim=1), dim=1)
    costs = expert_cost_matrix(rows, expert_costs).masked_fill(~rows.asked, 0)
    return shares[:, 0] * rows.class_log_loss() + (shares[:, 1:] * costs).sum(dim=1)

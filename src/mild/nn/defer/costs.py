"""Classes and experts in one cost matrix: a class is an expert that always gives the same answer."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.nn.defer.rows import DeferralRows, check_rows
from mild.nn.tensors import float_matrix


def one_stage_costs(
    y: Tensor,
    correct: Tensor,
    n_classes: int,
    *,
    asked: Tensor | None = None,
    expert_costs: Tensor | None = None,
) -> Tensor:
    """Return the cost of every class and every expert, ``(1[y != 1], ..., 1[y != K], c_1, ..., c_p)``.

    An expert who was not asked has the cost NaN.

    Parameters
    ----------
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, p) boolean tensor, whether an expert's answer equals y
    n_classes : number of classes K
    asked : (n_samples, p) boolean tensor, False where an expert has no answer; None for all True
    expert_costs : (n_samples, p) tensor of costs c_j >= 0; None for ``1[m_j != y]``

    Returns
    -------
    (n_samples, K + p) tensor

    Examples
    --------
    >>> import torch
    >>> one_stage_costs(torch.tensor([1]), torch.tensor([[True]]), 2)
    tensor([[1., 0., 0.]])
    """
    # Not used for costs, but the checks of rows compare with scores.
    scores = torch.zeros(len(y), n_classes + correct.shape[1], device=correct.device)
    rows = check_rows(scores, y, correct, asked)
    costs = expert_cost_matrix(rows, expert_costs).masked_fill(~rows.asked, torch.nan)
    return torch.cat([class_costs(rows), costs], dim=1)


def class_costs(rows: DeferralRows) -> Tensor:
    """Return the costs (n, K) of the classes: 0 for y, 1 for the others."""
    classes = torch.arange(rows.n_classes, device=rows.scores.device)
    return (classes != rows.y[:, None]).to(rows.scores.dtype)


def expert_cost_matrix(rows: DeferralRows, expert_costs: Tensor | None) -> Tensor:
    """Return the costs (n, p) of the experts; None stands for 0 if the answer is right, otherwise 1."""
    if expert_costs is None:
        return (~rows.correct).to(rows.scores.dtype)
    return float_matrix("expert_costs", expert_costs, rows.expert_scores)

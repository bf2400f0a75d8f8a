"""One-versus-all for learning to defer (Verma and Nalisnick 2022; several experts: Verma et al. 2023)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from mild.nn.defer.rows import check_rows, of_class


def one_versus_all_loss(
    scores: Tensor, y: Tensor, correct: Tensor, *, asked: Tensor | None = None
) -> Tensor:
    """Return the OvA loss: that of one binary logistic regression for each class and each expert.

    With f the scores of the classes, g those of the experts and phi(u) = log(1 + exp(-u)),

        phi(f_y) + sum over k != y of phi(-f_k)
        + sum over asked experts of  phi(g_j) if m_j = y, else phi(-g_j).

    The loss is Bayes-consistent. Each term is a proper loss of its own, so that sigmoid(f_k) estimates
    P(y = k) and sigmoid(g_j) estimates the probability that expert j is right, which is calibrated.

    Parameters
    ----------
    scores : (n_samples, K + p) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, p) boolean tensor, whether an expert's answer equals y
    asked : (n_samples, p) boolean tensor, False where an expert has no answer; None for all True

    Returns
    -------
    (n_samples,) tensor

    References
    ----------
    R. Verma, E. Nalisnick. Calibrated learning to defer with one-vs-all classifiers. ICML 2022.
    R. Verma, D. Barrejon, E. Nalisnick. Learning to defer to multiple experts. AISTATS 2023.

    Examples
    --------
    >>> import torch
    >>> one_versus_all_loss(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([[True]]))
    tensor([2.0794])
    """
    rows = check_rows(scores, y, correct, asked)
    # softplus(u) = phi(-u) is the term of a wrong answer; phi(u) = softplus(u) - u is that of a right one.
    class_terms = softplus(rows.class_scores).sum(dim=1) - of_class(rows.class_scores, rows.y)
    expert_terms = softplus(rows.expert_scores) - rows.expert_scores * rows.correct
    return class_terms + expert_terms.masked_fill(~rows.asked, 0).sum(dim=1)

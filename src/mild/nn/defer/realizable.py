"""The realizable surrogate of learning to defer (Mozannar et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.nn.defer.rows import check_rows, of_class


def realizable_loss(
    scores: Tensor, y: Tensor, correct: Tensor, *, asked: Tensor | None = None, alpha: float = 1.0
) -> Tensor:
    """Return RealizableSurrogate, which is low if the classifier or the expert is right; for one expert.

    With P the softmax of the scores over the K classes and the expert,

        -2 alpha log(P_y + 1[m = y] P_(K+1)) - (1 - alpha) log softmax_y(f),

    the second term being the cross-entropy of the classes alone. With ``alpha=1`` the loss is
    realizable-consistent: if some scores of the model class make no error, so does its minimiser. It
    is not Bayes-consistent: for two classes of probability 1/2 and an expert who is right with probability
    0.6, the minimiser does not defer. It gives no estimate that the expert is right.

    Parameters
    ----------
    scores : (n_samples, K + 1) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, 1) boolean tensor, whether the expert's answer equals y
    asked : (n_samples, 1) boolean tensor, False where the expert has no answer; None for all True
    alpha : share in [0, 1] of the first term

    Returns
    -------
    (n_samples,) tensor

    References
    ----------
    H. Mozannar, H. Lang, D. Wei, P. Sattigeri, S. Das, D. Sontag. Who should predict? Exact algorithms for
    learning to defer to humans. AISTATS 2023.

    Examples
    --------
    >>> import torch
    >>> realizable_loss(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([[True]]))
    tensor([0.8109])
    """
    rows = check_rows(scores, y, correct, asked, one_expert=True)
    log_probs = rows.log_probs()
    log_prob_of_y = of_class(log_probs, rows.y)
    log_prob_with_expert = torch.logaddexp(log_prob_of_y, log_probs[:, -1])
    # Share of the decisions, in the softmax, that are right.
    log_right = torch.where(rows.correct[:, 0], log_prob_with_expert, log_prob_of_y)
    system_loss = -2 * log_right
    if alpha == 1:
        return system_loss
    return alpha * system_loss + (1 - alpha) * rows.class_log_loss()

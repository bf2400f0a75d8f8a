"""The asymmetric softmax of learning to defer (Cao et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from mild.nn.defer.rows import check_rows


def asymmetric_softmax_loss(
    scores: Tensor, y: Tensor, correct: Tensor, *, asked: Tensor | None = None
) -> Tensor:
    """Return the A-SM loss, whose estimate of P(expert is right) cannot exceed 1; for one expert.

    With f the scores of the classes and g that of the expert, a softmax over the classes alone, and

        P_(K+1) = exp(g) / (exp(g) + sum over classes of exp(f_k) - max over classes of exp(f_k)),

    the loss is

        -log softmax_y(f) - 1[m = y] log P_(K+1) - 1[m != y] log(1 - P_(K+1)).

    It is Bayes-consistent. P_(K+1) estimates the probability that the expert is right, and is larger
    than the largest class probability exactly where g is the largest score.

    Parameters
    ----------
    scores : (n_samples, K + 1) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, 1) boolean tensor, whether the expert's answer equals y
    asked : (n_samples, 1) boolean tensor, False where the expert has no answer; None for all True

    Returns
    -------
    (n_samples,) tensor

    References
    ----------
    Y. Cao, H. Mozannar, L. Feng, H. Wei, B. An. In defense of softmax parametrization for calibrated and
    consistent learning to defer. NeurIPS 2023.

    Examples
    --------
    >>> import torch
    >>> asymmetric_softmax_loss(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([[True]]))
    tensor([1.3863])
    """
    rows = check_rows(scores, y, correct, asked, one_expert=True)
    top_class = rows.class_scores.argmax(dim=1, keepdim=True)
    other_class_scores = rows.class_scores.scatter(1, top_class, -torch.inf)
    # log(P / (1 - P)) for P = P_(K+1); then -log(1 - P) = softplus(log_odds), and -log P is log_odds less.
    log_odds = rows.expert_scores[:, 0] - other_class_scores.logsumexp(dim=1)
    expert_term = softplus(log_odds) - log_odds * rows.correct[:, 0]
    return rows.class_log_loss() + expert_term.masked_fill(~rows.asked[:, 0], 0)

"""Pick the confident and correct expert (Liu et al. 2026)."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.nn.defer.rows import check_rows, of_class


def picce_loss(
    scores: Tensor, y: Tensor, correct: Tensor, *, asked: Tensor | None = None
) -> Tensor:
    """Return the PiCCE loss: of the correct experts, only the one with the largest score is a label.

    ``cross_entropy_defer_loss`` has one term for each right expert. Their sum over many experts outweighs
    the term of the class, and the classifier underfits. Here only the largest of them remains. With P the
    softmax of the scores over the K classes and the asked experts, and m_j the answer of expert j,

        -log P_y - 1[some expert is right] * max over experts with m_j = y of log P_(K+j).

    For one expert this is ``cross_entropy_defer_loss``. The loss is Bayes-consistent, and not convex: which
    expert is picked depends on the scores. At the minimiser P_k is proportional to P(y = k), and the
    largest P_(K+j) / (P_1 + ... + P_K) is the probability that this expert is right. For the second
    largest it is the probability that its expert is right and the first is wrong, and so on.

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
    S. Liu, Y. Cao, L. Feng, B. An, L. Ong. When more experts hurt: underfitting in multi-expert learning to
    defer. 2026, arXiv:2602.17144.

    Examples
    --------
    >>> import torch
    >>> scores = torch.tensor([[0.0, 0.0, 1.0, 2.0]])
    >>> picce_loss(scores, torch.tensor([0]), torch.tensor([[True, True]]))
    tensor([2.9876])
    """
    rows = check_rows(scores, y, correct, asked)
    log_probs = rows.log_probs()
    expert_log_probs = log_probs[:, rows.n_classes :].masked_fill(~rows.correct, -torch.inf)
    no_expert_is_right = ~rows.correct.any(dim=1)
    picked_log_prob = expert_log_probs.amax(dim=1).masked_fill(no_expert_is_right, 0)
    return -of_class(log_probs, rows.y) - picked_log_prob

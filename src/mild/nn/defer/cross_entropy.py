"""Cross-entropy for learning to defer (Mozannar and Sontag 2020; several experts: Verma et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from mild.nn.defer.rows import check_rows, of_class


def cross_entropy_defer_loss(
    scores: Tensor, y: Tensor, correct: Tensor, *, asked: Tensor | None = None, alpha: float = 1.0
) -> Tensor:
    """Return L_CE: a cross-entropy over classes and experts, in which every right expert is a label, too.

    With P the softmax of the scores over the K classes and the asked experts,

        -w log P_y - sum over experts with m_j = y of log P_(K+j),

    where w is ``alpha`` in rows in which an expert is right, and 1 in the others. The loss is
    Bayes-consistent for ``alpha=1``; smaller values let the classifier leave such rows to the experts.

    At the minimiser (``alpha=1``), P_k is proportional to P(y = k), and P_(K+j) to the probability
    that expert j is right. So the estimate of "expert j is right" is P_(K+j) / (P_1 + ... + P_K). It is
    not calibrated: nothing keeps it below 1.

    Parameters
    ----------
    scores : (n_samples, K + p) tensor, classes first
    y : (n_samples,) integer tensor, the classes
    correct : (n_samples, p) boolean tensor, whether an expert's answer equals y
    asked : (n_samples, p) boolean tensor, False where an expert has no answer; None for all True
    alpha : weight in [0, 1] of the class in rows in which an expert is right

    Returns
    -------
    (n_samples,) tensor

    References
    ----------
    H. Mozannar, D. Sontag. Consistent estimators for learning to defer to an expert. ICML 2020.
    R. Verma, D. Barrejon, E. Nalisnick. Learning to defer to multiple experts. AISTATS 2023.

    Examples
    --------
    >>> import torch
    >>> scores = torch.zeros(2, 3)
    >>> cross_entropy_defer_loss(scores, torch.tensor([0, 1]), torch.tensor([[True], [False]]))
    tensor([2.1972, 1.0986])
    """
    rows = check_rows(scores, y, correct, asked)
    log_probs = rows.log_probs()
    expert_log_probs = log_probs[:, rows.n_classes :].masked_fill(~rows.correct, 0)
    some_expert_is_right = rows.correct.any(dim=1)
    class_term = of_class(log_probs, rows.y)
    class_term = torch.where(some_expert_is_right, alpha * class_term, class_term)
    return -class_term - expert_log_probs.sum(dim=1)

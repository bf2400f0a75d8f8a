"""Checked scores, classes and answers of experts, which every loss of this package starts from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mild.core.arrays import check_shape, invalid
from mild.errors import InvalidInputError
from mild.nn.tensors import check_labels, float_matrix


@dataclass(frozen=True)
class DeferralRows:
    """Checked rows of a batch: K classes and p experts."""

    scores: Tensor  # (n, K + p), classes first
    y: Tensor  # (n,) class indices
    correct: Tensor  # (n, p) whether an expert was asked and answered y
    asked: Tensor  # (n, p) whether an expert was asked

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.scores.shape[1] - self.asked.shape[1]

    @property
    def class_scores(self) -> Tensor:
        """Scores (n, K) of the classes."""
        return self.scores[:, : self.n_classes]

    @property
    def expert_scores(self) -> Tensor:
        """Scores (n, p) of the experts."""
        return self.scores[:, self.n_classes :]

    def log_probs(self) -> Tensor:
        """Return the log-softmax (n, K + p) over classes and asked experts; -inf if not asked."""
        experts = self.expert_scores.masked_fill(~self.asked, -torch.inf)
        return torch.log_softmax(torch.cat([self.class_scores, experts], dim=1), dim=1)

    def class_log_loss(self) -> Tensor:
        """Return the cross-entropy (n,) of the classes alone, ``-log softmax_y(f)``."""
        return -of_class(torch.log_softmax(self.class_scores, dim=1), self.y)


def check_rows(
    scores: Tensor, y: Tensor, correct: Tensor, asked: Tensor | None, *, one_expert: bool = False
) -> DeferralRows:
    """Return checked rows on the device of the scores; with ``one_expert``, several raise an error."""
    f = float_matrix("scores", scores)
    right = _check_flags("correct", correct, f)
    n_experts = right.shape[1]
    if f.shape[1] < n_experts + 2:
        raise invalid(
            "scores",
            f"must have a column for each of at least two classes and of {n_experts} experts; "
            f"got {f.shape[1]} columns.",
        )
    if one_expert and n_experts > 1:
        raise InvalidInputError(
            f"this loss is for one expert; correct has {n_experts} columns. Use a loss for several "
            "experts, such as one_versus_all_loss.",
            parameter="correct",
            code="one_expert_only",
        )
    if asked is None:
        has_answer = torch.ones_like(right)
    else:
        has_answer = _check_flags("asked", asked, f)
        check_shape("asked", has_answer.shape, "(n_samples, n_experts)", right.shape)
    labels = check_labels(y, f, "y")
    _check_classes(labels, f.shape[1] - n_experts)
    return DeferralRows(f, labels, right & has_answer, has_answer)


def _check_classes(labels: Tensor, n_classes: int) -> None:
    """Refuse labels outside the classes; a larger one would take the score of an expert for its own."""
    is_class = (labels >= 0) & (labels < n_classes)
    if not bool(is_class.all()):
        example = int(labels[~is_class][0])
        raise invalid("y", f"must hold classes from 0 to {n_classes - 1}; got {example}.")


def of_class(values: Tensor, y: Tensor) -> Tensor:
    """Return the entry (n,) of each row's class y, from ``values`` (n, at least K)."""
    return values.gather(1, y[:, None])[:, 0]


def _check_flags(name: str, flags: Tensor, like: Tensor) -> Tensor:
    """Return booleans (n, p) on the device of ``like``, p at least one."""
    if not isinstance(flags, Tensor) or flags.dtype != torch.bool:
        raise invalid(name, "must be a boolean tensor of shape (n_samples, n_experts).")
    if flags.ndim != 2 or flags.shape[0] != like.shape[0] or flags.shape[1] == 0:
        raise invalid(
            name,
            f"must have shape (n_samples, n_experts) with n_samples = {like.shape[0]}; "
            f"got {tuple(flags.shape)}.",
        )
    return flags.to(like.device)

"""The loss of each method as a function of scores and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from mild.deferral.data import DeferralTrainingRows
from mild.nn import defer

#: Scores (n, n_outputs) and rows -> one value per row (n,).
RowLoss = Callable[[Tensor, DeferralTrainingRows], Tensor]


def class_loss(scores: Tensor, rows: DeferralTrainingRows) -> Tensor:
    """Return the cross-entropy (n,) of the classes alone."""
    return cross_entropy(scores[:, : rows.n_classes], rows.y, reduction="none")


def expert_loss(scores: Tensor, rows: DeferralTrainingRows) -> Tensor:
    """Return the logistic losses (n,) of whether the experts are right, summed over those that answered."""
    expert_scores = scores[:, rows.n_classes :]
    terms = softplus(expert_scores) - expert_scores * rows.correct
    return terms.masked_fill(~rows.asked, 0).sum(dim=1)


def separate_loss(scores: Tensor, rows: DeferralTrainingRows) -> Tensor:
    """Return the losses (n,) of the classifier plus those of the experts, which are independent of it."""
    return class_loss(scores, rows) + expert_loss(scores, rows)


def row_loss(
    name: str, options: Mapping[str, Any], margins: list[float] | None, scale: float
) -> RowLoss:
    """Return the loss of a method that trains the scores of classes and experts together.

    Parameters
    ----------
    name : name of the method
    options : its ``loss_params``
    margins : those of "mild", one number for each class and expert; None for other methods
    scale : largest possible cost
    """
    if name == "compare_confidence":
        return separate_loss
    if name == "confidence":
        return class_loss
    function = _LOSSES[name]
    parameters = dict(options)
    if name in ("comp_sum", "mild"):
        parameters["scale"] = scale
    if name == "mild":
        parameters["margins"] = margins
    if name in _WITH_COSTS:
        return _with_costs(function, parameters)

    def loss(scores: Tensor, rows: DeferralTrainingRows) -> Tensor:
        return function(scores, rows.y, rows.correct, asked=rows.asked, **parameters)

    return loss


def _with_costs(function: Callable[..., Tensor], parameters: Mapping[str, Any]) -> RowLoss:
    """Return a loss that sees the costs of the experts' answers, too."""

    def loss(scores: Tensor, rows: DeferralTrainingRows) -> Tensor:
        return function(
            scores,
            rows.y,
            rows.correct,
            asked=rows.asked,
            expert_costs=rows.costs,
            **parameters,
        )

    return loss


_WITH_COSTS = ("comp_sum", "rl2d", "mild", "mixture_of_experts")
_LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": defer.cross_entropy_defer_loss,
    "ova": defer.one_versus_all_loss,
    "realizable": defer.realizable_loss,
    "asymmetric_softmax": defer.asymmetric_softmax_loss,
    "picce": defer.picce_loss,
    "comp_sum": defer.comp_sum_defer_loss,
    "rl2d": defer.rl2d_loss,
    "mild": defer.mild_defer_loss,
    "mixture_of_experts": defer.mixture_of_experts_loss,
}

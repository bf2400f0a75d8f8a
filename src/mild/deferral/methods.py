"""The methods of learning to defer by name: what each can do, and how its scores are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mild.core.arrays import check_integer, check_number, invalid
from mild.errors import InvalidInputError, check_option, listed


@dataclass(frozen=True)
class DeferralMethod:
    """A way to train a classifier that defers.

    Attributes
    ----------
    reading : how probabilities are read from scores, as ``DeferralPolicy`` says
    options : names and default values of what ``loss_params`` may hold
    one_expert : whether it is for one expert only
    costs_in_loss : whether the costs of experts enter the loss; else the decision
    estimates_experts : whether the scores tell the probability that an expert is right
    is_convex : whether the loss is convex in the scores; if not, training begins with another loss
    n_networks : 2 where a network of its own scores the experts
    """

    reading: str
    options: Mapping[str, Any] = field(default_factory=dict)
    one_expert: bool = False
    costs_in_loss: bool = False
    estimates_experts: bool = True
    is_convex: bool = True
    n_networks: int = 1


METHODS = {
    "cross_entropy": DeferralMethod("shares", {"alpha": 1.0}),
    "ova": DeferralMethod("sigmoid"),
    "realizable": DeferralMethod(
        "shares", {"alpha": 1.0}, one_expert=True, estimates_experts=False, is_convex=False
    ),
    "asymmetric_softmax": DeferralMethod("asymmetric_softmax", one_expert=True, is_convex=False),
    "picce": DeferralMethod("shares", is_convex=False),
    "comp_sum": DeferralMethod("shares", {"surrogate": "logistic", "q": 0.7}, costs_in_loss=True),
    "rl2d": DeferralMethod(
        "shares",
        {"q": 1.0},
        one_expert=True,
        costs_in_loss=True,
        estimates_experts=False,
        is_convex=False,
    ),
    "mild": DeferralMethod(
        "shares",
        {"rewards": "complement", "strength": 0.5, "margins": "theory"},
        costs_in_loss=True,
    ),
    "mixture_of_experts": DeferralMethod(
        "gate", costs_in_loss=True, estimates_experts=False, is_convex=False, n_networks=2
    ),
    "triage": DeferralMethod(
        "gate",
        {"share": None, "rounds": 5},
        one_expert=True,
        costs_in_loss=True,
        estimates_experts=False,
        n_networks=2,
    ),
    "confidence": DeferralMethod("separate"),
    "compare_confidence": DeferralMethod("separate", n_networks=2),
    "two_stage_tdef": DeferralMethod(
        "router", {"cross_fit": 3}, costs_in_loss=True, estimates_experts=False, n_networks=2
    ),
    "two_stage_mild": DeferralMethod(
        "router",
        {"cross_fit": 3, "rewards": "others", "margins": "theory"},
        costs_in_loss=True,
        estimates_experts=False,
        n_networks=2,
    ),
}

#: The surrogates of "comp_sum" that are not convex in the scores.
NOT_CONVEX = ("generalized_cross_entropy", "mean_absolute_error")
MARGINS = ("theory", "uniform")


def check_method(loss: Any, loss_params: Any) -> tuple[DeferralMethod, dict[str, Any]]:
    """Return the method of this name, and its checked options with the defaults filled in."""
    method = METHODS[check_option("loss", loss, METHODS)]
    if loss_params is None:
        return method, dict(method.options)
    if not isinstance(loss_params, Mapping):
        raise invalid("loss_params", f"must be a dictionary or None; got {loss_params!r}.")
    unknown = [name for name in loss_params if name not in method.options]
    if unknown:
        allowed = listed(list(method.options))
        raise invalid(
            "loss_params",
            f"must hold options of {loss!r} only ({allowed}); got {listed(unknown)}.",
        )
    options = {**method.options, **loss_params}
    _check_numbers(loss, options)
    return method, options


def check_n_experts(loss: str, method: DeferralMethod, n_experts: int) -> None:
    """Refuse several experts where the method is for one."""
    if method.one_expert and n_experts > 1:
        for_several = [name for name, other in METHODS.items() if not other.one_expert]
        raise InvalidInputError(
            f"experts must have one column for loss={loss!r}, which is for one expert; got {n_experts}. "
            f"For several: {listed(for_several)}.",
            parameter="experts",
            code="one_expert_only",
        )


def _check_numbers(loss: str, options: Mapping[str, Any]) -> None:
    if "alpha" in options:
        check_number("alpha", options["alpha"], "lie in [0, 1]")
    if loss == "comp_sum":
        check_number("q", options["q"], "lie between 0 and 1")
    if loss == "rl2d":
        check_number("q", options["q"], "lie in [0, 1]")
    if loss == "triage":
        check_integer("rounds", options["rounds"])
        if options["share"] is not None:
            check_number("share", options["share"], "lie in [0, 1]")
    if "cross_fit" in options:
        check_integer("cross_fit", options["cross_fit"])
    if "margins" in options and isinstance(options["margins"], str):
        check_option("margins", options["margins"], MARGINS)

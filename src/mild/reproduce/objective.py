"""What a router's network minimises, from a method and the costs of its training rows.

Everything that a step needs lies on the device before the first step: the loss copies nothing there
and waits for nothing, so that a step may be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mild.costs import cheapest
from mild.exceptions import InvalidInputError, check_option
from mild.losses.labels import class_weights, ldam_margins
from mild.margins import membership, theory_margins, uniform_margins
from mild.nn import cross_entropy_loss, mild_loss, rewards
from mild.nn.tensors import check_margins
from mild.reproduce.images.steps import Loss
from mild.reproduce.methods import CONTROLS, SCALES, Method

__all__ = ["Objective", "control_rewards", "make_objective", "theory", "training_margins"]

LDAM_SCALE = 30.0
LDAM_MARGIN = 0.5


@dataclass(frozen=True)
class Objective:
    """A loss ready for training, and the margins that its scores are to be decoded with.

    ``loss_on(costs)`` is the same loss for other rows: on a test set it shows what a network memorised.

    ``margins`` is None for methods that learn from the cheapest expert alone: they decide by the
    largest score.
    """

    loss: Loss
    margins: tuple[float, ...] | None
    loss_on: Callable[[NDArray[np.float32]], Loss]


def make_objective(
    method: Method,
    costs: NDArray[np.float32],
    largest: float,
    device: str | torch.device = "cpu",
    scale: str = "raw",
) -> Objective:
    """The loss of ``method`` on rows with these costs.

    MILD and TDEF: ``sum_k reward_ik * log sum_k' exp((f_k' - f_k) / rho_k)``, rewards as
    they are or scaled to mean row sum 1. The scale matters: Adam forgets the size of the loss, but
    its weight decay, added to the gradient, does not.

    Parameters
    ----------
    method : its margins must be known: not "tuned" or "grid"
    costs : (n, n_experts) of the rows that the router is trained on, in the order in which the loss
        is told of them
    largest : largest possible cost, the scale of complement rewards
    device : where the scores will be
    scale : "raw", the paper's, or "unit": rewards of mean row sum 1

    Examples
    --------
    >>> costs = np.array([[0, 1], [1, 0]], np.float32)
    >>> make_objective(Method("tdef"), costs, 1.0).loss(torch.zeros(2, 2), torch.tensor([1, 0]))
    tensor([0.6931, 0.6931])
    """
    if method.name in ("mild", "tdef"):
        margins = training_margins(method, costs, largest)
        kind = method.rewards if method.name == "mild" else "complement"

        def weigh(costs: NDArray[np.float32]) -> Tensor:
            tensor = torch.as_tensor(costs, device=device)
            return rewards(tensor, str(kind), largest, method.strength or 0.0)

    elif method.name in CONTROLS:
        margins = (1.0,) * costs.shape[1]

        def weigh(costs: NDArray[np.float32]) -> Tensor:
            return control_rewards(torch.as_tensor(costs, device=device), method.name, largest)

    else:
        counts = np.bincount(cheapest(costs), minlength=costs.shape[1])
        by_label = partial(_label_loss, method.name, counts, device)
        return Objective(by_label(costs), None, by_label)
    unit = 1.0
    if check_option("scale", scale, SCALES) == "unit":
        unit = float(weigh(costs).sum(dim=1, dtype=torch.float64).mean()) or 1.0

    def loss_on(costs: NDArray[np.float32]) -> Loss:
        return _reward_loss(weigh(costs) / unit, margins)

    return Objective(loss_on(costs), margins, loss_on)


def control_rewards(costs: Tensor, name: str, largest: float) -> Tensor:
    """Rewards (n, n_experts) of TDEF with the targets of one of the controls.

    A row is ambiguous where several experts cost least. "tdef-smoothed" gives the other rows the
    target of `others` rewards at TDEF's weight, (2, 1, 1) / 4 where one of three experts is right;
    "tdef-smoothed-half" also halves the weight of ambiguous rows; "tdef-dropped" keeps TDEF's targets
    and leaves ambiguous rows out. At a quarter of the weight in place of a half, "tdef-smoothed-half"
    would be `others` itself.

    Examples
    --------
    >>> control_rewards(torch.tensor([[0., 1, 1], [0, 0, 1]]), "tdef-smoothed-half", 1.0)
    tensor([[0.5000, 0.2500, 0.2500],
            [0.5000, 0.5000, 0.0000]])
    """
    hard = rewards(costs, "complement", scale=largest)
    best = costs.min(dim=1, keepdim=True).values
    ambiguous = (costs == best).sum(dim=1, keepdim=True) > 1
    if name == "tdef-dropped":
        return hard.masked_fill(ambiguous, 0.0)
    smooth = rewards(costs, "others")
    smooth = smooth * (hard.sum(dim=1) / smooth.sum(dim=1).clamp(min=1e-12))[:, None]
    weight = 0.5 if name == "tdef-smoothed-half" else 1.0
    return torch.where(ambiguous, weight * hard, smooth)


def training_margins(
    method: Method, costs: NDArray[np.float32], largest: float
) -> tuple[float, ...]:
    """Margins (n_experts,) of MILD or TDEF on rows with these costs."""
    p = costs.shape[1]
    if method.name == "tdef":
        return (1.0,) * p
    if method.searched or method.rewards == "any":
        raise InvalidInputError(f"margins of {method.text} must be searched before training.")
    if isinstance(method.margins, tuple):
        if len(method.margins) != p:
            raise InvalidInputError(
                f"margins must be one number per expert, {p} of them; got {len(method.margins)} in "
                f"{method.text}."
            )
        return method.margins
    if method.margins == "uniform":
        return _numbers(uniform_margins(p, method.sum_of_margins(p)))
    return theory(method, costs, largest)


def theory(method: Method, costs: NDArray[np.float32], largest: float) -> tuple[float, ...]:
    """Theory margins ``(m_k)^(1/3)``, scaled to the method's sum; the feature norms are all equal."""
    kind, counts = str(method.rewards), str(method.counts)
    mass = membership(costs, kind, counts, largest, method.strength or 0.0).sum(axis=0)
    total = method.sum_of_margins(costs.shape[1])
    if not mass.any():
        # All experts cost the same in every row: no expert has any mass.
        return _numbers(uniform_margins(costs.shape[1], total))
    return _numbers(theory_margins(mass, total=total))


def _reward_loss(weights: Tensor, margins: Sequence[float]) -> Loss:
    rho = check_margins(list(margins), weights)

    def loss(scores: Tensor, rows: Tensor) -> Tensor:
        return mild_loss(scores, weights[rows], rho)

    return loss


def _label_loss(
    name: str, counts: NDArray[np.int64], device: str | torch.device, costs: NDArray[np.float32]
) -> Loss:
    """CE, CWCE and LDAM, the cheapest expert being the label (ties to the lowest index).

    ``counts`` are of the training rows, whichever rows ``costs`` are of.
    """
    labels = torch.as_tensor(cheapest(costs), dtype=torch.int64, device=device)
    if name != "ldam":
        weights = None
        if name == "cwce":
            weights = torch.as_tensor(class_weights(counts), dtype=torch.float32, device=device)

        def cross_entropy(scores: Tensor, rows: Tensor) -> Tensor:
            return cross_entropy_loss(scores, labels[rows], weights)

        return cross_entropy

    # mild.nn.ldam_loss looks at the counts in every call, which waits for the device.
    delta = torch.as_tensor(
        np.diag(ldam_margins(counts, LDAM_MARGIN)), dtype=torch.float32, device=device
    )

    def ldam(scores: Tensor, rows: Tensor) -> Tensor:
        y = labels[rows]
        return cross_entropy_loss(LDAM_SCALE * (scores - delta[y]), y)

    return ldam


def _numbers(values: NDArray[np.floating]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)

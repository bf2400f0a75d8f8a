"""What a router's network minimises, from a method and the costs of its training rows.

Everything that a step needs lies on the device before the first step: the loss copies nothing there
and waits for nothing, so that a step may be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from mild.reproduce.methods import SCALES, Method

__all__ = ["Objective", "make_objective", "theory", "training_margins"]

LDAM_SCALE = 30.0
LDAM_MARGIN = 0.5


@dataclass(frozen=True)
class Objective:
    """A loss ready for training, and the margins that its scores are to be decoded with.

    ``margins`` is None for methods that learn from the cheapest expert alone: they decide by the
    largest score.
    """

    loss: Loss
    margins: tuple[float, ...] | None


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
        loss = _reward_loss(costs, str(kind), margins, largest, device, scale)
        return Objective(loss, margins)
    return Objective(_label_loss(method.name, costs, device), None)


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
    mass = membership(costs, str(method.rewards), str(method.counts), largest).sum(axis=0)
    total = method.sum_of_margins(costs.shape[1])
    if not mass.any():
        # All experts cost the same in every row: no expert has any mass.
        return _numbers(uniform_margins(costs.shape[1], total))
    return _numbers(theory_margins(mass, total=total))


def _reward_loss(
    costs: NDArray[np.float32],
    kind: str,
    margins: Sequence[float],
    largest: float,
    device: str | torch.device,
    scale: str,
) -> Loss:
    weights = rewards(torch.as_tensor(costs, device=device), kind, scale=largest)
    if check_option("scale", scale, SCALES) == "unit":
        mean = float(weights.sum(dim=1, dtype=torch.float64).mean())
        weights = weights / mean if mean > 0 else weights
    rho = check_margins(list(margins), weights)

    def loss(scores: Tensor, rows: Tensor) -> Tensor:
        return mild_loss(scores, weights[rows], rho)

    return loss


def _label_loss(name: str, costs: NDArray[np.float32], device: str | torch.device) -> Loss:
    """CE, CWCE and LDAM, the cheapest expert being the label (ties to the lowest index)."""
    p = costs.shape[1]
    cheap = cheapest(costs)
    counts = np.bincount(cheap, minlength=p)
    labels = torch.as_tensor(cheap, dtype=torch.int64, device=device)
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

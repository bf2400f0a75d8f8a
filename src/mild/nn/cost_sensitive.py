"""General cost-sensitive margin losses as tensors: a label per sample and costs ``c(x, k, k')``.

Inputs are ``scores`` (n, p), ``labels`` k_i (n,) and ``costs`` ``c(x_i, k_i, .)`` (n, p). The
label's own entry plays no part: the label is not its own rival.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import check_option
from mild.nn.tensors import (
    Vector,
    argmax_last,
    check_labels,
    check_margins,
    check_same_shape,
    float_matrix,
)

__all__ = ["cost_sensitive_loss", "log_sum_loss", "rho_margin_loss"]


def rho_margin_loss(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Vector | float | None = None
) -> Tensor:
    """``max_k' c(x, k, k') * min(1, max(0, 1 - (f_k - f_k') / rho_k))``, one value per sample.

    Examples
    --------
    >>> rho_margin_loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[0.0, 2.0]]))
    tensor([2.])
    """
    gaps, weights, _ = _scaled_gaps(scores, labels, costs, margins)
    return (weights * (1 + gaps).clamp(0, 1)).amax(dim=1)


def cost_sensitive_loss(
    scores: Tensor,
    labels: Tensor,
    costs: Tensor,
    margins: Vector | float | None = None,
    surrogate: object = "logistic",
    reduction: str = "max",
) -> Tensor:
    """``max (or sum) over k' of c(x, k, k') * Psi((f_k - f_k') / rho_k)``, one value per sample.

    ``Psi`` is the hinge ``max(0, 1 - u)`` or a comp-sum ``Phi_tau(exp(-u))``. Divided by the
    surrogate's ``unit`` it bounds ``rho_margin_loss``. ``reduction`` is "max" (the algorithm) or "sum"
    (the appendix's upper bound).

    Examples
    --------
    >>> cost_sensitive_loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[0.0, 2.0]]))
    tensor([1.3863])
    """
    check_option("reduction", reduction, ("max", "sum"))
    kind = parse_surrogate(surrogate)
    gaps, weights, _ = _scaled_gaps(scores, labels, costs, margins)
    if reduction == "max":
        # Only the strongest term meets autograd: the others' overflow times 0 would be NaN.
        with torch.no_grad():
            strongest = argmax_last(_weighted(gaps, weights, kind))[:, None]
        gaps, weights = gaps.gather(1, strongest), weights.gather(1, strongest)
    return _weighted(gaps, weights, kind).sum(dim=1)


def log_sum_loss(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Vector | float | None = None
) -> Tensor:
    """``log sum over k' != k of (1 + exp((f_k' - f_k) / rho_k))^c(x, k, k')``, per sample.

    With a single expert there is no rival: 0.

    Examples
    --------
    >>> log_sum_loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[0.0, 2.0]]))
    tensor([1.3863])
    """
    gaps, weights, own = _scaled_gaps(scores, labels, costs, margins)
    if gaps.shape[1] == 1:
        return 0 * gaps[:, 0]
    terms = weights * -logsigmoid(-gaps)
    return terms.masked_fill(own, -math.inf).logsumexp(dim=1)


def _scaled_gaps(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Vector | float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """``(f_k' - f_k) / rho_k`` with k the label; costs with 0 at the label; where the label is."""
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)[:, None]
    c = float_matrix("costs", costs).to(f.device, f.dtype)
    check_same_shape("costs", c, f)
    rho = check_margins(margins, f).per_expert[y]
    own = torch.arange(f.shape[1], device=f.device) == y
    return (f - f.gather(1, y)) / rho, c.masked_fill(own, 0), own


def _weighted(gaps: Tensor, weights: Tensor, kind: Surrogate) -> Tensor:
    """``c * Psi(-gaps)``, 0 where the cost is 0 however large the gap, in value and gradient."""
    gaps = gaps.masked_fill(weights == 0, 0)
    if kind.form == "hinge":
        return weights * (1 + gaps).clamp(min=0)
    softplus = -logsigmoid(-gaps)
    if kind.tau == 1:
        return weights * softplus
    return weights * torch.expm1((1 - kind.tau) * softplus) / (1 - kind.tau)

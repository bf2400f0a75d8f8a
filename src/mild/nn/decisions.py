"""Decisions from scores as tensors: argmax, and stationary decoding in log space."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mild.core.arrays import invalid
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import UnsupportedError, check_option
from mild.nn.tensors import Margins, Vector, argmax_last, check_margins, float_matrix

__all__ = ["DECISIONS", "decide", "stationary_distribution"]

DECISIONS = ("stationary", "argmax")

# Numbers per block: one G x G chain per row is held for a block of rows, never for all of them.
BLOCK = 8_000_000


def decide(
    scores: Tensor,
    margins: Vector | float | Margins | None = None,
    rule: str = "stationary",
    surrogate: object = "logistic",
) -> Tensor:
    """Expert of each row, ties to the highest index: an int64 tensor (n_samples,).

    ``rule`` is "stationary" (consistent) or "argmax" (the paper's).

    Examples
    --------
    >>> decide(torch.tensor([[-0.2036, 0.0]]), [2 / 3, 1 / 3], rule="argmax")
    tensor([1])
    >>> decide(torch.tensor([[-0.2036, 0.0]]), [2 / 3, 1 / 3])
    tensor([0])
    """
    check_option("rule", rule, DECISIONS)
    f = _finite_scores(scores)
    rho = check_margins(margins, f)
    kind = parse_surrogate(surrogate)
    if rule == "argmax" or (kind.decodable and len(rho.distinct) == 1):
        return argmax_last(f)
    return argmax_last(stationary_distribution(f, margins, kind))


def stationary_distribution(
    scores: Tensor, margins: Vector | float | Margins | None = None, surrogate: object = "logistic"
) -> Tensor:
    """The reward distribution for which each row of scores is the exact minimiser.

    The stationary distribution of the chain that leaves k for j at rate
    ``softmax_j(f / rho_k) / rho_k``, by Grassmann-Taksar-Heyman elimination on logarithms; computed
    in float64 where the device has it. No gradient flows through it. The hinge and tau >= 2 have no
    unique decoding and are refused.

    Examples
    --------
    >>> stationary_distribution(torch.tensor([[-0.2036, 0.0]]), [2 / 3, 1 / 3])
    tensor([[0.5500, 0.4500]])
    """
    f = _finite_scores(scores).detach()
    kind = parse_surrogate(surrogate)
    if not kind.decodable:
        raise UnsupportedError(
            "stationary decoding needs a surrogate whose minimiser determines a distribution: not the "
            "hinge, nor tau >= 2. Use rule='argmax'."
        )
    work = f if f.device.type == "mps" else f.to(torch.float64)
    rho = check_margins(margins, work)
    if len(work) == 0:
        return torch.zeros_like(f)
    states = work.shape[1] if kind.form == "pairwise" else len(rho.distinct)
    rows = max(1, BLOCK // (states * work.shape[1]))
    with torch.no_grad():
        blocks = [_stationary(block, rho, kind) for block in torch.split(work, rows)]
    return torch.cat(blocks).to(f.dtype)


def _stationary(f: Tensor, rho: Margins, kind: Surrogate) -> Tensor:
    shifted = f - f.amax(dim=1, keepdim=True)
    if len(rho.distinct) == 1:
        return torch.softmax(_bounded(shifted / rho.distinct[0]) * (2 - kind.tau), dim=1)
    if kind.form == "pairwise":
        margin = rho.per_expert[None, :, None]
        v = _bounded((shifted[:, None, :] - shifted[:, :, None]) / margin)
        log_rates = v + kind.tau * logsigmoid(-v) - margin.log()
        return torch.softmax(_log_gth(log_rates, shifted), dim=1)
    distinct = torch.tensor(rho.distinct, dtype=f.dtype, device=f.device)[:, None]
    log_softmax = torch.log_softmax(_bounded(shifted[:, None, :] / distinct), dim=2)
    members = [torch.nonzero(rho.group_of == g)[:, 0] for g in range(len(distinct))]
    log_rates = torch.stack([log_softmax[:, :, who].logsumexp(dim=2) for who in members], dim=2)
    height = torch.stack([shifted[:, who].amax(dim=1) for who in members], dim=1)
    mass = _log_gth(log_rates - distinct.log(), height)
    # Lumped masses go back to experts: p_j = rho_j * sum_g P_g / rho_g * softmax_j(f / rho_g).
    spread = (mass - distinct.log()[:, 0])[:, :, None] + log_softmax
    log_p = spread.logsumexp(dim=1) + rho.per_expert.log()
    if kind.tau != 1:
        own = log_softmax.gather(1, rho.group_of.expand(len(f), 1, -1))[:, 0]
        log_p = log_p + (1 - kind.tau) * own
    return torch.softmax(log_p, dim=1)


def _log_gth(log_rates: Tensor, height: Tensor) -> Tensor:
    """Log stationary masses (m, G) of chains with ``log_rates[:, g, h]``, no subtraction of rates.

    ``height`` (m, G) is the best score in each state. The lowest state is eliminated first and
    masses are relative to the highest, so that rounding of large logarithms stays where masses
    vanish.
    """
    size = log_rates.shape[1]
    order = height.argsort(dim=1, descending=True)
    rates = log_rates.gather(1, order[:, :, None].expand_as(log_rates))
    rates = rates.gather(2, order[:, None, :].expand_as(log_rates))
    for last in range(size - 1, 0, -1):
        into = rates[:, :last, last] - rates[:, last, :last].logsumexp(dim=1, keepdim=True)
        rates[:, :last, last] = into
        through = into[:, :, None] + rates[:, last, None, :last]
        rates[:, :last, :last] = torch.logaddexp(rates[:, :last, :last], through)
    mass = torch.zeros_like(height)
    for g in range(1, size):
        mass[:, g] = (mass[:, :g] + rates[:, :g, g]).logsumexp(dim=1)
    return torch.empty_like(mass).scatter_(1, order, mass)


def _bounded(values: Tensor) -> Tensor:
    """Quotients kept finite, with room to be added up."""
    limit = torch.finfo(values.dtype).max * 1e-8
    return values.clamp(-limit, limit)


def _finite_scores(scores: Tensor) -> Tensor:
    f = float_matrix("scores", scores)
    if not bool(torch.isfinite(f).all()):
        raise invalid("scores", "must be finite; got NaN or infinity.")
    return f

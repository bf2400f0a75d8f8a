"""The losses of ``mild.core.losses`` as tensors.

MILD is an autograd function. With ``ell_k = log sum_k' exp((f_k' - f_k) / rho_k)`` every comp-sum member is
``Phi_tau = expm1((1 - tau) * ell_k) / (1 - tau)``, ``ell_k`` itself at tau = 1. The backward pass computes
the gradient by its formula instead of replaying the forward one. Memory stays at a few (n, p) tensors: if
margins differ, pairs of experts are computed for a bounded number of rows at a time. Terms that overflow
separately are subtracted as logarithms, so that no NaN arises.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mild.core.arrays import check_shape, invalid
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import InvalidInputError, check_option
from mild.nn.costs import unchecked_rewards
from mild.nn.tensors import (
    Margins,
    Vector,
    argmax_last,
    check_labels,
    check_margins,
    check_non_negative,
    check_vector,
    float_matrix,
)

#: How many scores over margins are computed at a time.
CHUNK = 2**20


def mild_loss(
    scores: Tensor,
    rewards: Tensor,
    margins: Vector | float | Margins | None = None,
    surrogate: object = "logistic",
    *,
    asked: Tensor | None = None,
) -> Tensor:
    """MILD loss of each sample, differentiable in scores and rewards, not in margins.

    ``sum_k reward_k * log sum_k' exp((f_k' - f_k) / rho_k)`` for the logistic surrogate. The boolean
    tensor ``asked`` is False where an expert was never asked and takes no part in the row; a row
    without any asked expert has loss 0. Values are inf where the true value overflows, never NaN for
    finite scores. Second derivatives are exact for the logistic surrogate.

    Examples
    --------
    >>> scores = torch.zeros(1, 2, requires_grad=True)
    >>> loss = mild_loss(scores, torch.tensor([[1.0, 3.0]]))
    >>> loss.sum().backward()
    >>> scores.grad
    tensor([[ 1., -1.]])
    """
    f = float_matrix("scores", scores)
    weights = float_matrix("rewards", rewards, f)
    rho = check_margins(margins, f)
    kind = parse_surrogate(surrogate)
    if asked is not None:
        if not isinstance(asked, Tensor) or asked.dtype != torch.bool:
            raise invalid("asked", "must be a boolean tensor, True where costs are known.")
        check_shape("asked", asked.shape, "(n_samples, n_experts)", f.shape)
        silent = ~asked.to(f.device)
        f = f.masked_fill(silent, torch.finfo(f.dtype).min)
        weights = weights.masked_fill(silent, 0)
    result: Tensor = _DeferralLoss.apply(f, weights, rho, kind)  # type: ignore[no-untyped-call]
    return result


def tdef_loss(
    scores: Tensor, costs: Tensor, scale: float | None = None, surrogate: object = "logistic"
) -> Tensor:
    """TDEF (Mao, Mohri, Zhong 2023): ``complement`` rewards and all margins 1.

    Pass ``scale``, the largest possible cost, when you work in batches.

    Examples
    --------
    >>> tdef_loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), scale=1.0)
    tensor([0.6931])
    """
    array = float_matrix("costs", costs)
    weights = unchecked_rewards(array, "complement", scale)
    return mild_loss(scores, weights, None, surrogate, asked=~torch.isnan(array))


class _DeferralLoss(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, rewards: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
        losses = _expert_losses(_shift(scores, margins, kind), margins, kind)
        return _times(rewards, losses).sum(dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.margins, ctx.kind = inputs[2], inputs[3]

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        scores, rewards = ctx.saved_tensors
        shifted = _shift(scores, ctx.margins, ctx.kind)
        upstream = outputs[0][:, None]
        on_scores = on_rewards = None
        if ctx.needs_input_grad[0]:
            on_scores = _times(upstream, _gradient(shifted, rewards, ctx.margins, ctx.kind))
        if ctx.needs_input_grad[1]:
            on_rewards = _times(upstream, _expert_losses(shifted, ctx.margins, ctx.kind))
        return on_scores, on_rewards, None, None


def _times(weights: Tensor, values: Tensor) -> Tensor:
    """``weights * values`` in which 0 * inf is 0."""
    return weights * torch.where(weights == 0, torch.zeros_like(values), values)


def _shift(scores: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
    """Scores minus the row's largest, bounded so that division by a margin stays finite.

    Pairs are left where they are: a shift by 1e20 would lose the gaps between low experts.
    """
    if kind.form != "pairwise":
        scores = scores - scores.detach().amax(dim=1, keepdim=True)
    return scores.clamp(min=0.25 * torch.finfo(scores.dtype).min * min(1.0, margins.distinct[0]))


def _expert_losses(shifted: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
    """(n, p): the loss of every expert as if it alone had reward 1."""
    if kind.form == "hinge":
        if shifted.shape[1] == 1:
            return torch.zeros_like(shifted)
        return (1 + _rival_gaps(shifted, margins)[0]).clamp(min=0)
    if kind.form == "pairwise":
        losses = []
        for k in range(shifted.shape[1]):
            v = (shifted - shifted[:, k : k + 1]) / margins.per_expert[k]
            # The expert itself counts as a rival at gap 0; its share is taken off again.
            itself = torch.zeros_like(v)
            itself[:, k] = kind.unit
            losses.append((_phi(-logsigmoid(-v), kind.tau) - itself).sum(dim=1))
        return torch.stack(losses, dim=1)
    return _phi(_log_sums(shifted, margins), kind.tau)


def _gradient(shifted: Tensor, rewards: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
    """(n, p): gradient of the loss on the scores."""
    if shifted.shape[1] == 1:
        return torch.zeros_like(shifted)
    if kind.form == "hinge":
        return _hinge_gradient(shifted, rewards, margins)
    if kind.form == "pairwise":
        return _pairwise_gradient(shifted, rewards, margins, kind.tau)
    if kind.tau == 1:
        return _logistic_gradient(shifted, rewards, margins)
    return _comp_sum_gradient(shifted, rewards, margins, kind.tau)


def _log_sums(shifted: Tensor, margins: Margins) -> Tensor:
    """(n, p): ``ell_k = log sum_k' exp((f_k' - f_k) / rho_k)``."""
    rho = margins.per_expert
    if len(margins.distinct) == 1:
        scaled = shifted / rho
        return scaled.logsumexp(dim=1, keepdim=True) - scaled
    sums = [
        (part[:, None] / rho[:, None]).logsumexp(dim=2) for part in torch.split(shifted, _rows(rho))
    ]
    return torch.cat(sums) - shifted / rho


def _rows(rho: Tensor) -> int:
    """How many rows are computed at a time, where each has (p, p) scores over margins."""
    return max(1, CHUNK // len(rho) ** 2)


def _phi(log_one_plus_u: Tensor, tau: float) -> Tensor:
    if tau == 1:
        return log_one_plus_u
    return torch.expm1((1 - tau) * log_one_plus_u) / (1 - tau)


def _logistic_gradient(shifted: Tensor, rewards: Tensor, margins: Margins) -> Tensor:
    """``sum_k c̄_k / rho_k * softmax(f / rho_k)``, minus ``c̄ / rho``."""
    rho = margins.per_expert
    pull = rewards / rho
    if len(margins.distinct) == 1:
        return pull.sum(dim=1, keepdim=True) * torch.softmax(shifted / rho, 1) - pull
    size = _rows(rho)
    pushes = [
        torch.bmm(weight[:, None], torch.softmax(part[:, None] / rho[:, None], 2))[:, 0]
        for part, weight in zip(torch.split(shifted, size), torch.split(pull, size), strict=True)
    ]
    return torch.cat(pushes) - pull


def _comp_sum_gradient(shifted: Tensor, rewards: Tensor, margins: Margins, tau: float) -> Tensor:
    log_weight = rewards.log() - margins.per_expert.log()
    log_down = log_weight + (1 - tau) * _log_sums(shifted, margins)
    log_up = torch.full_like(shifted, -math.inf)
    for g, margin in enumerate(margins.distinct):
        z = shifted / margin
        # Arranged around a pivot so that equal scores cancel exactly at 1e20.
        taking_part = (margins.group_of == g) & (rewards > 0)
        exponent = torch.where(taking_part, (tau - 1) * z, torch.full_like(z, -math.inf))
        pivot = exponent.amax(dim=1, keepdim=True).clamp(min=torch.finfo(z.dtype).min)
        rest = (exponent - pivot + log_weight).logsumexp(dim=1, keepdim=True)
        total = z.logsumexp(dim=1, keepdim=True)
        log_up = torch.logaddexp(log_up, (z + pivot) - tau * total + rest)
    return _exp_difference(log_up, log_down)


def _pairwise_gradient(shifted: Tensor, rewards: Tensor, margins: Margins, tau: float) -> Tensor:
    log_up = torch.full_like(shifted, -math.inf)
    log_down = []
    experts = torch.arange(shifted.shape[1], device=shifted.device)
    for k in range(shifted.shape[1]):
        rho = margins.per_expert[k]
        v = (shifted - shifted[:, k : k + 1]) / rho
        slope = rewards[:, k : k + 1].log() - rho.log() + (v + tau * logsigmoid(-v))
        slope = torch.where(experts == k, torch.full_like(slope, -math.inf), slope)
        log_down.append(slope.logsumexp(dim=1))
        log_up = torch.logaddexp(log_up, slope)
    return _exp_difference(log_up, torch.stack(log_down, dim=1))


def _exp_difference(log_a: Tensor, log_b: Tensor) -> Tensor:
    """``exp(log_a) - exp(log_b)`` without inf - inf."""
    high = torch.maximum(log_a, log_b)
    low = torch.minimum(log_a, log_b)
    same = high == low
    size = high.exp() * -torch.expm1(torch.where(same, torch.full_like(low, -1.0), low - high))
    return torch.where(same, torch.zeros_like(size), torch.where(log_a > log_b, size, -size))


def _rival_gaps(shifted: Tensor, margins: Margins) -> tuple[Tensor, Tensor, Tensor]:
    """(n, p) gaps ``(strongest rival - f_k) / rho_k``; the best and second best expert, (n, 1)."""
    best = argmax_last(shifted)[:, None]
    experts = torch.arange(shifted.shape[1], device=shifted.device)
    others = torch.where(experts == best, torch.full_like(shifted, -math.inf), shifted)
    second = argmax_last(others)[:, None]
    rival = torch.where(experts == best, shifted.gather(1, second), shifted.gather(1, best))
    return (rival - shifted) / margins.per_expert, best, second


def _hinge_gradient(shifted: Tensor, rewards: Tensor, margins: Margins) -> Tensor:
    """A subgradient at the kinks: the pull of every active expert goes to its strongest rival."""
    gaps, best, second = _rival_gaps(shifted, margins)
    active = torch.where(gaps > -1, rewards / margins.per_expert, torch.zeros_like(rewards))
    pull_of_best = active.gather(1, best)
    experts = torch.arange(shifted.shape[1], device=shifted.device)
    onto_best = active.sum(dim=1, keepdim=True) - pull_of_best
    gradient = -active + torch.where(experts == best, onto_best, torch.zeros_like(active))
    return gradient + torch.where(experts == second, pull_of_best, torch.zeros_like(active))


def cross_entropy_loss(scores: Tensor, labels: Tensor, weights: Vector | None = None) -> Tensor:
    """CE: ``-w_y log softmax_y(f)``; with inverse-frequency ``weights`` (n_experts,) it is CWCE.

    Examples
    --------
    >>> cross_entropy_loss(torch.zeros(1, 2), torch.tensor([1]))
    tensor([0.6931])
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)
    values = -torch.log_softmax(f, dim=1).gather(1, y[:, None])[:, 0]
    return values if weights is None else values * check_vector("weights", weights, f)[y]


def ldam_loss(
    scores: Tensor, labels: Tensor, counts: Vector, max_margin: float = 0.5, scale: float = 30.0
) -> Tensor:
    """LDAM (Cao et al. 2019): cross-entropy of ``scale * (f - Delta_y at y)``.

    ``Delta_k`` is proportional to ``n_k^(-1/4)``, the largest being ``max_margin``; n_k = 0 counts
    as 1, or as the smallest positive count if that is less.

    Parameters
    ----------
    scores : (n_samples, n_experts) tensor
    labels : (n_samples,) tensor of expert indices
    counts : (n_experts,) number of samples of each expert
    max_margin : largest margin
    scale : factor of the scores

    Returns
    -------
    (n_samples,) tensor

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> round(ldam_loss(scores, labels, [1, 1], scale=1.0).item(), 4)
    0.9741
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)
    if not (max_margin > 0 and scale > 0):
        raise InvalidInputError(
            f"max_margin and scale must be positive; got {max_margin} and {scale}."
        )
    raw = _counts(counts, f).pow(-0.25)
    delta = raw * (max_margin / raw.max())
    experts = torch.arange(f.shape[1], device=f.device)
    shifted = f - torch.where(experts == y[:, None], delta, torch.zeros_like(delta))
    return cross_entropy_loss(scale * shifted, y)


def logit_adjusted_loss(
    scores: Tensor, labels: Tensor, counts: Vector, strength: float = 1.0
) -> Tensor:
    """Logit adjustment (Menon et al. 2021): cross-entropy of ``f + strength * log prior``.

    Parameters
    ----------
    scores : (n_samples, n_experts) tensor
    labels : (n_samples,) tensor of expert indices
    counts : (n_experts,) number of samples of each expert
    strength : factor of the log prior

    Returns
    -------
    (n_samples,) tensor

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> round(logit_adjusted_loss(scores, labels, [3, 1]).item(), 4)
    0.2877
    """
    f = float_matrix("scores", scores)
    n = _counts(counts, f)
    return cross_entropy_loss(f + strength * (n / n.sum()).log(), labels)


def class_dependent_temperature_loss(
    scores: Tensor, labels: Tensor, counts: Vector, gamma: float = 0.3
) -> Tensor:
    """Class-dependent temperatures (Ye et al. 2020): CE of ``f_k / (n_max / n_k)^gamma``.

    Parameters
    ----------
    scores : (n_samples, n_experts) tensor
    labels : (n_samples,) tensor of expert indices
    counts : (n_experts,) number of samples of each expert
    gamma : exponent of the temperatures

    Returns
    -------
    (n_samples,) tensor

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> round(class_dependent_temperature_loss(scores, labels, [9, 1]).item(), 4)
    0.6931
    """
    f = float_matrix("scores", scores)
    n = _counts(counts, f)
    return cross_entropy_loss(f * (n / n.max()).pow(gamma), labels)


def _counts(counts: Vector, like: Tensor) -> Tensor:
    """Counts per expert, absent ones as 1 or as the smallest positive count if that is less."""
    array = check_non_negative("counts", check_vector("counts", counts, like))
    if not bool(array.any()):
        raise invalid("counts", "must not be all zero; got zeros only.")
    return torch.maximum(array, array[array > 0].min().clamp(max=1))


def rho_margin_loss(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Vector | float | None = None
) -> Tensor:
    """``max_k' c(x, k, k') * min(1, max(0, 1 - (f_k - f_k') / rho_k))``, one value per sample.

    ``labels`` are k_i (n,) and ``costs`` ``c(x_i, k_i, .)`` (n, p); the label's own entry plays no part.

    Parameters
    ----------
    scores : (n_samples, n_experts) tensor
    labels : (n_samples,) tensor of expert indices
    costs : (n_samples, n_experts) tensor: cost of choosing each expert instead of the label
    margins : (n_experts,) positive margins, or one number; None for 1

    Returns
    -------
    (n_samples,) tensor

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> costs = torch.tensor([[0.0, 1.0]])
    >>> round(rho_margin_loss(scores, labels, costs).item(), 4)
    1.0
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

    Parameters
    ----------
    scores : (n_samples, n_experts) tensor
    labels : (n_samples,) tensor of expert indices
    costs : (n_samples, n_experts) tensor: cost of choosing each expert instead of the label
    margins : (n_experts,) positive margins, or one number; None for 1
    surrogate : surrogate, as in ``mild_loss``
    reduction : "max" or "sum"

    Returns
    -------
    (n_samples,) tensor

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> costs = torch.tensor([[0.0, 1.0]])
    >>> round(cost_sensitive_loss(scores, labels, costs).item(), 4)
    0.6931
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

    Parameters
    ----------
    scores : (n_samples, n_experts) tensor
    labels : (n_samples,) tensor of expert indices
    costs : (n_samples, n_experts) tensor: cost of choosing each expert instead of the label
    margins : (n_experts,) positive margins, or one number; None for 1

    Returns
    -------
    (n_samples,) tensor

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> costs = torch.tensor([[0.0, 1.0]])
    >>> round(log_sum_loss(scores, labels, costs).item(), 4)
    0.6931
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
    c = float_matrix("costs", costs, f)
    rho = check_margins(margins, f).per_expert[y]
    own = torch.arange(f.shape[1], device=f.device) == y
    return (f - f.gather(1, y)) / rho, c.masked_fill(own, 0), own


def _weighted(gaps: Tensor, weights: Tensor, kind: Surrogate) -> Tensor:
    """``c * Psi(-gaps)``, 0 where the cost is 0 however large the gap, in value and gradient."""
    gaps = gaps.masked_fill(weights == 0, 0)
    if kind.form == "hinge":
        return weights * (1 + gaps).clamp(min=0)
    return weights * _phi(-logsigmoid(-gaps), kind.tau)

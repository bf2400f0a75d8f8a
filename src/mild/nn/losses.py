"""Tensor versions of the losses that ``mild.core.losses`` explains.

MILD is an autograd function. With scores f, margins rho and
``ell_k = log sum_k' exp((f_k' - f_k) / rho_k)``, the loss of expert k is
``Phi_tau = expm1((1 - tau) * ell_k) / (1 - tau)``, which is ``ell_k`` itself at tau = 1. The backward pass
computes the gradient by its formula instead of replaying the forward one. Memory stays at a few (n, p)
tensors: if margins differ, pairs of experts are computed for a bounded number of rows at a time. Terms that
overflow separately are subtracted as logarithms, so that there is no NaN.
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

#: Largest number of entries (rows, p, p) of scores over margins that are held at a time.
MAX_PAIRS = 2**20


def mild_loss(
    scores: Tensor,
    rewards: Tensor,
    margins: Vector | float | Margins | None = None,
    surrogate: object = "logistic",
    *,
    asked: Tensor | None = None,
) -> Tensor:
    """Return the MILD loss of each sample, differentiable in scores and rewards, not in margins.

    With scores f, rewards c̄ and margins rho, the loss of one sample with the logistic surrogate is::

        loss = sum_k c̄_k * log sum_k' exp((f_k' - f_k) / rho_k)

    It is small if the experts with large rewards have the highest scores. Second derivatives are exact for
    the logistic surrogate.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    rewards : tensor of shape (n_samples, n_experts)
        Non-negative weights, as ``rewards`` makes them from costs.
    margins : tensor of shape (n_experts,), sequence, float or Margins, default=None
        Positive margins. None stands for all ones.
    surrogate : str or float, default="logistic"
        A name in ``mild.core.surrogates.SURROGATES``, or a number tau >= 0 of the comp-sum family.
    asked : tensor of bool of shape (n_samples, n_experts), default=None
        False where an expert was never asked and takes no part in the row. A row without any asked
        expert has loss 0.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses; inf where the true value overflows, never NaN for finite scores.

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
    parsed_surrogate = parse_surrogate(surrogate)
    if asked is not None:
        if not isinstance(asked, Tensor) or asked.dtype != torch.bool:
            raise invalid("asked", "must be a boolean tensor, True where costs are known.")
        check_shape("asked", asked.shape, "(n_samples, n_experts)", f.shape)
        takes_no_part = ~asked.to(f.device)
        # Finite, not -inf: in a row without any asked expert, differences of scores would be NaN.
        f = f.masked_fill(takes_no_part, torch.finfo(f.dtype).min)
        weights = weights.masked_fill(takes_no_part, 0)
    values: Tensor = _DeferralLoss.apply(  # type: ignore[no-untyped-call]
        f, weights, rho, parsed_surrogate
    )
    return values


def tdef_loss(
    scores: Tensor, costs: Tensor, cost_scale: float | None = None, surrogate: object = "logistic"
) -> Tensor:
    """Return the TDEF loss of each sample.

    TDEF (Mao, Mohri, Zhong 2023) is ``mild_loss`` with the rewards ``1 - cost / cost_scale`` and all
    margins 1.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    costs : tensor of shape (n_samples, n_experts)
        Costs. Experts whose cost is NaN take no part in the row.
    cost_scale : float, default=None
        The largest possible cost; pass it when you work in batches. None takes the largest present.
    surrogate : str or float, default="logistic"
        As in ``mild_loss``.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

    Examples
    --------
    >>> tdef_loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), cost_scale=1.0)
    tensor([0.6931])
    """
    array = float_matrix("costs", costs)
    weights = unchecked_rewards(array, "complement", cost_scale)
    return mild_loss(scores, weights, None, surrogate, asked=~torch.isnan(array))


class _DeferralLoss(torch.autograd.Function):
    """``sum_k c̄_k * loss_k``, whose gradient is computed by its formula."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, rewards: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
        losses = _expert_losses(_shift(scores, margins, kind), margins, kind)
        return _times(rewards, losses).sum(dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scores, rewards, margins, kind = inputs
        ctx.save_for_backward(scores, rewards)
        ctx.margins = margins
        ctx.kind = kind

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        scores, rewards = ctx.saved_tensors
        shifted = _shift(scores, ctx.margins, ctx.kind)
        upstream = outputs[0][:, None]
        on_scores = None
        on_rewards = None
        if ctx.needs_input_grad[0]:
            on_scores = _times(upstream, _gradient(shifted, rewards, ctx.margins, ctx.kind))
        if ctx.needs_input_grad[1]:
            on_rewards = _times(upstream, _expert_losses(shifted, ctx.margins, ctx.kind))
        return on_scores, on_rewards, None, None


def _times(weights: Tensor, values: Tensor) -> Tensor:
    """Return ``weights * values`` in which 0 * inf is 0."""
    return weights * torch.where(weights == 0, torch.zeros_like(values), values)


def _shift(scores: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
    """Return scores minus the row's largest, bounded so that division by a margin stays finite.

    Pairs are left where they are: a shift by 1e20 would lose the gaps between low experts.
    """
    if kind.form != "pairwise":
        scores = scores - scores.detach().amax(dim=1, keepdim=True)
    return scores.clamp(min=0.25 * torch.finfo(scores.dtype).min * min(1.0, margins.distinct[0]))


def _expert_losses(shifted: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
    """Return the loss (n, p) of every expert, which the rewards weigh."""
    if kind.form == "hinge":
        if shifted.shape[1] == 1:
            return torch.zeros_like(shifted)
        gaps, _, _ = _rival_gaps(shifted, margins)
        return (1 + gaps).clamp(min=0)
    if kind.form == "pairwise":
        return _pairwise_losses(shifted, margins, kind)
    return _phi(_log_sums(shifted, margins), kind.tau)


def _pairwise_losses(scores: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
    """Return ``sum over j != k of Phi_tau(exp((f_j - f_k) / rho_k))`` (n, p) of every expert k."""
    losses = []
    for k in range(scores.shape[1]):
        v = (scores - scores[:, k : k + 1]) / margins.per_expert[k]
        # The expert itself counts as a rival at gap 0; its share is subtracted again.
        itself = torch.zeros_like(v)
        itself[:, k] = kind.unit
        losses.append((_phi(-logsigmoid(-v), kind.tau) - itself).sum(dim=1))
    return torch.stack(losses, dim=1)


def _gradient(shifted: Tensor, rewards: Tensor, margins: Margins, kind: Surrogate) -> Tensor:
    """Return the gradient (n, p) of the loss with respect to the scores."""
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
    """Return ``ell_k = log sum_k' exp((f_k' - f_k) / rho_k)`` (n, p)."""
    rho = margins.per_expert
    if len(margins.distinct) == 1:
        scaled = shifted / rho
        return scaled.logsumexp(dim=1, keepdim=True) - scaled
    sums = []
    for block in torch.split(shifted, _block_size(rho)):
        scaled = block[:, None] / rho[:, None]
        sums.append(scaled.logsumexp(dim=2))
    return torch.cat(sums) - shifted / rho


def _block_size(rho: Tensor) -> int:
    """Return how many rows are computed at a time, where each has (p, p) scores over margins."""
    return max(1, MAX_PAIRS // len(rho) ** 2)


def _phi(log_one_plus_u: Tensor, tau: float) -> Tensor:
    """Return ``Phi_tau(u)`` from ``log(1 + u)``, which it is at tau = 1."""
    if tau == 1:
        return log_one_plus_u
    return torch.expm1((1 - tau) * log_one_plus_u) / (1 - tau)


def _logistic_gradient(shifted: Tensor, rewards: Tensor, margins: Margins) -> Tensor:
    """Return ``sum_k w_k * softmax_j(f / rho_k)  -  w_j`` (n, p) with ``w_k = c̄_k / rho_k``."""
    rho = margins.per_expert
    w = rewards / rho
    if len(margins.distinct) == 1:
        return w.sum(dim=1, keepdim=True) * torch.softmax(shifted / rho, 1) - w
    size = _block_size(rho)
    sums = []
    for f_block, w_block in zip(torch.split(shifted, size), torch.split(w, size), strict=True):
        softmax = torch.softmax(f_block[:, None] / rho[:, None], 2)
        sums.append(torch.bmm(w_block[:, None], softmax)[:, 0])
    return torch.cat(sums) - w


def _comp_sum_gradient(shifted: Tensor, rewards: Tensor, margins: Margins, tau: float) -> Tensor:
    """Return the gradient (n, p) for tau != 1.

    With ``growth_k = (1 - tau) * ell_k`` it is ``exp(log_up) - exp(log_down)``, where::

        up_j   = sum_k c̄_k / rho_k * exp(growth_k) * softmax_j(f / rho_k)
        down_j = c̄_j / rho_j * exp(growth_j)
    """
    log_weight = rewards.log() - margins.per_expert.log()
    log_down = log_weight + (1 - tau) * _log_sums(shifted, margins)
    log_up = torch.full_like(shifted, -math.inf)
    for number, margin in enumerate(margins.distinct):
        z = shifted / margin
        # log (exp(growth_k) * softmax_j(z)) = -(1 - tau) * z_k + z_j - tau * log_total. The largest
        # -(1 - tau) * z_k, the pivot, is added to z_j first, so that equal scores of 1e20 cancel exactly.
        takes_part = (margins.group_of == number) & (rewards > 0)
        exponent = torch.where(takes_part, (tau - 1) * z, torch.full_like(z, -math.inf))
        pivot = exponent.amax(dim=1, keepdim=True).clamp(min=torch.finfo(z.dtype).min)
        log_sum = (exponent - pivot + log_weight).logsumexp(dim=1, keepdim=True)
        log_total = z.logsumexp(dim=1, keepdim=True)
        log_up = torch.logaddexp(log_up, (z + pivot) - tau * log_total + log_sum)
    return _exp_difference(log_up, log_down)


def _pairwise_gradient(shifted: Tensor, rewards: Tensor, margins: Margins, tau: float) -> Tensor:
    """Return the gradient (n, p) of the sum over pairs of an expert k and a rival j.

    With ``v_j = (f_j - f_k) / rho_k``, the term of k and j has the derivative
    ``slope_j = c̄_k / rho_k * exp(v_j - tau * log(1 + exp(v_j)))`` with respect to f_j, and ``-slope_j``
    with respect to f_k. Both are summed as logarithms: sums may overflow where their difference does not.
    """
    log_up = torch.full_like(shifted, -math.inf)
    log_down = []
    experts = torch.arange(shifted.shape[1], device=shifted.device)
    for k in range(shifted.shape[1]):
        rho = margins.per_expert[k]
        v = (shifted - shifted[:, k : k + 1]) / rho
        log_slope = rewards[:, k : k + 1].log() - rho.log() + (v + tau * logsigmoid(-v))
        log_slope = torch.where(experts == k, torch.full_like(log_slope, -math.inf), log_slope)
        log_down.append(log_slope.logsumexp(dim=1))
        log_up = torch.logaddexp(log_up, log_slope)
    return _exp_difference(log_up, torch.stack(log_down, dim=1))


def _exp_difference(log_a: Tensor, log_b: Tensor) -> Tensor:
    """Return ``exp(log_a) - exp(log_b)`` without inf - inf."""
    high = torch.maximum(log_a, log_b)
    low = torch.minimum(log_a, log_b)
    is_same = high == low
    # Where both are infinite their difference is NaN; it is not used.
    difference = torch.where(is_same, torch.full_like(low, -1.0), low - high)
    size = high.exp() * -torch.expm1(difference)
    signed = torch.where(log_a > log_b, size, -size)
    return torch.where(is_same, torch.zeros_like(size), signed)


def _rival_gaps(shifted: Tensor, margins: Margins) -> tuple[Tensor, Tensor, Tensor]:
    """Return gaps ``(r_k - f_k) / rho_k`` (n, p) to the highest score r_k of the other experts.

    The best and the second best expert of each row are returned, too, (n, 1).
    """
    best = argmax_last(shifted)[:, None]
    experts = torch.arange(shifted.shape[1], device=shifted.device)
    others = torch.where(experts == best, torch.full_like(shifted, -math.inf), shifted)
    second = argmax_last(others)[:, None]
    rival = torch.where(experts == best, shifted.gather(1, second), shifted.gather(1, best))
    return (rival - shifted) / margins.per_expert, best, second


def _hinge_gradient(shifted: Tensor, rewards: Tensor, margins: Margins) -> Tensor:
    """Return the gradient (n, p) of ``sum_k c̄_k * max(0, 1 + gap_k)``, at kinks a subgradient.

    Where the term of expert k is positive, its derivative is ``-c̄_k / rho_k`` with respect to f_k and the
    opposite with respect to the score of its rival: the best expert, or for that one the second best.
    """
    gaps, best, second = _rival_gaps(shifted, margins)
    zeros = torch.zeros_like(rewards)
    slope = torch.where(gaps > -1, rewards / margins.per_expert, zeros)
    slope_of_best = slope.gather(1, best)
    slope_of_others = slope.sum(dim=1, keepdim=True) - slope_of_best
    experts = torch.arange(shifted.shape[1], device=shifted.device)
    onto_best = torch.where(experts == best, slope_of_others, zeros)
    onto_second = torch.where(experts == second, slope_of_best, zeros)
    return -slope + onto_best + onto_second


def cross_entropy_loss(scores: Tensor, labels: Tensor, weights: Vector | None = None) -> Tensor:
    """Return the weighted cross-entropy ``-w_y log softmax_y(f)`` of scores f and labels y.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : tensor of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    weights : tensor of shape (n_experts,) or sequence, default=None
        Weight of each label. None stands for all ones.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

    Examples
    --------
    >>> cross_entropy_loss(torch.zeros(1, 2), torch.tensor([1]))
    tensor([0.6931])
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)
    values = -torch.log_softmax(f, dim=1).gather(1, y[:, None])[:, 0]
    if weights is None:
        return values
    return values * check_vector("weights", weights, f)[y]


def ldam_loss(
    scores: Tensor, labels: Tensor, counts: Vector, max_margin: float = 0.5, scale: float = 30.0
) -> Tensor:
    """Return the LDAM loss (Cao et al. 2019): cross-entropy with larger margins for rarer labels.

    It is the cross-entropy of ``scale * (f_k - Delta_k * 1[k = y])``. ``Delta_k`` is proportional to
    ``n_k^(-1/4)``, the largest being ``max_margin``; n_k = 0 counts as 1, or as the smallest positive count
    if that is less.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : tensor of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    counts : tensor of shape (n_experts,) or sequence
        How often each expert is the label.
    max_margin : float, default=0.5
        Margin ``Delta`` of the rarest label.
    scale : float, default=30.0
        Factor of the scores.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

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
    unscaled = _counts(counts, f).pow(-0.25)
    delta = unscaled * (max_margin / unscaled.max())
    experts = torch.arange(f.shape[1], device=f.device)
    reduced = f - torch.where(experts == y[:, None], delta, torch.zeros_like(delta))
    return cross_entropy_loss(scale * reduced, y)


def logit_adjusted_loss(
    scores: Tensor, labels: Tensor, counts: Vector, strength: float = 1.0
) -> Tensor:
    """Return the logit-adjusted loss (Menon et al. 2021): cross-entropy of ``f + strength * log prior``.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : tensor of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    counts : tensor of shape (n_experts,) or sequence
        How often each expert is the label.
    strength : float, default=1.0
        Factor of the logarithm of the prior.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

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
    """Return the loss with class-dependent temperatures (Ye et al. 2020).

    It is the cross-entropy of ``f_k / T_k`` with temperatures ``T_k = (n_max / n_k)^gamma`` of counts n_k.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : tensor of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    counts : tensor of shape (n_experts,) or sequence
        How often each expert is the label.
    gamma : float, default=0.3
        Exponent of the temperatures.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

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
    """Return the counts (p,) with 0 raised to 1, or to the smallest positive count if that is less."""
    array = check_non_negative("counts", check_vector("counts", counts, like))
    if not bool(array.any()):
        raise invalid("counts", "must not be all zero; got zeros only.")
    return torch.maximum(array, array[array > 0].min().clamp(max=1))


def rho_margin_loss(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Vector | float | None = None
) -> Tensor:
    """Return the margin loss ``max_k' c(x, k, k') * min(1, max(0, 1 - (f_k - f_k') / rho_k))``.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : tensor of int of shape (n_samples,)
        Index k of the label of each sample.
    costs : tensor of shape (n_samples, n_experts)
        Cost ``c(x, k, k')`` of choosing each expert k' instead of the label; that at the label plays no
        part.
    margins : tensor of shape (n_experts,), sequence or float, default=None
        Positive margins, of which that of the label matters. None stands for all ones.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

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
    """Return an upper bound on the cost of choosing an expert other than the label (paper, section 4.2).

    For the label k, ``loss = max over k' of c(x, k, k') * Psi((f_k - f_k') / rho_k)``, or the sum over k'.
    ``Psi`` is the hinge ``max(0, 1 - u)`` or a comp-sum ``Phi_tau(exp(-u))``. Divided by the
    surrogate's ``unit`` it bounds ``rho_margin_loss``.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : tensor of int of shape (n_samples,)
        Index k of the label of each sample.
    costs : tensor of shape (n_samples, n_experts)
        Cost ``c(x, k, k')`` of choosing each expert k' instead of the label; that at the label plays no
        part.
    margins : tensor of shape (n_experts,), sequence or float, default=None
        Positive margins, of which that of the label matters. None stands for all ones.
    surrogate : str or float, default="logistic"
        As in ``mild_loss``.
    reduction : {"max", "sum"}, default="max"
        "max" is the paper's algorithm, "sum" the upper bound of its appendix.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> costs = torch.tensor([[0.0, 1.0]])
    >>> round(cost_sensitive_loss(scores, labels, costs).item(), 4)
    0.6931
    """
    check_option("reduction", reduction, ("max", "sum"))
    parsed_surrogate = parse_surrogate(surrogate)
    gaps, weights, _ = _scaled_gaps(scores, labels, costs, margins)
    if reduction == "max":
        # Only the largest term takes part in autograd: the overflow of others times 0 would be NaN.
        with torch.no_grad():
            largest = argmax_last(_weighted_psi(gaps, weights, parsed_surrogate))[:, None]
        gaps = gaps.gather(1, largest)
        weights = weights.gather(1, largest)
    return _weighted_psi(gaps, weights, parsed_surrogate).sum(dim=1)


def log_sum_loss(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Vector | float | None = None
) -> Tensor:
    """Return a loss that is smooth even where ``cost_sensitive_loss`` takes a maximum (paper, appendix).

    For the label k::

        loss = log sum over k' != k of (1 + exp((f_k' - f_k) / rho_k))^c(x, k, k')

    With a single expert there is no rival, and the loss is 0.

    Parameters
    ----------
    scores : tensor of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : tensor of int of shape (n_samples,)
        Index k of the label of each sample.
    costs : tensor of shape (n_samples, n_experts)
        Cost ``c(x, k, k')`` of choosing each expert k' instead of the label; that at the label plays no
        part.
    margins : tensor of shape (n_experts,), sequence or float, default=None
        Positive margins, of which that of the label matters. None stands for all ones.

    Returns
    -------
    values : tensor of shape (n_samples,)
        Losses.

    Examples
    --------
    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    >>> costs = torch.tensor([[0.0, 1.0]])
    >>> round(log_sum_loss(scores, labels, costs).item(), 4)
    0.6931
    """
    gaps, weights, is_label = _scaled_gaps(scores, labels, costs, margins)
    if gaps.shape[1] == 1:
        return 0 * gaps[:, 0]
    # c * log(1 + exp(gap)), the exponents of a log-sum-exp over the experts other than the label.
    exponents = weights * -logsigmoid(-gaps)
    return exponents.masked_fill(is_label, -math.inf).logsumexp(dim=1)


def _scaled_gaps(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Vector | float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return three tensors (n, p): gaps, costs, and whether an expert is the label k of the row.

    The gaps are ``(f_k' - f_k) / rho_k`` for every expert k'. The cost of the label is set to 0.
    """
    f = float_matrix("scores", scores)
    y = check_labels(labels, f)[:, None]
    c = float_matrix("costs", costs, f)
    rho = check_margins(margins, f).per_expert[y]
    is_label = torch.arange(f.shape[1], device=f.device) == y
    gaps = (f - f.gather(1, y)) / rho
    return gaps, c.masked_fill(is_label, 0), is_label


def _weighted_psi(gaps: Tensor, weights: Tensor, kind: Surrogate) -> Tensor:
    """Return ``weights * Psi(-gaps)``; value and gradient are 0 where the weight is, for any gap."""
    gaps = gaps.masked_fill(weights == 0, 0)
    if kind.form == "hinge":
        return weights * (1 + gaps).clamp(min=0)
    return weights * _phi(-logsigmoid(-gaps), kind.tau)

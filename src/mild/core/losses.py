"""Losses of scores in NumPy: one value per sample, and analytic gradients.

``scores`` are (n_samples, n_experts). There are three families:

- MILD and TDEF, reward-weighted surrogates of the deferral loss (paper, section 5.3),
  ``sum_k reward_k * Phi_tau(sum over k' != k of exp((f_k' - f_k) / rho_k))``;
- baselines in which the cheapest expert is the label, all of them cross-entropies of transformed
  scores; ``labels`` are (n_samples,), ``counts`` (n_experts,): how often each expert is cheapest;
- cost-sensitive margin losses with a label k_i and costs ``c(x_i, k_i, .)`` per sample (paper,
  section 4). ``costs`` are (n_samples, n_experts), 0 at the label; only the label's margin matters.

The public functions check their input. The private ones take arrays stored experts first, (p, m) for p
experts and m samples: most operations are then on whole rows of m numbers.

The same functions for torch users, with autograd, are in ``mild.nn``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    IntArray,
    check_labels,
    check_margins,
    check_rewards,
    check_scores,
    float_matrix,
    float_vector,
    invalid,
)
from mild.core.costs import rewards as make_rewards
from mild.core.decisions import argmax_last, argmax_last_experts_first
from mild.core.margins import Anchors, MarginGroup, find_anchors, group_sums, margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import InvalidInputError, check_option

# Values (n_samples,), or with return_gradient=True a pair of values and gradient (n_samples, n_experts).
Result: TypeAlias = Any

# How many powers of scores are held at a time.
POWERS = 100_000


def mild_loss(
    scores: ArrayLike,
    rewards: ArrayLike,
    margins: ArrayLike | None = None,
    surrogate: object = "logistic",
    return_gradient: bool = False,
    *,
    asked: ArrayLike | None = None,
) -> Result:
    """MILD loss of each sample, and its gradient on the scores if wanted.

    With scores f, rewards c̄ and margins rho, the loss of one sample with the logistic surrogate is::

        loss = sum_k c̄_k * log sum_k' exp((f_k' - f_k) / rho_k)

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    rewards : array of shape (n_samples, n_experts)
        Non-negative weights, as ``mild.rewards`` makes them from costs.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins. None stands for all ones.
    surrogate : str or float, default="logistic"
        A name in ``SURROGATES``, or a number tau >= 0 of the comp-sum family.
    return_gradient : bool, default=False
        Whether to return the gradient as well.
    asked : array of bool of shape (n_samples, n_experts), default=None
        False where an expert takes no part in the row. A row without any asked expert has loss 0.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses; inf where the true value overflows, never NaN.
    gradient : array of shape (n_samples, n_experts)
        Gradient of each loss on its scores. Only if ``return_gradient`` is True.

    Examples
    --------
    >>> values, gradient = mild_loss([[0.0, 0.0]], [[1.0, 3.0]], return_gradient=True)
    >>> values.round(4), gradient
    (array([2.7726]), array([[ 1., -1.]]))
    """
    f = check_scores(scores)
    weights = check_rewards(rewards, f.shape).astype(f.dtype, copy=False)
    rho = check_margins(margins, f.shape[1])
    parsed_surrogate = parse_surrogate(surrogate)
    # A copy: ``accumulate_loss`` overwrites its scores.
    f_t = np.array(f.T, order="C")
    if asked is not None:
        is_asked = float_matrix("asked", asked, f.shape).astype(bool)
        f_t[~is_asked.T & is_asked.any(axis=1)] = -np.inf
        weights = np.where(is_asked, weights, 0)
    weights_t = np.ascontiguousarray(weights.T)
    groups = margin_groups(rho)
    if not return_gradient:
        return accumulate_loss(f_t, weights_t, groups, parsed_surrogate)
    gradient_t = np.zeros_like(f_t)
    values = accumulate_loss(f_t, weights_t, groups, parsed_surrogate, gradient_t)
    return values, np.ascontiguousarray(gradient_t.T)


def tdef_loss(
    scores: ArrayLike,
    costs: ArrayLike,
    scale: float | None = None,
    surrogate: object = "logistic",
    return_gradient: bool = False,
) -> Result:
    """TDEF (Mao, Mohri, Zhong 2023): ``complement`` rewards and all margins 1.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    costs : array of shape (n_samples, n_experts)
        Costs. Experts whose cost is NaN take no part in the row.
    scale : float, default=None
        The largest possible cost. None takes the largest present.
    surrogate : str or float, default="logistic"
        As in ``mild_loss``.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    gradient : array of shape (n_samples, n_experts)
        Only if ``return_gradient`` is True.
    """
    weights = make_rewards(costs, "complement", scale)
    asked = ~np.isnan(float_matrix("costs", costs))
    return mild_loss(scores, weights, None, surrogate, return_gradient, asked=asked)


def accumulate_loss(
    scores: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    surrogate: Surrogate,
    gradient: FloatArray | None = None,
) -> FloatArray:
    """MILD losses (m,) of arrays stored experts first, (p, m), without validation.

    ``scores`` are overwritten, and the gradient of the losses is added to ``gradient`` (p, m) if there is
    one. The score of an expert that was not asked is -inf; its reward must then be 0.
    """
    _shift_and_bound(scores, groups, surrogate)
    if surrogate.form == "hinge":
        return _hinge(scores, rewards, groups, gradient)
    if surrogate.form == "comp_sum" and surrogate.tau == 1:
        anchors = find_anchors(groups, scores.dtype)
        if anchors is None:
            return _logistic(scores, rewards, groups, gradient)
        return _anchored_logistic(scores, rewards, groups, anchors, gradient)
    slopes = None
    if gradient is not None:
        # Slopes are summed as logarithms: at tau < 1 single terms overflow where sums do not.
        slopes = LogSlopes.zeros_like(scores)
    with np.errstate(divide="ignore", over="ignore"):
        if surrogate.form == "pairwise":
            values = _pairwise(scores, rewards, groups, surrogate.tau, slopes)
        else:
            values = _comp_sum(scores, rewards, groups, surrogate.tau, slopes)
    if gradient is not None and slopes is not None:
        gradient += _exp_difference(slopes.up, slopes.down)
    return values


def _shift_and_bound(scores: FloatArray, groups: list[MarginGroup], surrogate: Surrogate) -> None:
    """Make the largest score of each sample 0, and every score finite after division by a margin."""
    # Pairs are left where they are: a shift by 1e20 would lose the gaps between low experts.
    if surrogate.form != "pairwise":
        scores -= scores.max(axis=0)
    smallest_margin = min([1.0, *(group.margin for group in groups)])
    lowest = -np.finfo(scores.dtype).max * smallest_margin * 0.5
    np.maximum(scores, scores.dtype.type(lowest), out=scores)


class LogSlopes(NamedTuple):
    """The gradient on scores (p, m) as ``exp(up) - exp(down)``."""

    up: FloatArray  # logarithms of what makes the loss grow with a score: it is a rival's
    down: FloatArray  # logarithms of what makes the loss fall with a score: it is rewarded

    @classmethod
    def zeros_like(cls, scores: FloatArray) -> LogSlopes:
        """Slopes of 0, to which others are added."""
        return cls(np.full_like(scores, -np.inf), np.full_like(scores, -np.inf))


def _logistic(
    shifted: FloatArray, rewards: FloatArray, groups: list[MarginGroup], gradient: FloatArray | None
) -> FloatArray:
    """Logistic loss (m,) of shifted scores f and rewards c̄, both (p, m).

    Experts that share a margin share one log-sum-exp. For a group g of experts with margin rho_g::

        T_g   = sum_j exp(f_j / rho_g)                                      total
        W_g   = sum of c̄_k over the experts k of g                          weight
        loss  = sum_g (W_g * log T_g - sum of c̄_k f_k / rho_g over k of g)

        d loss / d f_j = sum_g W_g / (rho_g T_g) * exp(f_j / rho_g)  -  c̄_j / rho_j
    """
    values = np.zeros(shifted.shape[1], shifted.dtype)
    # Written anew for each group, so that no more than one array (p, m) is allocated.
    z = np.empty_like(shifted)
    for group in groups:
        inverse = shifted.dtype.type(1 / group.margin)
        np.multiply(shifted, inverse, out=z)
        if group.members.size == 1:
            # The index of one expert gives views, and nothing is summed: a list of indices would copy.
            members: Any = group.members[0]
            group_rewards = rewards[members]
            weight = group_rewards
            rewarded = group_rewards * z[members]
        else:
            members = group.members
            group_rewards = rewards[members]
            weight = group_rewards.sum(axis=0)
            rewarded = np.einsum("km,km->m", group_rewards, z[members])
        np.exp(z, out=z)
        total = z.sum(axis=0)
        values += weight * np.log(total) - rewarded
        if gradient is not None:
            np.divide(weight, total, out=total)
            total *= inverse
            z *= total
            gradient += z
            gradient[members] -= group_rewards * inverse
    return values


def _anchored_logistic(
    shifted: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    anchors: Anchors,
    gradient: FloatArray | None,
) -> FloatArray:
    """``_logistic`` from powers at the A anchors alone, instead of one exponential per margin.

    With the weights C (G, A) of the anchors (see ``Anchors``), in the letters of ``_logistic``::

        E_aj  = exp(f_j / rho_a)                        powers (A, p, m)
        T_g   = sum_a C_ga sum_j E_aj                   totals (G, m)
        loss  = sum_g W_g log T_g - sum_k c̄_k f_k / rho_k

        d loss / d f_j = sum_a (sum_g C_ga W_g / (rho_g T_g)) E_aj  -  c̄_j / rho_j

    The factor in parentheses is ``pull`` (A, m).
    """
    p, m = shifted.shape
    dtype = shifted.dtype
    n_anchors = anchors.inverse.size
    margins = np.array([[group.margin] for group in groups])
    inverse = np.empty((p, 1), dtype)
    for group in groups:
        inverse[group.members] = 1 / group.margin
    anchor_inverse = anchors.inverse.astype(dtype)[:, None, None]
    # Samples are done in blocks whose powers stay in cache.
    block = int(np.clip(POWERS // (n_anchors * p), 8, 1024))
    powers = np.empty((n_anchors, p, min(block, m)), dtype)
    values = np.empty(m, dtype)
    for start in range(0, m, block):
        samples = slice(start, start + block)
        f = shifted[:, samples]
        E = powers[:, :, : f.shape[1]]
        np.multiply(anchor_inverse, f, out=E)
        np.exp(E, out=E)
        # Weights have both signs: double precision keeps the accuracy of single precision.
        T = anchors.weights @ E.sum(axis=1).astype(np.float64)
        # The largest shifted score is 0, so that the exact total is at least 1.
        np.maximum(T, 1, out=T)
        W = group_sums(rewards[:, samples], groups)
        scaled_rewards = rewards[:, samples] * inverse
        values[samples] = np.einsum("gm,gm->m", W, np.log(T))
        values[samples] -= np.einsum("km,km->m", scaled_rewards, f)
        if gradient is not None:
            T *= margins
            pull = anchors.weights.T @ np.divide(W, T, out=T)
            gradient[:, samples] += np.einsum("am,akm->km", pull.astype(dtype), E)
            gradient[:, samples] -= scaled_rewards
    return values


def _comp_sum(
    shifted: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    tau: float,
    slopes: LogSlopes | None,
) -> FloatArray:
    """Comp-sum loss (m,) for tau != 1 of shifted scores f and rewards c̄, both (p, m).

    With ``z = f / rho_k``, each expert's loss is a function of the logistic one::

        ell_k = log sum_j exp(z_j) - z_k
        loss  = sum_k c̄_k * expm1((1 - tau) * ell_k) / (1 - tau)

    The slopes are added to ``slopes``, if there are any.
    """
    one_minus_tau = shifted.dtype.type(1 - tau)
    values = np.zeros(shifted.shape[1], shifted.dtype)
    for group in groups:
        z = shifted / shifted.dtype.type(group.margin)
        log_total = np.log(np.exp(z).sum(axis=0))
        group_rewards = rewards[group.members]
        growth = one_minus_tau * (log_total - z[group.members])
        phi = np.expm1(growth) / one_minus_tau
        values += _weighted_or_zero(group_rewards, phi).sum(axis=0)
        if slopes is not None:
            log_margin = np.log(shifted.dtype.type(group.margin))
            # d loss / d f_k has the term -c̄_k / rho_k * exp(growth_k).
            slopes.down[group.members] = np.log(group_rewards) - log_margin + growth
            exponent = np.where(group_rewards > 0, -one_minus_tau * z[group.members], -np.inf)
            log_sum, pivot = _log_weighted_sum(group_rewards, exponent)
            # The slopes of the group on the score of j are, as logarithms, with growth_k written out,
            #     z_j - tau * log_total + log sum_k c̄_k exp(-(1 - tau) * z_k) - log_margin.
            # The pivot is added to z_j first: then equal scores of 1e20 cancel exactly.
            up = (z + pivot) - tau * log_total + (log_sum - log_margin)
            np.logaddexp(slopes.up, up, out=slopes.up)
    return values


def _log_weighted_sum(weights: FloatArray, exponent: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``log sum_k weights_k * exp(exponent_k - pivot)`` (m,), and the pivot (m,), the largest exponent."""
    pivot = np.maximum(exponent.max(axis=0), np.finfo(exponent.dtype).min)
    return np.log((weights * np.exp(exponent - pivot)).sum(axis=0)), pivot


def _pairwise(
    scores: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    tau: float,
    slopes: LogSlopes | None,
) -> FloatArray:
    """Pairwise loss (m,) of scores f and rewards c̄, both (p, m), one expert k at a time.

    With ``v_j = (f_j - f_k) / rho_k`` and ``softplus = log(1 + exp(v))``::

        loss = sum_k c̄_k * sum over j != k of expm1((1 - tau) * softplus_j) / (1 - tau)

    where the fraction is ``softplus_j`` itself at tau = 1. The slope of rival j is
    ``c̄_k / rho_k * exp(v_j - tau * softplus_j)``; expert k has minus the sum of its rivals' slopes.
    Scores come unshifted: gaps between low experts count here, and a shift by 1e20 would lose them.
    """
    one_minus_tau = scores.dtype.type(1 - tau)
    values = np.zeros(scores.shape[1], scores.dtype)
    for group in groups:
        for k in group.members:
            v = (scores - scores[k]) / scores.dtype.type(group.margin)
            softplus = np.logaddexp(v, 0)
            phi = _phi(softplus, one_minus_tau)
            if slopes is not None:
                log_slope = np.log(rewards[k]) - np.log(group.margin) + (v - tau * softplus)
                log_slope[k] = -np.inf
                slopes.down[k] = np.logaddexp.reduce(log_slope, axis=0)
                np.logaddexp(slopes.up, log_slope, out=slopes.up)
            # ``phi`` may be the array ``softplus``, which is no longer needed.
            phi[k] = 0
            values += _weighted_or_zero(rewards[k], phi.sum(axis=0))
    return values


def _phi(log_one_plus_u: FloatArray, one_minus_tau: Any) -> FloatArray:
    """``Phi_tau(u)`` from ``log(1 + u)``, which it is at tau = 1."""
    if one_minus_tau == 0:
        return log_one_plus_u
    phi: FloatArray = np.expm1(one_minus_tau * log_one_plus_u) / one_minus_tau
    return phi


def _weighted_or_zero(weights: FloatArray, values: FloatArray) -> FloatArray:
    """``weights * values`` in which 0 * inf is 0."""
    product: FloatArray = np.multiply(
        weights, values, out=np.zeros_like(weights), where=weights > 0
    )
    return product


def _hinge(
    shifted: FloatArray, rewards: FloatArray, groups: list[MarginGroup], gradient: FloatArray | None
) -> FloatArray:
    """Hinge loss (m,) of shifted scores f and rewards c̄, both (p, m), with a subgradient at the kinks.

    ``loss = sum_k c̄_k * max(0, 1 - (f_k - r_k) / rho_k)`` with r_k the largest score of the others: that
    of the best expert, or for the best expert itself that of the second best.
    """
    p, m = shifted.shape
    if p == 1:
        return np.zeros(m, shifted.dtype)
    rho = np.empty((p, 1), shifted.dtype)
    for group in groups:
        rho[group.members] = group.margin
    columns = np.arange(m)
    best = argmax_last_experts_first(shifted)
    others = shifted.copy()
    others[best, columns] = -np.inf
    second = argmax_last_experts_first(others)
    is_best = np.arange(p)[:, None] == best
    rival = np.where(is_best, others[second, columns], shifted[best, columns])
    violation = np.maximum(1 - (shifted - rival) / rho, 0)
    if gradient is not None:
        # Each violated expert pulls its own score up and that of its rival down.
        pull = np.where(violation > 0, rewards / rho, 0)
        gradient -= pull
        gradient[second, columns] += pull[best, columns]
        gradient[best, columns] += pull.sum(axis=0) - pull[best, columns]
    return np.einsum("km,km->m", rewards, violation)


def _exp_difference(log_a: FloatArray, log_b: FloatArray) -> FloatArray:
    """``exp(log_a) - exp(log_b)`` without inf - inf: ``exp(high) * (1 - exp(low - high))``, signed."""
    high = np.maximum(log_a, log_b)
    low = np.minimum(log_a, log_b)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.exp(high) * -np.expm1(low - high)
    signed = np.where(log_a > log_b, size, -size)
    return np.where(high == low, 0, signed)


def cross_entropy_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """CE: ``-w_y log softmax_y(f)``; with inverse-frequency weights it is CWCE.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    weights : array of shape (n_experts,), default=None
        Non-negative weight of each label, such as ``class_weights``. None stands for all ones.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    gradient : array of shape (n_samples, n_experts)
        Only if ``return_gradient`` is True.

    Examples
    --------
    >>> cross_entropy_loss([[0.0, 0.0]], [1]).round(4)
    array([0.6931])
    """
    f = check_scores(scores)
    if weights is None:
        return _softmax_loss(f, labels, return_gradient)
    label_weights = float_vector("weights", weights, f.shape[1])
    return _softmax_loss(f, labels, return_gradient, weights=label_weights)


def ldam_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    max_margin: float = 0.5,
    scale: float = 30.0,
    return_gradient: bool = False,
) -> Result:
    """LDAM (Cao et al. 2019): cross-entropy of ``scale * (f - Delta_y at y)``.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    counts : array of shape (n_experts,)
        How often each expert is the label.
    max_margin : float, default=0.5
        Margin ``Delta`` of the rarest label.
    scale : float, default=30.0
        Factor of the scores.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    gradient : array of shape (n_samples, n_experts)
        Only if ``return_gradient`` is True.
    """
    f = check_scores(scores)
    if not (max_margin > 0 and scale > 0):
        raise InvalidInputError(
            f"max_margin and scale must be positive; got {max_margin} and {scale}."
        )
    y = check_labels(labels, f.shape)
    delta = ldam_margins(floored_counts(counts, f.shape[1]), max_margin)
    offset = np.zeros_like(f)
    offset[np.arange(len(f)), y] = -delta[y]
    return _softmax_loss(f, labels, return_gradient, scale=np.array(scale), offset=offset)


def logit_adjusted_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    strength: float = 1.0,
    return_gradient: bool = False,
) -> Result:
    """Logit adjustment (Menon et al. 2021): cross-entropy of ``f + strength * log prior``.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    counts : array of shape (n_experts,)
        How often each expert is the label; the prior is its share.
    strength : float, default=1.0
        Factor of the logarithm of the prior.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    gradient : array of shape (n_samples, n_experts)
        Only if ``return_gradient`` is True.
    """
    f = check_scores(scores)
    n = floored_counts(counts, f.shape[1])
    log_prior = np.log(n / n.sum())
    return _softmax_loss(f, labels, return_gradient, offset=strength * log_prior)


def class_dependent_temperature_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    gamma: float = 0.3,
    return_gradient: bool = False,
) -> Result:
    """Class-dependent temperatures (Ye et al. 2020): cross-entropy of ``f_k / T_k``.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index of the expert that is the label of each sample.
    counts : array of shape (n_experts,)
        How often each expert is the label.
    gamma : float, default=0.3
        Exponent of the temperatures, ``T_k = (n_max / n_k)^gamma``.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    gradient : array of shape (n_samples, n_experts)
        Only if ``return_gradient`` is True.
    """
    f = check_scores(scores)
    n = floored_counts(counts, f.shape[1])
    return _softmax_loss(f, labels, return_gradient, scale=1 / temperatures(n, gamma))


# Scores are left as they are, and labels weigh 1.
_ONE = np.ones(1)
_ZERO = np.zeros(1)


def _softmax_loss(
    f: FloatArray,
    labels: ArrayLike,
    return_gradient: bool,
    *,
    scale: FloatArray = _ONE,
    offset: FloatArray = _ZERO,
    weights: FloatArray | None = None,
) -> Result:
    """Cross-entropy (n,) of transformed scores f (n, p) with labels y (n,), and its gradient on f.

    ::

        z        = scale * (f + offset)
        loss     = -w_y * log softmax_y(z) = w_y * (log sum_k exp(z_k) - z_y)
        gradient = w_y * (softmax(z) - 1[k = y]) * scale
    """
    y = check_labels(labels, f.shape)
    rows = np.arange(len(f))
    slope = scale.astype(f.dtype)
    z = slope * (f + offset.astype(f.dtype))
    z -= z.max(axis=1, keepdims=True)
    probability = np.exp(z)
    total = probability.sum(axis=1)
    weight = np.ones(1, f.dtype)
    if weights is not None:
        weight = weights[y].astype(f.dtype)
    values = weight * (np.log(total) - z[rows, y])
    if not return_gradient:
        return values
    probability /= total[:, None]
    probability[rows, y] -= 1
    return values, probability * weight[:, None] * slope


def class_weights(counts: ArrayLike) -> FloatArray:
    """Inverse-frequency weights ``n / (p * n_k)`` over the experts that occur; absent ones get 0."""
    n = float_vector("counts", counts, nonzero=True)
    present = n > 0
    weights = np.zeros_like(n)
    weights[present] = n.sum() / (present.sum() * n[present])
    return weights


def floored_counts(counts: ArrayLike, n_experts: int | None = None) -> FloatArray:
    """Counts with 0 raised to one sample, or to the smallest positive count if that is less."""
    n = float_vector("counts", counts, n_experts, nonzero=True)
    return np.maximum(n, min(1.0, n[n > 0].min()))


def ldam_margins(counts: ArrayLike, max_margin: float = 0.5) -> FloatArray:
    """``Delta_k`` proportional to ``n_k^(-1/4)`` of floored counts, the largest ``max_margin``."""
    raw = floored_counts(counts) ** -0.25
    return raw * (max_margin / raw.max())


def temperatures(counts: ArrayLike, gamma: float = 0.3) -> FloatArray:
    """Class-dependent temperatures ``(n_max / n_k)^gamma`` of floored counts."""
    n = floored_counts(counts)
    return (n.max() / n) ** gamma


def resampling_weights(
    labels: ArrayLike, n_experts: int, kind: str, rng: np.random.Generator
) -> FloatArray:
    """Over- or under-sampling as multiplicities (n_samples,): how often each row is drawn.

    ``kind="over"`` keeps every row, and draws more rows of each label with replacement until it has as
    many as the most frequent one. ``"under"`` keeps as many rows of each label as the rarest has.
    """
    check_option("sampling", kind, ("over", "under"))
    y = check_labels(labels, (np.size(labels), n_experts))
    counts = np.bincount(y, minlength=n_experts)
    if kind == "over":
        multiplicities = np.ones(y.size)
        for label in np.flatnonzero(counts):
            rows = np.flatnonzero(y == label)
            drawn = rng.choice(rows, counts.max() - rows.size, replace=True)
            np.add.at(multiplicities, drawn, 1)
        return multiplicities
    multiplicities = np.zeros(y.size)
    for label in np.flatnonzero(counts):
        rows = np.flatnonzero(y == label)
        drawn = rng.choice(rows, counts[counts > 0].min(), replace=False)
        multiplicities[drawn] = 1
    return multiplicities


def cost_sensitive_zero_one(scores: ArrayLike, labels: ArrayLike, costs: ArrayLike) -> FloatArray:
    """``c(x, k, decision)``: cost of the argmax decision when k is the label.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index k of the label of each sample.
    costs : array of shape (n_samples, n_experts)
        Cost ``c(x, k, k')`` of choosing each expert k' instead of the label; 0 at the label.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    """
    f, _, c = check_pair_costs(scores, labels, costs)
    return c[np.arange(len(f)), argmax_last(f)]


def rho_margin_loss(
    scores: ArrayLike, labels: ArrayLike, costs: ArrayLike, margins: ArrayLike | None = None
) -> FloatArray:
    """``max_k' c(x, k, k') * min(1, max(0, 1 - (f_k - f_k') / rho_k))``.

    It bounds the zero-one loss.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index k of the label of each sample.
    costs : array of shape (n_samples, n_experts)
        Cost ``c(x, k, k')`` of choosing each expert k' instead of the label; 0 at the label.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins, of which that of the label matters. None stands for all ones.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    """
    f, y, c = check_pair_costs(scores, labels, costs)
    gaps = _scaled_gaps(f, y, check_margins(margins, f.shape[1]))
    return (c * np.clip(1 + gaps, 0, 1)).max(axis=1)


def cost_sensitive_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    costs: ArrayLike,
    margins: ArrayLike | None = None,
    surrogate: object = "logistic",
    reduction: str = "max",
    return_gradient: bool = False,
) -> Result:
    """``max (or sum) over k' of c(x, k, k') * Psi((f_k - f_k') / rho_k)`` (paper, section 4.2).

    ``Psi`` is the hinge ``max(0, 1 - u)`` or a comp-sum ``Phi_tau(exp(-u))``. Divided by the
    surrogate's ``unit`` (log 2 for the logistic) it bounds ``rho_margin_loss``.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index k of the label of each sample.
    costs : array of shape (n_samples, n_experts)
        Cost ``c(x, k, k')`` of choosing each expert k' instead of the label; 0 at the label.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins, of which that of the label matters. None stands for all ones.
    surrogate : str or float, default="logistic"
        As in ``mild_loss``.
    reduction : {"max", "sum"}, default="max"
        "max" is the paper's algorithm, "sum" the upper bound of its appendix.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    gradient : array of shape (n_samples, n_experts)
        Only if ``return_gradient`` is True.
    """
    check_option("reduction", reduction, ("max", "sum"))
    f, y, c = check_pair_costs(scores, labels, costs)
    rho = check_margins(margins, f.shape[1])
    gaps = _scaled_gaps(f, y, rho)
    values, slopes = _psi(gaps, parse_surrogate(surrogate))
    with np.errstate(invalid="ignore", over="ignore"):
        terms = np.where(c > 0, c * values, 0)
        term_slopes = np.where(c > 0, c * slopes, 0)
    if reduction == "max":
        rows = np.arange(len(f))
        strongest = argmax_last(terms)
        is_strongest = np.zeros(terms.shape, bool)
        is_strongest[rows, strongest] = True
        total = terms[rows, strongest]
        term_slopes = np.where(is_strongest, term_slopes, 0)
    else:
        total = terms.sum(axis=1)
    if not return_gradient:
        return total
    return total, _gradient_of_gaps(term_slopes, y, rho)


def log_sum_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    costs: ArrayLike,
    margins: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """``log sum over k' != k of (1 + exp((f_k' - f_k) / rho_k))^c(x, k, k')`` (paper, appendix).

    The smooth form for costs that depend on the pair. With a single expert there is no rival, and the loss
    is 0.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    labels : array of int of shape (n_samples,)
        Index k of the label of each sample.
    costs : array of shape (n_samples, n_experts)
        Cost ``c(x, k, k')`` of choosing each expert k' instead of the label; 0 at the label.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins, of which that of the label matters. None stands for all ones.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses.
    gradient : array of shape (n_samples, n_experts)
        Only if ``return_gradient`` is True.
    """
    f, y, c = check_pair_costs(scores, labels, costs)
    rho = check_margins(margins, f.shape[1])
    if f.shape[1] == 1:
        no_loss = np.zeros(len(f), f.dtype)
        if not return_gradient:
            return no_loss
        return no_loss, np.zeros_like(f)
    gaps = _scaled_gaps(f, y, rho)
    terms = c * np.logaddexp(gaps, 0)
    terms[np.arange(len(f)), y] = -np.inf
    top = terms.max(axis=1, keepdims=True)
    share = np.exp(terms - top)
    total = share.sum(axis=1, keepdims=True)
    values = (top + np.log(total))[:, 0]
    if not return_gradient:
        return values
    sigmoid = np.exp(-np.logaddexp(-gaps, 0))
    return values, _gradient_of_gaps(share / total * c * sigmoid, y, rho)


def check_pair_costs(
    scores: ArrayLike, labels: ArrayLike, costs: ArrayLike
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return scores, labels and costs ``c(x_i, k_i, .)``, checked."""
    f = check_scores(scores)
    y = check_labels(labels, f.shape)
    c = float_matrix("costs", costs, f.shape).astype(f.dtype, copy=False)
    if not (np.isfinite(c).all() and (c >= 0).all()):
        raise invalid("costs", "c(x, k, k') must be finite and non-negative.")
    label_costs = c[np.arange(len(f)), y]
    if label_costs.any():
        row = int(np.flatnonzero(label_costs)[0])
        got = f"costs[{row}, {y[row]}] = {label_costs[row]:g}"
        raise invalid("costs", f"must be 0 where k' is the label; got {got}.")
    return f, y, c


def _scaled_gaps(f: FloatArray, y: IntArray, rho: FloatArray) -> FloatArray:
    """``(f_k' - f_k) / rho_k`` with k the label."""
    return (f - f[np.arange(len(f)), y][:, None]) / rho[y].astype(f.dtype)[:, None]


def _psi(gaps: FloatArray, surrogate: Surrogate) -> tuple[FloatArray, FloatArray]:
    """``Psi(-gaps)`` and its slope in ``gaps``."""
    if surrogate.form == "hinge":
        return np.maximum(1 + gaps, 0), (gaps > -1).astype(gaps.dtype)
    softplus = np.logaddexp(gaps, 0)
    with np.errstate(over="ignore"):
        values = _phi(softplus, gaps.dtype.type(1 - surrogate.tau))
        slopes = np.exp(gaps - gaps.dtype.type(surrogate.tau) * softplus)
    return values, slopes


def _gradient_of_gaps(gap_slopes: FloatArray, y: IntArray, rho: FloatArray) -> FloatArray:
    """Gradient (n, p) on scores, from slopes (n, p) in the scaled gaps ``(f_k' - f_k) / rho_k``.

    Every gap pulls the score of the label k the other way; the label's own gap is always 0.
    """
    gradient = gap_slopes / rho[y].astype(gap_slopes.dtype)[:, None]
    rows = np.arange(len(gradient))
    gradient[rows, y] = 0
    gradient[rows, y] = -gradient.sum(axis=1)
    return gradient

"""Losses of scores in NumPy: one value per sample, and analytic gradients.

A router gives every expert a score, and the highest score is chosen. ``scores`` are (n_samples, n_experts).
Sections are those of the paper: Cortes, Mao, Mohri, Zhong, *Optimized Deferral for Imbalanced Settings*.
There are three families:

- MILD and TDEF, smooth surrogates of the cost of the chosen expert (paper, section 5.3),
  ``sum_k reward_k * Phi_tau(sum over k' != k of exp((f_k' - f_k) / rho_k))``. Here an expert's *reward*
  is large where its cost is low (``core.costs.rewards``); its *margin* rho_k is a fixed positive number;
- baselines in which the cheapest expert is the label, all of them cross-entropies of transformed
  scores; ``labels`` are (n_samples,), ``counts`` (n_experts,): how often each expert is cheapest;
- cost-sensitive margin losses with a label k_i and costs ``c(x_i, k_i, .)`` per sample (paper,
  section 4). ``costs`` are (n_samples, n_experts), 0 at the label; only the label's margin matters.

The public functions check their input. The MILD loss itself takes arrays stored experts first, (p, m) for p
experts and m samples: most operations are then on whole rows of m numbers.

The same functions for torch users, with autograd, are in ``mild.nn``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

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
from mild.core.decisions import argmax_last
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import InvalidInputError, check_option

# Values (n_samples,), or with return_gradient=True a pair of values and gradient (n_samples, n_experts).
Result: TypeAlias = Any

# Exponents are at most this share of the largest one that does not overflow.
SAFE_SHARE = 0.85


def mild_loss(
    scores: ArrayLike,
    rewards: ArrayLike,
    margins: ArrayLike | None = None,
    surrogate: object = "logistic",
    return_gradient: bool = False,
    *,
    asked: ArrayLike | None = None,
) -> Result:
    """Return the MILD loss of each sample, and optionally its gradient with respect to the scores.

    With scores f, rewards c̄ and margins rho, the loss of one sample with the logistic surrogate is::

        loss = sum_k c̄_k * log sum_k' exp((f_k' - f_k) / rho_k)

    It is small if the experts with large rewards have the highest scores. With one reward of 1, the others
    0, and all margins 1, it is the cross-entropy.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    rewards : array of shape (n_samples, n_experts)
        Non-negative weights, as ``mild.core.rewards`` makes them from costs.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins. None stands for all ones.
    surrogate : str or float, default="logistic"
        A name in ``SURROGATES``, or a number tau >= 0 of the comp-sum family.
    return_gradient : bool, default=False
        Whether to return the gradient as well.
    asked : array of bool of shape (n_samples, n_experts), default=None
        False where an expert takes no part in the row, because its cost is not known. None stands for all
        True. A row without any asked expert has loss 0.

    Returns
    -------
    values : array of shape (n_samples,)
        Losses; never NaN. A huge number where the true value overflows.
    gradient : array of shape (n_samples, n_experts)
        Gradient of each loss with respect to its scores. Only if ``return_gradient`` is True.

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
    # Names with _t are transposed, (n_experts, n_samples), as ``accumulate_loss`` takes them.
    # The scores are copied because it overwrites them.
    scores_t = np.array(f.T, order="C")
    if asked is not None:
        is_asked = float_matrix("asked", asked, f.shape).astype(bool)
        # exp(-inf) = 0 takes an expert out of the sum. Not in rows without any asked expert, where the
        # differences of scores would be NaN: there the rewards of 0 make the loss 0.
        has_asked_expert = is_asked.any(axis=1)
        scores_t[~is_asked.T & has_asked_expert] = -np.inf
        weights = np.where(is_asked, weights, 0)
    weights_t = np.ascontiguousarray(weights.T)
    if not return_gradient:
        return accumulate_loss(scores_t, weights_t, rho, parsed_surrogate)
    gradient_t = np.zeros_like(scores_t)
    values = accumulate_loss(scores_t, weights_t, rho, parsed_surrogate, gradient_t)
    return values, np.ascontiguousarray(gradient_t.T)


def tdef_loss(
    scores: ArrayLike,
    costs: ArrayLike,
    cost_scale: float | None = None,
    surrogate: object = "logistic",
    return_gradient: bool = False,
) -> Result:
    """Return the TDEF loss of each sample, and optionally its gradient with respect to the scores.

    TDEF (Mao, Mohri, Zhong 2023) is ``mild_loss`` with the rewards ``1 - cost / cost_scale`` and all
    margins 1.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    costs : array of shape (n_samples, n_experts)
        Costs. Experts whose cost is NaN take no part in the row.
    cost_scale : float, default=None
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
        Gradient of each loss with respect to its scores. Only if ``return_gradient`` is True.
    """
    weights = make_rewards(costs, "complement", cost_scale)
    asked = ~np.isnan(float_matrix("costs", costs))
    return mild_loss(scores, weights, None, surrogate, return_gradient, asked=asked)


def accumulate_loss(
    scores: FloatArray,
    rewards: FloatArray,
    margins: FloatArray,
    surrogate: Surrogate,
    gradient: FloatArray | None = None,
) -> FloatArray:
    """Return the MILD losses of m samples, and add their gradient to ``gradient``.

    Nothing is validated. The precision is that of the scores.

    Parameters
    ----------
    scores : array of shape (p, m)
        Overwritten. -inf for an expert that was not asked, whose reward must then be 0.
    rewards : array of shape (p, m)
    margins : array of shape (p,)
    surrogate : Surrogate
    gradient : array of shape (p, m), default=None
        The gradient with respect to the scores is added to it. None computes no gradient.

    Returns
    -------
    values : array of shape (m,)
    """
    scores -= scores.max(axis=0)
    # Finite also for experts that were not asked, and divided by any margin, so that 0 times it is 0.
    lowest = -1e-6 * float(np.finfo(scores.dtype).max) * min(1.0, float(margins.min()))
    np.maximum(scores, lowest, out=scores)
    loss = {"comp_sum": _comp_sum, "pairwise": _pairwise, "hinge": _hinge}[surrogate.form]
    return loss(scores, rewards, margins, surrogate.tau, gradient)


def _comp_sum(
    f: FloatArray, rewards: FloatArray, margins: FloatArray, tau: float, gradient: FloatArray | None
) -> FloatArray:
    """Return the comp-sum loss (m,) of shifted scores f and rewards c̄, both (p, m).

    Experts k that share a margin rho share one log-sum-exp. With j over all experts and ``z = f / rho``::

        ell_k  = log sum_j exp(z_j) - z_k
        loss   = sum_k c̄_k * Phi_tau                 Phi_tau = expm1((1 - tau) * ell_k) / (1 - tau)

        w_k              = c̄_k / rho_k * exp((1 - tau) * ell_k)
        d loss / d f_j   = sum_k w_k * softmax_j(f / rho_k)  -  w_j

    The gradient is added to ``gradient`` (p, m), if there is one.
    """
    values = np.zeros(f.shape[1], f.dtype)
    # All steps of all margins write into this array, so that no other one (p, m) is allocated.
    buffer = np.empty_like(f)
    for margin in np.unique(margins).tolist():
        # A slice for a single expert: it gives views, where a list would copy.
        members = np.flatnonzero(margins == margin)
        own: Any = slice(members[0], members[0] + 1) if members.size == 1 else members
        z = np.multiply(f, 1 / margin, out=buffer)
        ell = -z[own]
        powers = np.exp(z, out=buffer)
        total = powers.sum(axis=0)
        ell += np.log(total)
        values += (rewards[own] * _phi(ell, tau)).sum(axis=0)
        if gradient is not None:
            w = rewards[own] / margin
            if tau != 1:
                w *= _exp((1 - tau) * ell)
            gradient += np.multiply(powers, w.sum(axis=0) / total, out=buffer)
            gradient[own] -= w
    return values


def _pairwise(
    f: FloatArray, rewards: FloatArray, margins: FloatArray, tau: float, gradient: FloatArray | None
) -> FloatArray:
    """Return the pairwise loss (m,) of shifted scores f and rewards c̄, both (p, m).

    It compares each expert k with one rival j at a time. With ``v_j = (f_j - f_k) / rho_k`` and
    ``ell_j = log(1 + exp(v_j))``::

        loss = sum_k c̄_k * sum over j != k of Phi_tau       Phi_tau = expm1((1 - tau) * ell_j) / (1 - tau)

    The term of k and j has the derivative ``slope_j = c̄_k / rho_k * exp(v_j - tau * ell_j)`` with respect
    to f_j, and ``-slope_j`` with respect to f_k. It is added to ``gradient``, if there is one.
    """
    values = np.zeros(f.shape[1], f.dtype)
    for k, margin in enumerate(margins.tolist()):
        v = (f - f[k]) / margin
        ell = np.logaddexp(v, 0)
        losses = _phi(ell, tau)
        losses[k] = 0
        values += (rewards[k] * losses).sum(axis=0)
        if gradient is not None:
            slopes = rewards[k] / margin * _exp(v - tau * ell)
            slopes[k] = 0
            gradient += slopes
            gradient[k] -= slopes.sum(axis=0)
    return values


def _hinge(
    f: FloatArray, rewards: FloatArray, margins: FloatArray, tau: float, gradient: FloatArray | None
) -> FloatArray:
    """Return the hinge loss (m,) of shifted scores f and rewards c̄, both (p, m).

    ``loss = sum_k c̄_k * max(0, 1 - (f_k - r_k) / rho_k)`` with r_k the largest score of the other experts:
    that of the best expert, or for the best expert itself that of the second best. The gradient, at kinks a
    subgradient, is added to ``gradient`` (p, m), if there is one.
    """
    p, m = f.shape
    if p == 1:
        # A single expert has no rival.
        return np.zeros(m, f.dtype)
    rho = margins.astype(f.dtype)[:, None]
    columns = np.arange(m)
    # Stable, so that ties go to the highest index.
    second, best = np.argsort(f, axis=0, kind="stable")[-2:]
    is_best = np.arange(p)[:, None] == best
    rival = np.where(is_best, f[second, columns], f[best, columns])
    violation = np.maximum(1 - (f - rival) / rho, 0)
    if gradient is not None:
        # The loss of an expert k that violates its margin falls with its own score and rises with that
        # of its rival, both at the rate c̄_k / rho_k. The rival of the best expert is the second best
        # one, that of all others is the best.
        slope = np.where(violation > 0, rewards / rho, 0)
        gradient -= slope
        gradient[second, columns] += slope[best, columns]
        gradient[best, columns] += slope.sum(axis=0) - slope[best, columns]
    return np.einsum("km,km->m", rewards, violation)


def _phi(ell: FloatArray, tau: float) -> FloatArray:
    """``Phi_tau(u)`` from ``ell = log(1 + u)``, which it is at tau = 1."""
    if tau == 1:
        return ell
    phi: FloatArray = np.expm1(np.minimum((1 - tau) * ell, _largest_exponent(ell))) / (1 - tau)
    return phi


def _exp(values: FloatArray) -> FloatArray:
    """Exponentials that do not overflow."""
    powers: FloatArray = np.exp(np.minimum(values, _largest_exponent(values)))
    return powers


def _largest_exponent(values: FloatArray) -> float:
    return SAFE_SHARE * float(np.log(np.finfo(values.dtype).max))


def cross_entropy_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """Return the weighted cross-entropy ``-w_y log softmax_y(f)`` of each sample with scores f and label y.

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
    """Return the LDAM loss (Cao et al. 2019): cross-entropy with larger margins for rarer labels.

    It is the cross-entropy of ``scale * (f_k - Delta_k * 1[k = y])``, with Delta from ``ldam_margins``.

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
    """Return the logit-adjusted loss (Menon et al. 2021): cross-entropy of ``f + strength * log prior``.

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
    """Return the loss with class-dependent temperatures (Ye et al. 2020): cross-entropy of ``f_k / T_k``.

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


# Defaults of ``_softmax_loss``: scores are left as they are.
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
    """Return the cross-entropy of transformed scores f (n, p), and optionally its gradient.

    With labels y (n,), weights w (p,) and ``scale`` and ``offset``, which broadcast to (n, p)::

        z              = scale * (f + offset)
        loss           = -w_y * log softmax_y(z) = w_y * (log sum_k exp(z_k) - z_y)      (n,)
        d loss / d f_k = w_y * (softmax_k(z) - 1[k = y]) * scale_k                       (n, p)
    """
    y = check_labels(labels, f.shape)
    rows = np.arange(len(f))
    scale = scale.astype(f.dtype)
    z = scale * (f + offset.astype(f.dtype))
    # The loss does not depend on this shift, and exp cannot overflow.
    z -= z.max(axis=1, keepdims=True)
    powers = np.exp(z)
    total = powers.sum(axis=1)
    label_weight = np.ones(1, f.dtype)
    if weights is not None:
        label_weight = weights[y].astype(f.dtype)
    values = label_weight * (np.log(total) - z[rows, y])
    if not return_gradient:
        return values
    # Softmax minus the indicator of the label, in place.
    residual = np.divide(powers, total[:, None], out=powers)
    residual[rows, y] -= 1
    return values, residual * label_weight[:, None] * scale


def class_weights(counts: ArrayLike) -> FloatArray:
    """Return inverse-frequency weights ``n / (p * n_k)`` for p labels that occur; absent ones get 0."""
    n = float_vector("counts", counts, nonzero=True)
    occurs = n > 0
    weights = np.zeros_like(n)
    weights[occurs] = n.sum() / (occurs.sum() * n[occurs])
    return weights


def floored_counts(counts: ArrayLike, n_experts: int | None = None) -> FloatArray:
    """Return the counts with 0 raised to 1, or to the smallest positive count if that is less."""
    n = float_vector("counts", counts, n_experts, nonzero=True)
    return np.maximum(n, min(1.0, n[n > 0].min()))


def ldam_margins(counts: ArrayLike, max_margin: float = 0.5) -> FloatArray:
    """Return margins proportional to ``n_k^(-1/4)`` of floored counts; the largest is ``max_margin``."""
    raw = floored_counts(counts) ** -0.25
    return raw * (max_margin / raw.max())


def temperatures(counts: ArrayLike, gamma: float = 0.3) -> FloatArray:
    """Return class-dependent temperatures ``(n_max / n_k)^gamma`` of floored counts."""
    n = floored_counts(counts)
    return (n.max() / n) ** gamma


def resampling_weights(
    labels: ArrayLike, n_experts: int, kind: str, rng: np.random.Generator
) -> FloatArray:
    """Return how often each row is drawn (n_samples,) when labels are over- or under-sampled.

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
    """Return the cost ``c(x, k, decision)`` of choosing the highest score when k is the label.

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
    """Return the margin loss ``max_k' c(x, k, k') * min(1, max(0, 1 - (f_k - f_k') / rho_k))``.

    It is an upper bound of ``cost_sensitive_zero_one``.

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
    """Return an upper bound of the cost of choosing another expert than the label (paper, section 4.2).

    For the label k, ``loss = max over k' of c(x, k, k') * Psi((f_k - f_k') / rho_k)``, or the sum over k'.
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
    psi, psi_slopes = _psi(gaps, parse_surrogate(surrogate))
    terms = c * psi
    slopes = c * psi_slopes
    if reduction == "max":
        rows = np.arange(len(f))
        largest = argmax_last(terms)
        is_largest = np.zeros(terms.shape, bool)
        is_largest[rows, largest] = True
        values = terms[rows, largest]
        slopes = np.where(is_largest, slopes, 0)
    else:
        values = terms.sum(axis=1)
    if not return_gradient:
        return values
    return values, _gradient_of_gaps(slopes, y, rho)


def log_sum_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    costs: ArrayLike,
    margins: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """Return a loss that is smooth also where ``cost_sensitive_loss`` takes a maximum (paper, appendix).

    For the label k::

        loss = log sum over k' != k of (1 + exp((f_k' - f_k) / rho_k))^c(x, k, k')

    With a single expert there is no rival, and the loss is 0.

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
    # loss = log sum_k' exp(exponent_k'), the label left out, relative to the largest exponent.
    exponents = c * np.logaddexp(gaps, 0)
    exponents[np.arange(len(f)), y] = -np.inf
    largest = exponents.max(axis=1, keepdims=True)
    powers = np.exp(exponents - largest)
    total = powers.sum(axis=1, keepdims=True)
    values = (largest + np.log(total))[:, 0]
    if not return_gradient:
        return values
    # d loss / d gap_k' = softmax_k'(exponents) * c_k' * sigmoid(gap_k').
    sigmoid = np.exp(-np.logaddexp(-gaps, 0))
    return values, _gradient_of_gaps(powers / total * c * sigmoid, y, rho)


def check_pair_costs(
    scores: ArrayLike, labels: ArrayLike, costs: ArrayLike
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return the checked scores (n, p), labels k (n,) and costs ``c(x, k, .)`` (n, p)."""
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
    """Return ``(f_k' - f_k) / rho_k`` (n, p) for the label k and every expert k'."""
    return (f - f[np.arange(len(f)), y][:, None]) / rho[y].astype(f.dtype)[:, None]


def _psi(gaps: FloatArray, surrogate: Surrogate) -> tuple[FloatArray, FloatArray]:
    """Return ``Psi(-gaps)`` and its derivative with respect to ``gaps``."""
    if surrogate.form == "hinge":
        return np.maximum(1 + gaps, 0), (gaps > -1).astype(gaps.dtype)
    softplus = np.logaddexp(gaps, 0)
    return _phi(softplus, surrogate.tau), _exp(gaps - surrogate.tau * softplus)


def _gradient_of_gaps(gap_slopes: FloatArray, y: IntArray, rho: FloatArray) -> FloatArray:
    """Return the gradient (n, p) with respect to scores, from that with respect to the scaled gaps.

    The gap of expert k' is ``(f_k' - f_k) / rho_k``: f_k' has the slope ``gap_slopes_k' / rho_k``, and the
    score f_k of the label has minus the sum of these. The label's own gap is always 0.
    """
    gradient = gap_slopes / rho[y].astype(gap_slopes.dtype)[:, None]
    rows = np.arange(len(gradient))
    gradient[rows, y] = 0
    gradient[rows, y] = -gradient.sum(axis=1)
    return gradient

"""Losses of scores: unreduced values, one per sample, and analytic gradients, in NumPy.

``scores`` are (n_samples, n_experts). There are three families:

- MILD and TDEF, reward-weighted surrogates of the deferral loss (paper, section 5.3),
  ``sum_k reward_k * Phi_tau(sum over k' != k of exp((f_k' - f_k) / rho_k))``;
- baselines in which the cheapest expert is the label, all of them cross-entropies of transformed
  scores; ``labels`` are (n_samples,), ``counts`` (n_experts,): how often each expert is cheapest;
- cost-sensitive margin losses with a label k_i and costs ``c(x_i, k_i, .)`` per sample (paper,
  section 4). ``costs`` are (n_samples, n_experts), 0 at the label; the label's margin alone enters.

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
from mild.core.decisions import argmax_last, argmax_last_experts_first
from mild.core.margins import Anchors, MarginGroup, anchors, group_sums, margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import InvalidInputError, check_option

# Values (n_samples,), or with return_gradient=True a pair of values and gradient (n_samples, n_experts).
Result: TypeAlias = Any

# Powers of scores that are held at a time.
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
    """MILD loss of each sample, and its gradient on the scores if asked.

    ``sum_k reward_k * log sum_k' exp((f_k' - f_k) / rho_k)`` for the logistic surrogate.

    Parameters
    ----------
    scores, rewards : (n_samples, n_experts) arrays
    margins : (n_experts,) positive; None for all ones
    surrogate : a name in ``SURROGATES``, or a number tau >= 0 (comp-sum)
    return_gradient : whether to return the gradient (n_samples, n_experts) as well
    asked : (n_samples, n_experts) booleans; False where an expert takes no part in the row. A row
        without any asked expert has loss 0

    Returns
    -------
    values (n_samples,), inf where the true value overflows, never NaN; or values and gradient

    Examples
    --------
    >>> values, gradient = mild_loss([[0.0, 0.0]], [[1.0, 3.0]], return_gradient=True)
    >>> values.round(4), gradient
    (array([2.7726]), array([[ 1., -1.]]))
    """
    f = check_scores(scores)
    weights = check_rewards(rewards, f.shape).astype(f.dtype, copy=False)
    rho = check_margins(margins, f.shape[1])
    kind = parse_surrogate(surrogate)
    f_t = np.array(f.T, order="C")
    if asked is not None:
        known = float_matrix("asked", asked, f.shape).astype(bool)
        f_t[~known.T & known.any(axis=1)] = -np.inf
        weights = np.where(known, weights, 0)
    gradient_t = np.zeros_like(f_t) if return_gradient else None
    values = accumulate_loss(
        f_t, np.ascontiguousarray(weights.T), margin_groups(rho), kind, gradient_t
    )
    if gradient_t is None:
        return values
    return values, np.ascontiguousarray(gradient_t.T)


def tdef_loss(
    scores: ArrayLike,
    costs: ArrayLike,
    scale: float | None = None,
    surrogate: object = "logistic",
    return_gradient: bool = False,
) -> Result:
    """TDEF (Mao, Mohri, Zhong 2023): ``complement`` rewards and all margins 1.

    Experts whose cost is NaN take no part in the row.
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
    """Values (m,) of arrays stored experts first, (p, m); overwrites scores, adds to ``gradient``.

    The score of an expert that was not asked is -inf (its reward must be 0).
    """
    if surrogate.form != "pairwise":
        scores -= scores.max(axis=0)
    floor = -np.finfo(scores.dtype).max * min(1.0, *(group.margin for group in groups), 1.0)
    np.maximum(scores, scores.dtype.type(floor * 0.5), out=scores)
    if surrogate.form == "hinge":
        return _hinge(scores, rewards, groups, gradient)
    if surrogate.form == "comp_sum" and surrogate.tau == 1:
        few = anchors(groups, scores.dtype)
        if few is not None:
            return _anchored_logistic(scores, rewards, groups, few, gradient)
        return _logistic(scores, rewards, groups, gradient)
    loss = _pairwise if surrogate.form == "pairwise" else _comp_sum
    with np.errstate(divide="ignore", over="ignore"):
        if gradient is None:
            return loss(scores, rewards, groups, surrogate.tau)
        # Slopes are summed as logarithms: at tau < 1 single terms overflow where sums do not.
        log_up, log_down = np.full((2, *scores.shape), -np.inf, scores.dtype)
        values = loss(scores, rewards, groups, surrogate.tau, (log_up, log_down))
    gradient += _exp_difference(log_up, log_down)
    return values


def _logistic(
    shifted: FloatArray, rewards: FloatArray, groups: list[MarginGroup], gradient: FloatArray | None
) -> FloatArray:
    values = np.zeros(shifted.shape[1], shifted.dtype)
    z = np.empty_like(shifted)
    for margin, members in groups:
        # One expert is a view without sums; a list of indices would be a copy.
        who = members[0] if members.size == 1 else members
        inverse = shifted.dtype.type(1 / margin)
        np.multiply(shifted, inverse, out=z)
        own = rewards[who]
        weight = own if members.size == 1 else own.sum(axis=0)
        rest = own * z[who] if members.size == 1 else np.einsum("km,km->m", own, z[who])
        np.exp(z, out=z)
        total = z.sum(axis=0)
        values += weight * np.log(total) - rest
        if gradient is not None:
            np.divide(weight, total, out=total)
            total *= inverse
            z *= total
            gradient += z
            gradient[who] -= own * inverse
    return values


def _anchored_logistic(
    shifted: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    few: Anchors,
    gradient: FloatArray | None,
) -> FloatArray:
    """``_logistic`` from the powers of the anchors ``few`` of the margins alone.

    The sum over experts of ``exp((f_j - max f) / rho)`` for any margin is a weighted sum of the
    anchors' sums; the gradient uses the transposed weights.
    """
    p, m = shifted.shape
    dtype = shifted.dtype
    margins = np.array([[group.margin] for group in groups])
    inverse = np.empty((p, 1), dtype)
    for group in groups:
        inverse[group.members] = 1 / group.margin
    steep = few.inverse.astype(dtype)[:, None, None]
    size = int(np.clip(POWERS // (few.inverse.size * p), 8, 1024))
    powers = np.empty((few.inverse.size, p, min(size, m)), dtype)
    values = np.empty(m, dtype)
    for start in range(0, m, size):
        rows = slice(start, start + size)
        scores = shifted[:, rows]
        power = powers[:, :, : scores.shape[1]]
        np.multiply(steep, scores, out=power)
        np.exp(power, out=power)
        # Weights have both signs: double precision keeps the accuracy of single precision.
        total = few.weights @ power.sum(axis=1).astype(np.float64)
        np.maximum(total, 1, out=total)
        weight = group_sums(rewards[:, rows], groups)
        own = rewards[:, rows] * inverse
        values[rows] = np.einsum("gm,gm->m", weight, np.log(total))
        values[rows] -= np.einsum("km,km->m", own, scores)
        if gradient is not None:
            total *= margins
            pull = few.weights.T @ np.divide(weight, total, out=total)
            gradient[:, rows] += np.einsum("am,akm->km", pull.astype(dtype), power)
            gradient[:, rows] -= own
    return values


def _comp_sum(
    shifted: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    tau: float,
    log_slopes: tuple[FloatArray, FloatArray] | None = None,
) -> FloatArray:
    """One function of the sum over rivals; logarithms of slopes up and down go to ``log_slopes``."""
    gap = shifted.dtype.type(1 - tau)
    values = np.zeros(shifted.shape[1], shifted.dtype)
    for group in groups:
        z = shifted / shifted.dtype.type(group.margin)
        log_total = np.log(np.exp(z).sum(axis=0))
        own = rewards[group.members]
        growth = gap * (log_total - z[group.members])
        phi = np.expm1(growth) / gap
        values += np.multiply(own, phi, out=np.zeros_like(own), where=own > 0).sum(axis=0)
        if log_slopes is not None:
            log_up, log_down = log_slopes
            log_margin = np.log(shifted.dtype.type(group.margin))
            log_down[group.members] = np.log(own) - log_margin + growth
            # growth_k + z_j - log_total, arranged so that equal scores cancel exactly at 1e20.
            exponent = np.where(own > 0, -gap * z[group.members], -np.inf)
            pivot = np.maximum(exponent.max(axis=0), np.finfo(z.dtype).min)
            rest = np.log((own * np.exp(exponent - pivot)).sum(axis=0)) - log_margin
            np.logaddexp(log_up, (z + pivot) - tau * log_total + rest, out=log_up)
    return values


def _pairwise(
    scores: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    tau: float,
    log_slopes: tuple[FloatArray, FloatArray] | None = None,
) -> FloatArray:
    """Sum over rivals k' of Phi_tau(exp(v)), v = (f_k' - f_k) / rho_k: one expert at a time.

    Scores come unshifted: gaps between low experts count here, and a shift by 1e20 would lose them.
    """
    gap = scores.dtype.type(1 - tau)
    values = np.zeros(scores.shape[1], scores.dtype)
    for group in groups:
        for k in group.members:
            v = (scores - scores[k]) / scores.dtype.type(group.margin)
            own = rewards[k]
            softplus = np.logaddexp(v, 0)
            phi = softplus if gap == 0 else np.expm1(gap * softplus) / gap
            phi[k] = 0
            total = phi.sum(axis=0)
            values += np.multiply(own, total, out=np.zeros_like(own), where=own > 0)
            if log_slopes is not None:
                log_up, log_down = log_slopes
                log_slope = np.log(own) - np.log(group.margin) + (v - tau * softplus)
                log_slope[k] = -np.inf
                log_down[k] = np.logaddexp.reduce(log_slope, axis=0)
                np.logaddexp(log_up, log_slope, out=log_up)
    return values


def _hinge(
    shifted: FloatArray, rewards: FloatArray, groups: list[MarginGroup], gradient: FloatArray | None
) -> FloatArray:
    """``c̄_k * max(0, 1 - (f_k - strongest rival) / rho_k)``; a subgradient at the kinks."""
    p, m = shifted.shape
    if p == 1:
        return np.zeros(m, shifted.dtype)
    rho = np.empty((p, 1), shifted.dtype)
    for margin, members in groups:
        rho[members] = margin
    columns = np.arange(m)
    best = argmax_last_experts_first(shifted)
    others = shifted.copy()
    others[best, columns] = -np.inf
    second = argmax_last_experts_first(others)
    rival = np.where(np.arange(p)[:, None] == best, others[second, columns], shifted[best, columns])
    violation = np.maximum(1 - (shifted - rival) / rho, 0)
    if gradient is not None:
        pull = np.where(violation > 0, rewards / rho, 0)
        gradient -= pull
        gradient[second, columns] += pull[best, columns]
        gradient[best, columns] += pull.sum(axis=0) - pull[best, columns]
    return np.einsum("km,km->m", rewards, violation)


def _exp_difference(log_a: FloatArray, log_b: FloatArray) -> FloatArray:
    """``exp(log_a) - exp(log_b)`` without inf - inf."""
    high = np.maximum(log_a, log_b)
    low = np.minimum(log_a, log_b)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.exp(high) * -np.expm1(low - high)
    return np.where(high == low, 0, np.where(log_a > log_b, size, -size))


def cross_entropy_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """CE: ``-w_y log softmax_y(f)``; with inverse-frequency ``weights`` (n_experts,) it is CWCE.

    Examples
    --------
    >>> cross_entropy_loss([[0.0, 0.0]], [1]).round(4)
    array([0.6931])
    """
    f = check_scores(scores)
    w = None if weights is None else float_vector("weights", weights, f.shape[1])
    return _softmax_loss(f, labels, return_gradient, weights=w)


def ldam_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    max_margin: float = 0.5,
    scale: float = 30.0,
    return_gradient: bool = False,
) -> Result:
    """LDAM (Cao et al. 2019): cross-entropy of ``scale * (f - Delta_y at y)``."""
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
    """Logit adjustment (Menon et al. 2021): cross-entropy of ``f + strength * log prior``."""
    f = check_scores(scores)
    n = floored_counts(counts, f.shape[1])
    return _softmax_loss(f, labels, return_gradient, offset=strength * np.log(n / n.sum()))


def class_dependent_temperature_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    gamma: float = 0.3,
    return_gradient: bool = False,
) -> Result:
    """Class-dependent temperatures (Ye et al. 2020): cross-entropy of ``f_k / T_k``."""
    f = check_scores(scores)
    n = floored_counts(counts, f.shape[1])
    return _softmax_loss(f, labels, return_gradient, scale=1 / temperatures(n, gamma))


def _softmax_loss(
    f: FloatArray,
    labels: ArrayLike,
    return_gradient: bool,
    *,
    scale: FloatArray | None = None,
    offset: FloatArray | None = None,
    weights: FloatArray | None = None,
) -> Result:
    """``-w_y log softmax_y(scale * (f + offset))`` and its gradient on f."""
    y = check_labels(labels, f.shape)
    rows = np.arange(len(f))
    slope = np.ones(1, f.dtype) if scale is None else scale.astype(f.dtype)
    z = slope * (f if offset is None else f + offset.astype(f.dtype))
    z -= z.max(axis=1, keepdims=True)
    probability = np.exp(z)
    total = probability.sum(axis=1)
    weight = np.ones(1, f.dtype) if weights is None else weights[y].astype(f.dtype)
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
    """Over- or under-sampling as multiplicities: how often each row is drawn.

    ``kind="over"`` draws rows of every label with replacement until each has as many as the
    largest; every row is kept at least once. ``"under"`` keeps as many rows of each label as the
    smallest has.
    """
    check_option("sampling", kind, ("over", "under"))
    y = check_labels(labels, (np.size(labels), n_experts))
    counts = np.bincount(y, minlength=n_experts)
    result = np.zeros(y.size) if kind == "under" else np.ones(y.size)
    for k in np.flatnonzero(counts):
        rows = np.flatnonzero(y == k)
        if kind == "over":
            drawn = rng.choice(rows, counts.max() - rows.size, replace=True)
            np.add.at(result, drawn, 1)
        else:
            result[rng.choice(rows, counts[counts > 0].min(), replace=False)] = 1
    return result


def cost_sensitive_zero_one(scores: ArrayLike, labels: ArrayLike, costs: ArrayLike) -> FloatArray:
    """``c(x, k, decision)``: cost of the argmax decision when k is the label."""
    f, _, c = check_pair_costs(scores, labels, costs)
    return c[np.arange(len(f)), argmax_last(f)]


def rho_margin_loss(
    scores: ArrayLike, labels: ArrayLike, costs: ArrayLike, margins: ArrayLike | None = None
) -> FloatArray:
    """``max_k' c(x, k, k') * min(1, max(0, 1 - (f_k - f_k') / rho_k))``.

    It bounds the zero-one loss.
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
    surrogate's ``unit`` (log 2 for the logistic) it bounds ``rho_margin_loss``. ``reduction`` is "max"
    (the algorithm) or "sum" (the appendix's upper bound).
    """
    check_option("reduction", reduction, ("max", "sum"))
    f, y, c = check_pair_costs(scores, labels, costs)
    rho = check_margins(margins, f.shape[1])
    kind = parse_surrogate(surrogate)
    gaps = _scaled_gaps(f, y, rho)
    values, slopes = _psi(gaps, kind)
    with np.errstate(invalid="ignore", over="ignore"):
        weighted = np.where(c > 0, c * values, 0)
        pull = np.where(c > 0, c * slopes, 0)
    rows = np.arange(len(f))
    if reduction == "max":
        strongest = argmax_last(weighted)
        total = weighted[rows, strongest]
        only = np.zeros_like(pull)
        only[rows, strongest] = pull[rows, strongest]
        pull = only
    else:
        total = weighted.sum(axis=1)
    return (total, _spread(pull, y, rho)) if return_gradient else total


def log_sum_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    costs: ArrayLike,
    margins: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """``log sum over k' != k of (1 + exp((f_k' - f_k) / rho_k))^c(x, k, k')`` (paper, appendix).

    The smooth form for costs that depend on the pair. With a single expert there is no rival: 0.
    """
    f, y, c = check_pair_costs(scores, labels, costs)
    rho = check_margins(margins, f.shape[1])
    if f.shape[1] == 1:
        zero = np.zeros(len(f), f.dtype)
        return (zero, np.zeros_like(f)) if return_gradient else zero
    gaps = _scaled_gaps(f, y, rho)
    terms = c * np.logaddexp(gaps, 0)
    terms[np.arange(len(f)), y] = -np.inf
    top = terms.max(axis=1, keepdims=True)
    share = np.exp(terms - top)
    total = share.sum(axis=1, keepdims=True)
    values = (top + np.log(total))[:, 0]
    if not return_gradient:
        return values
    return values, _spread(share / total * c * np.exp(-np.logaddexp(-gaps, 0)), y, rho)


def check_pair_costs(
    scores: ArrayLike, labels: ArrayLike, costs: ArrayLike
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return scores, labels and costs ``c(x_i, k_i, .)``, checked."""
    f = check_scores(scores)
    y = check_labels(labels, f.shape)
    c = float_matrix("costs", costs, f.shape).astype(f.dtype, copy=False)
    if not (np.isfinite(c).all() and (c >= 0).all()):
        raise invalid("costs", "c(x, k, k') must be finite and non-negative.")
    own = c[np.arange(len(f)), y]
    if own.any():
        row = int(np.flatnonzero(own)[0])
        raise invalid(
            "costs", f"must be 0 where k' is the label; got costs[{row}, {y[row]}] = {own[row]:g}."
        )
    return f, y, c


def _scaled_gaps(f: FloatArray, y: IntArray, rho: FloatArray) -> FloatArray:
    """``(f_k' - f_k) / rho_k`` with k the label."""
    return (f - f[np.arange(len(f)), y][:, None]) / rho[y].astype(f.dtype)[:, None]


def _psi(gaps: FloatArray, kind: Surrogate) -> tuple[FloatArray, FloatArray]:
    """Psi at ``-gaps`` and its slope in ``gaps``."""
    if kind.form == "hinge":
        return np.maximum(1 + gaps, 0), (gaps > -1).astype(gaps.dtype)
    softplus = np.logaddexp(gaps, 0)
    gap = gaps.dtype.type(1 - kind.tau)
    with np.errstate(over="ignore"):
        values = softplus if gap == 0 else np.expm1(gap * softplus) / gap
        return values, np.exp(gaps - gaps.dtype.type(kind.tau) * softplus)


def _spread(pull: FloatArray, y: IntArray, rho: FloatArray) -> FloatArray:
    """Gradient on scores from slopes in the scaled gaps; the label's own gap is always 0."""
    pull = pull / rho[y].astype(pull.dtype)[:, None]
    rows = np.arange(len(pull))
    pull[rows, y] = 0
    pull[rows, y] = -pull.sum(axis=1)
    return pull

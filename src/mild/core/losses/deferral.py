"""MILD and TDEF: reward-weighted surrogates of the deferral loss.

For a sample with scores f, rewards c̄ and margins rho (paper, section 5.3)

    loss = sum_k c̄_k * Phi_tau(sum over k' != k of exp((f_k' - f_k) / rho_k)).

Arrays are stored experts first, (p, m), so that a sum over experts adds whole rows. Experts that share
a margin share one log-sum-exp: the work is (number of distinct margins) x p per sample and no
(n, p, p) array is made. With many distinct margins the logistic loss needs the powers of a few of
them, the anchors (mild.core.decisions.anchors), and the work grows with p alone.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    check_margins,
    check_rewards,
    check_scores,
    float_matrix,
    invalid,
)
from mild.core.costs import rewards as make_rewards
from mild.core.decisions.anchors import Anchors, anchors, group_sums
from mild.core.margins import MarginGroup, margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate

__all__ = ["accumulate_loss", "mild_loss", "tdef_loss"]

# Powers of scores that are held at a time.
POWERS = 100_000


@overload
def mild_loss(
    scores: ArrayLike,
    rewards: ArrayLike,
    margins: ArrayLike | None = ...,
    surrogate: object = ...,
    return_gradient: Literal[False] = ...,
    *,
    asked: ArrayLike | None = ...,
) -> FloatArray: ...
@overload
def mild_loss(
    scores: ArrayLike,
    rewards: ArrayLike,
    margins: ArrayLike | None = ...,
    surrogate: object = ...,
    *,
    return_gradient: Literal[True],
    asked: ArrayLike | None = ...,
) -> tuple[FloatArray, FloatArray]: ...
def mild_loss(
    scores: ArrayLike,
    rewards: ArrayLike,
    margins: ArrayLike | None = None,
    surrogate: object = "logistic",
    return_gradient: bool = False,
    *,
    asked: ArrayLike | None = None,
) -> FloatArray | tuple[FloatArray, FloatArray]:
    """MILD loss of each sample, and its gradient on the scores if asked.

    ``sum_k reward_k * log sum_k' exp((f_k' - f_k) / rho_k)`` for the logistic surrogate.

    Parameters
    ----------
    scores, rewards : (n_samples, n_experts) arrays
    margins : (n_experts,) positive; None for all ones
    surrogate : "logistic", "exponential", a number tau >= 0 (comp-sum), "hinge",
        "pairwise_logistic" or "pairwise_exponential"
    return_gradient : bool
    asked : (n_samples, n_experts) boolean array, optional
        False where an expert was never asked: it then takes no part in the row, whatever its score
        and reward. A row without any asked expert has loss 0.

    Returns
    -------
    values : (n_samples,) array, inf where the true value overflows, never NaN
    gradient : (n_samples, n_experts) array, only with ``return_gradient=True``

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
        known = np.asarray(asked, dtype=bool)
        if known.shape != f.shape:
            raise invalid(
                "asked", f"must have shape (n_samples, n_experts) = {f.shape}; got {known.shape}."
            )
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
) -> FloatArray | tuple[FloatArray, FloatArray]:
    """TDEF (Mao, Mohri, Zhong 2023): ``complement`` rewards and all margins 1.

    Experts whose cost is NaN take no part in the row.
    """
    weights = make_rewards(costs, "complement", scale)
    asked = ~np.isnan(float_matrix("costs", costs))
    if return_gradient:
        return mild_loss(scores, weights, None, surrogate, return_gradient=True, asked=asked)
    return mild_loss(scores, weights, None, surrogate, asked=asked)


def accumulate_loss(
    scores: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    surrogate: Surrogate,
    gradient: FloatArray | None = None,
) -> FloatArray:
    """Values (m,) of arrays stored experts first; overwrites ``scores`` and adds to ``gradient``.

    Parameters
    ----------
    scores : (p, m) array; -inf for an expert that was not asked (its reward must be 0)
    rewards : (p, m) array
    gradient : (p, m) array or None
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
    shifted: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    gradient: FloatArray | None,
) -> FloatArray:
    values = np.zeros(shifted.shape[1], shifted.dtype)
    z = np.empty_like(shifted)
    for group in groups:
        inverse = shifted.dtype.type(1 / group.margin)
        np.multiply(shifted, inverse, out=z)
        if group.members.size == 1:
            k = group.members[0]
            own = rewards[k]
            weight = own
            rest = z[k] * own
        else:
            own = rewards[group.members]
            weight = own.sum(axis=0)
            rest = np.einsum("km,km->m", own, z[group.members])
        np.exp(z, out=z)
        total = z.sum(axis=0)
        values += weight * np.log(total) - rest
        if gradient is not None:
            np.divide(weight, total, out=total)
            total *= inverse
            z *= total
            gradient += z
            if group.members.size == 1:
                gradient[group.members[0]] -= own * inverse
            else:
                gradient[group.members] -= own * inverse
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
    shifted: FloatArray,
    rewards: FloatArray,
    groups: list[MarginGroup],
    gradient: FloatArray | None,
) -> FloatArray:
    """``c̄_k * max(0, 1 - (f_k - strongest rival) / rho_k)``; a subgradient at the kinks."""
    p, m = shifted.shape
    values = np.zeros(m, shifted.dtype)
    if p == 1:
        return values
    columns = np.arange(m)
    best = p - 1 - np.argmax(shifted[::-1], axis=0)
    without_best = shifted.copy()
    without_best[best, columns] = -np.inf
    second = p - 1 - np.argmax(without_best[::-1], axis=0)
    for group in groups:
        inverse = shifted.dtype.type(1 / group.margin)
        for k in group.members:
            rival = np.where(best == k, second, best)
            violation = 1 - (shifted[k] - shifted[rival, columns]) * inverse
            active = np.where(violation > 0, rewards[k], 0)
            values += active * np.maximum(violation, 0)
            if gradient is not None:
                gradient[k] -= active * inverse
                np.add.at(gradient, (rival, columns), active * inverse)
    return values


def _exp_difference(log_a: FloatArray, log_b: FloatArray) -> FloatArray:
    """``exp(log_a) - exp(log_b)`` without inf - inf."""
    high = np.maximum(log_a, log_b)
    low = np.minimum(log_a, log_b)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.exp(high) * -np.expm1(low - high)
    return np.where(high == low, 0, np.where(log_a > log_b, size, -size))

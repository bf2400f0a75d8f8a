"""Stationary distributions of the Markov chains defined by scores and margins."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray
from mild.core.decisions.anchors import Anchors, group_sums
from mild.core.margins import MarginGroup
from mild.core.surrogates import Surrogate

__all__ = ["anchored_distribution", "stationary_experts_first"]


def stationary_experts_first(
    scores: FloatArray, margins: FloatArray, groups: list[MarginGroup], surrogate: Surrogate
) -> FloatArray:
    """Stationary distribution (p, m) of scores (p, m) by elimination, without validation."""
    p = scores.shape[0]
    if p == 1:
        return np.ones_like(scores)
    shifted = np.ascontiguousarray(scores) - scores.max(axis=0)
    if len(groups) == 1:
        distribution = np.exp(shifted / margins[0].astype(scores.dtype) * (2 - surrogate.tau))
        return distribution / distribution.sum(axis=0)
    if p == 2:
        return _two_experts(shifted, margins, surrogate.tau)
    if surrogate.form == "pairwise":
        return _pairwise(scores, margins, surrogate.tau)
    lowest = shifted.min(axis=0)
    limit = 40.0 if scores.dtype == np.float32 else 300.0
    wide = lowest < -limit * groups[0].margin
    if not wide.any():
        return _plain(shifted, margins, groups, surrogate.tau)
    result = np.empty_like(shifted)
    result[:, ~wide] = _plain(shifted[:, ~wide], margins, groups, surrogate.tau)
    # Double precision often suffices where single does not, in a ninth of the logarithms' time.
    beyond = lowest < -300.0 * groups[0].margin
    for rows, eliminate in ((wide & ~beyond, _plain), (beyond, _logarithmic)):
        if rows.any():
            doubles = shifted[:, rows].astype(np.float64)
            result[:, rows] = eliminate(doubles, margins, groups, surrogate.tau)
    return result


def anchored_distribution(
    shifted: FloatArray,
    margins: FloatArray,
    groups: list[MarginGroup],
    few: Anchors,
    tau: float,
) -> FloatArray:
    """Stationary distribution (p, m) by a chain between a few of the margins, the anchors.

    Let ``E_gj`` be the powers ``exp((f_j - max f) / rho_g)``, ``T_g`` their sums over experts, and
    ``E_gj = sum_a C_ga E_aj`` as in ``anchors``. The masses ``q_j = p_j / rho_j`` are then ``sum_a y_a
    E_aj``, where y is the left eigenvector, for the eigenvalue 1, of the small matrix

        B_ab = sum over g of (sum of E_aj over the experts j of group g) / T_g * C_gb.

    C has entries of both signs, so entries of p have an absolute accuracy of 1e-12 (1e-6 for scores
    in single precision), not a relative one: enough to find the largest. The expert of the largest
    score is reached from every state with a probability of at least 1/p, which keeps the system
    well-conditioned.

    Parameters
    ----------
    shifted : (p, m) scores, the largest of each sample being 0
    margins : (p,)
    groups, few : distinct margins and their anchors
    tau : of the surrogate; at most 1, because small masses matter beyond that
    """
    p, m = shifted.shape
    size = few.inverse.size
    scores = shifted.astype(np.float64, copy=False)
    powers = np.empty((size, p, m))
    np.multiply(few.inverse[:, None, None], scores, out=powers)
    np.exp(powers, out=powers)
    sums = powers.sum(axis=1)
    total = few.weights @ sums
    shares = group_sums(powers, groups)
    shares /= -total
    chain = np.ascontiguousarray((few.weights.T @ shares).transpose(2, 1, 0))
    chain[:, np.arange(size), np.arange(size)] += 1
    # The chain determines masses up to scale; the rank-one term of the sums fixes the scale.
    unit = (sums / np.square(sums).sum(axis=0)).T
    chain += unit[:, :, None] * sums.T[:, None, :]
    mass = np.linalg.solve(chain, unit[:, :, None])[:, :, 0].T
    result = np.einsum("am,akm->km", mass, powers)
    np.maximum(result, 0, out=result)
    result *= margins[:, None]
    if tau != 1:
        home = np.empty(p, np.intp)
        for g, group in enumerate(groups):
            home[group.members] = g
        result *= (np.exp(scores / margins[:, None]) / total[home]) ** (1 - tau)
    result /= result.sum(axis=0)
    return result


def _two_experts(shifted: FloatArray, rho: FloatArray, tau: float) -> FloatArray:
    """``p_1 / p_2 = (rho_1 / rho_2) sigmoid(d / rho_2) / sigmoid(-d / rho_1)``, d = f_1 - f_2."""
    gap = (shifted[0] - shifted[1]).astype(np.float64)
    log_ratio = (
        np.log(rho[0] / rho[1]) - np.logaddexp(0, -gap / rho[1]) + np.logaddexp(0, gap / rho[0])
    )
    if tau != 1:
        log_ratio += (1 - tau) * (np.logaddexp(0, gap / rho[1]) - np.logaddexp(0, -gap / rho[0]))
    first = np.exp(-np.logaddexp(0, -log_ratio))
    second = np.exp(-np.logaddexp(0, log_ratio))
    return np.stack([first, second]).astype(shifted.dtype)


def _plain(
    shifted: FloatArray, rho: FloatArray, groups: list[MarginGroup], tau: float
) -> FloatArray:
    """Rates ``exp(f_j / rho_g)``, not divided by their sum: row scale only rescales the masses."""
    p, m = shifted.shape
    size = len(groups)
    dtype = shifted.dtype
    order = np.concatenate([group.members for group in groups])
    shifted = shifted[order]
    powers = np.empty((size, p, m), dtype)
    for g, group in enumerate(groups):
        np.multiply(shifted, dtype.type(1 / group.margin), out=powers[g])
    np.exp(powers, out=powers)
    totals = np.empty(0, dtype)
    if size == p or tau != 1:
        totals = powers.sum(axis=1)
    own = None
    if tau != 1:
        home = np.repeat(np.arange(size), [group.members.size for group in groups])
        own = powers[home, np.arange(p)] / totals[home]
    if size == p:
        distribution = _gth(powers) * totals
    else:
        mass = _gth(_lumped(powers, groups))
        distribution = np.einsum("gm,gpm->pm", mass, powers)
    distribution *= rho[order].astype(dtype)[:, None]
    if own is not None:
        distribution *= own ** dtype.type(1 - tau)
    distribution /= distribution.sum(axis=0)
    result = np.empty_like(distribution)
    result[order] = distribution
    return result


def _lumped(powers: FloatArray, groups: list[MarginGroup]) -> FloatArray:
    """Powers (S, p, m), members of a group side by side, summed over each: (S, G, m)."""
    result = np.empty((powers.shape[0], len(groups), powers.shape[2]), powers.dtype)
    start = 0
    for g, group in enumerate(groups):
        stop = start + group.members.size
        # Not reduceat, which is thirty times slower along this axis.
        if stop - start == 1:
            result[:, g] = powers[:, start]
        else:
            np.add.reduce(powers[:, start:stop], axis=1, out=result[:, g])
        start = stop
    return result


def _gth(rates: FloatArray) -> FloatArray:
    """Stationary masses (G, m) of chains with rates (G, G, m); ``rates`` is overwritten."""
    size, _, m = rates.shape
    for last in range(size - 1, 0, -1):
        leaving = rates[last, :last].sum(axis=0)
        rates[:last, last] /= leaving
        rates[:last, :last] += rates[:last, last, None] * rates[last, :last]
    mass = np.empty((size, m), rates.dtype)
    mass[0] = 1
    for g in range(1, size):
        mass[g] = np.einsum("hm,hm->m", mass[:g], rates[:g, g])
        # Keep the running masses bounded: a nearly absorbing chain grows them without limit.
        mass[: g + 1] /= mass[: g + 1].max(axis=0)
    return mass


def _logarithmic(
    shifted: FloatArray, rho: FloatArray, groups: list[MarginGroup], tau: float
) -> FloatArray:
    p, m = shifted.shape
    size = len(groups)
    log_softmax = np.empty((size, p, m))
    for g, group in enumerate(groups):
        log_softmax[g] = np.maximum(shifted / group.margin, -1e300)
        log_softmax[g] -= np.log(np.exp(log_softmax[g]).sum(axis=0))
    log_rates = np.empty((size, size, m))
    height = np.empty((size, m))
    for h, group in enumerate(groups):
        log_rates[:, h] = np.logaddexp.reduce(log_softmax[:, group.members], axis=1)
        height[h] = shifted[group.members].max(axis=0)
    log_margin = np.log([group.margin for group in groups])
    log_rates -= log_margin[:, None, None]
    mass = _log_gth(log_rates, height)
    terms = (mass - log_margin[:, None])[:, None] + log_softmax
    distribution = np.logaddexp.reduce(terms, axis=0) + np.log(rho)[:, None]
    if tau != 1:
        for g, group in enumerate(groups):
            distribution[group.members] += (1 - tau) * log_softmax[g, group.members]
    return _normalise_log(distribution)


def _log_gth(log_rates: FloatArray, height: FloatArray) -> FloatArray:
    """``_gth`` on logarithms of rates; ``height`` (G, m) is the best score in each state.

    The lowest state is eliminated first and masses are relative to the highest: at scores of 1e20 the
    rounding of logarithms would otherwise swamp the ratios of the states that matter.
    """
    size, _, m = log_rates.shape
    order = np.argsort(-height, axis=0, kind="stable")
    log_rates = np.take_along_axis(log_rates, order[:, None], axis=0)
    log_rates = np.take_along_axis(log_rates, order[None], axis=1)
    for last in range(size - 1, 0, -1):
        leaving = np.logaddexp.reduce(log_rates[last, :last], axis=0)
        log_rates[:last, last] -= leaving
        through = log_rates[:last, last, None] + log_rates[last, :last]
        np.logaddexp(log_rates[:last, :last], through, out=log_rates[:last, :last])
    mass = np.empty((size, m))
    mass[0] = 0
    for g in range(1, size):
        mass[g] = np.logaddexp.reduce(mass[:g] + log_rates[:g, g], axis=0)
    result = np.empty_like(mass)
    np.put_along_axis(result, order, mass, axis=0)
    return result


def _pairwise(scores: FloatArray, rho: FloatArray, tau: float) -> FloatArray:
    """Sum over pairs: rates ``Phi_tau'(e^v) e^v / rho_k`` with ``v = (f_j - f_k) / rho_k``."""
    f = scores.astype(np.float64)
    log_rates = np.empty((len(f), len(f), f.shape[1]))
    for k, margin in enumerate(rho):
        v = np.clip((f - f[k]) / margin, -1e300, 1e300)
        log_rates[k] = v - tau * np.logaddexp(v, 0) - np.log(margin)
    return _normalise_log(_log_gth(log_rates, f)).astype(scores.dtype)


def _normalise_log(log_weights: FloatArray) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max(axis=0))
    return weights / weights.sum(axis=0)

"""Decisions from scores: the paper's argmax, and stationary decoding.

At the minimiser of a smooth surrogate the gradient vanishes, so the reward distribution p solves
``sum_k p_k * grad loss_k(f) = 0``. For the logistic loss that makes p the stationary distribution
of the Markov chain that leaves k for j at rate ``softmax_j(f / rho_k) / rho_k``. Stationary
decoding solves for p and takes the largest entry. For unequal margins argmax of the scores is a
different, inconsistent rule (docs/science/theory.md).

Experts that share a margin are one state of the chain. Grassmann-Taksar-Heyman elimination subtracts
nothing, so every entry keeps its relative accuracy; rows whose rates would underflow are done with
logarithms of rates. A comp-sum surrogate with tau != 1 multiplies ``p_k`` by
``softmax_k(f / rho_k)^(1 - tau)``. To find the largest entry alone, with many margins, a chain between the
anchors is enough. Internal functions store arrays experts first, (p, m).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mild.core.arrays import FloatArray, IntArray, check_margins, check_scores
from mild.core.margins import Anchors, MarginGroup, anchors, group_sums, margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import UnsupportedError, check_option

DECISIONS = ("stationary", "argmax")

# Rows per block in batch decoding, so that the working set stays in cache.
BLOCK = 8192
# Rates that are held at a time.
RATES = 4_000_000
# From this many samples on, argmax compares whole rows.
LONG = 2048
# Anchors are faster from MANY margins on, if there are at most WORTH times as many anchors.
MANY = 28
WORTH = 0.5


def argmax_last(values: FloatArray, order: IntArray | None = None) -> IntArray:
    """Index of the largest entry per row, ties to the highest index (the paper's rule).

    With an ``order`` (p,) of the indices, ties go to the last one in that order.
    """
    if order is not None:
        return order[argmax_last(values[:, order])]
    return values.shape[1] - 1 - values[:, ::-1].argmax(axis=1)


def argmax_last_experts_first(values: FloatArray, order: IntArray | None = None) -> IntArray:
    """``argmax_last`` of values stored experts first, (p, m)."""
    if order is not None:
        return order[argmax_last_experts_first(values[order])]
    if values.shape[1] < LONG:
        return len(values) - 1 - np.argmax(values[::-1], axis=0)
    best = values[0].copy()
    index = np.zeros(values.shape[1], np.intp)
    for k in range(1, len(values)):
        np.copyto(index, k, where=values[k] >= best)
        np.maximum(best, values[k], out=best)
    return index


def decide(
    scores: ArrayLike,
    margins: ArrayLike | None = None,
    rule: str = "stationary",
    surrogate: object = "logistic",
) -> IntArray:
    """Expert of each row, ties to the highest index.

    Parameters
    ----------
    scores : (n_samples, n_experts) array
    margins : (n_experts,) margins the scores were trained with; None for all equal
    rule : "stationary" (consistent) or "argmax" (the paper's)
    surrogate : the surrogate the scores were trained with

    Returns
    -------
    (n_samples,) array of expert indices

    Examples
    --------
    The exact minimiser for rewards (0.55, 0.45): argmax picks the wrong expert.

    >>> decide([[-0.2036, 0.0]], [2 / 3, 1 / 3], rule="argmax")
    array([1])
    >>> decide([[-0.2036, 0.0]], [2 / 3, 1 / 3])
    array([0])
    """
    check_option("rule", rule, DECISIONS)
    f = check_scores(scores)
    rho = check_margins(margins, f.shape[1])
    kind = parse_surrogate(surrogate)
    if rule == "argmax" or (kind.decodable and (rho == rho[0]).all()):
        return argmax_last(f)
    _check_decodable(kind)
    groups = margin_groups(rho)
    result = np.empty(len(f), np.intp)
    for start in range(0, len(f), BLOCK):
        rows = slice(start, start + BLOCK)
        result[rows] = stationary_choice(np.ascontiguousarray(f[rows].T), rho, groups, kind)
    return result


def stationary_choice(
    scores: FloatArray,
    margins: FloatArray,
    groups: list[MarginGroup],
    surrogate: Surrogate,
    order: IntArray | None = None,
) -> IntArray:
    """Expert of each column of scores stored experts first, (p, m), without validation.

    Ties are those of ``argmax_last``.
    """
    p, m = scores.shape
    few = deciding_anchors(groups, surrogate, scores.dtype)
    size = rows_at_once(p, groups, surrogate)
    if few is not None:
        size = max(1, RATES // (few.inverse.size * p))
    result = np.empty(m, np.intp)
    for start in range(0, m, size):
        rows = slice(start, start + size)
        part = scores[:, rows]
        if few is None:
            masses = stationary_experts_first(part, margins, groups, surrogate)
        else:
            shifted = part - part.max(axis=0)
            masses = anchored_distribution(shifted, margins, groups, few, surrogate.tau)
        result[rows] = argmax_last_experts_first(masses, order)
    return result


def deciding_anchors(
    groups: list[MarginGroup], surrogate: Surrogate, dtype: DTypeLike
) -> Anchors | None:
    """Anchors to decide with; None where the whole chain is faster, or the only way."""
    if len(groups) < MANY or surrogate.form != "comp_sum" or surrogate.tau > 1:
        return None
    few = anchors(groups, dtype)
    return few if few is not None and few.inverse.size <= WORTH * len(groups) else None


def stationary_distribution(
    scores: ArrayLike, margins: ArrayLike | None = None, surrogate: object = "logistic"
) -> FloatArray:
    """The reward distribution for which each row of scores is the exact minimiser.

    Estimates ``E[reward_k] / E[sum_j reward_j]``; ``softmax(f / rho)`` when margins are equal.

    Parameters
    ----------
    scores : (n_samples, n_experts) array
    margins : (n_experts,) positive; None for all ones
    surrogate : any but the hinge and tau >= 2, which have no unique decoding and are refused

    Returns
    -------
    (n_samples, n_experts) array; rows sum to 1

    Examples
    --------
    >>> stationary_distribution([[-0.2036, 0.0]], [2 / 3, 1 / 3]).round(3)
    array([[0.55, 0.45]])
    """
    f = check_scores(scores)
    rho = check_margins(margins, f.shape[1])
    kind = parse_surrogate(surrogate)
    _check_decodable(kind)
    result = np.empty_like(f)
    groups = margin_groups(rho)
    block = min(BLOCK, rows_at_once(f.shape[1], groups, kind))
    for start in range(0, len(f), block):
        rows = slice(start, start + block)
        result[rows] = stationary_experts_first(f[rows].T, rho, groups, kind).T
    return result


def _check_decodable(surrogate: Surrogate) -> None:
    if not surrogate.decodable:
        raise UnsupportedError(
            "stationary decoding needs a surrogate whose minimiser determines a distribution: not the "
            "hinge, nor tau >= 2. Use rule='argmax'."
        )


def rows_at_once(p: int, groups: list[MarginGroup], surrogate: Surrogate) -> int:
    """Number of rows whose chains together hold at most RATES entries."""
    states = p if surrogate.form == "pairwise" else len(groups)
    return max(1, RATES // (states * p))


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
    if surrogate.form == "pairwise":
        return _pairwise(scores, margins, surrogate.tau)
    lowest = shifted.min(axis=0)
    limit = 40.0 if scores.dtype == np.float32 else 300.0
    wide = lowest < -limit * groups[0].margin
    if not wide.any():
        return _by_powers(shifted, margins, groups, surrogate.tau)
    result = np.empty_like(shifted)
    result[:, ~wide] = _by_powers(shifted[:, ~wide], margins, groups, surrogate.tau)
    # Double precision often suffices where single does not, in a ninth of the logarithms' time.
    beyond = lowest < -300.0 * groups[0].margin
    for rows, eliminate in ((wide & ~beyond, _by_powers), (beyond, _logarithmic)):
        if rows.any():
            doubles = shifted[:, rows].astype(np.float64)
            result[:, rows] = eliminate(doubles, margins, groups, surrogate.tau)
    return result


def anchored_distribution(
    shifted: FloatArray, margins: FloatArray, groups: list[MarginGroup], few: Anchors, tau: float
) -> FloatArray:
    """Stationary distribution (p, m) by a chain between a few of the margins, the anchors.

    Let ``E_gj`` be the powers ``exp((f_j - max f) / rho_g)``, ``T_g`` their sums over experts, and
    ``E_gj = sum_a C_ga E_aj`` as in ``Anchors``. The masses ``q_j = p_j / rho_j`` are then ``sum_a y_a
    E_aj``, where y is the left eigenvector, for the eigenvalue 1, of the small matrix

        B_ab = sum over g of (sum of E_aj over the experts j of group g) / T_g * C_gb.

    C has entries of both signs, so entries of p have an absolute accuracy of 1e-12 (1e-6 for scores
    in single precision), not a relative one: enough to find the largest. ``shifted`` (p, m) are scores
    with a largest entry of 0; tau is at most 1, because small masses matter beyond that.
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


def _by_powers(
    shifted: FloatArray, rho: FloatArray, groups: list[MarginGroup], tau: float
) -> FloatArray:
    """Rates ``exp(f_j / rho_g)``, not divided by their sum: row scale only rescales the masses."""
    dtype, p, size = shifted.dtype, len(shifted), len(groups)
    # Members of a group side by side: where all margins differ, the powers are the rates.
    order = np.concatenate([group.members for group in groups])
    shifted = shifted[order]
    powers = np.empty((size, *shifted.shape), dtype)
    for g, group in enumerate(groups):
        np.multiply(shifted, dtype.type(1 / group.margin), out=powers[g])
    np.exp(powers, out=powers)
    scale = rho[order].astype(dtype)[:, None]
    if size == p or tau != 1:
        totals = powers.sum(axis=1)
    if tau != 1:
        home = np.repeat(np.arange(size), [group.members.size for group in groups])
        scale = scale * (powers[home, np.arange(p)] / totals[home]) ** dtype.type(1 - tau)
    if size == p:
        distribution = _gth(powers) * totals
    else:
        ends = np.cumsum([group.members.size for group in groups])
        # Not reduceat, which is thirty times slower along this axis.
        rates = [part.sum(axis=1) for part in np.split(powers, ends[:-1], axis=1)]
        distribution = np.einsum("gm,gpm->pm", _gth(np.stack(rates, axis=1)), powers)
    distribution *= scale
    distribution /= distribution.sum(axis=0)
    result = np.empty_like(distribution)
    result[order] = distribution
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

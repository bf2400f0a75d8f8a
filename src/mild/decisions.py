"""Scores to an expert: the paper's argmax, and stationary decoding.

At the minimiser of a smooth surrogate the gradient vanishes, so the reward distribution p solves
``sum_k p_k * grad loss_k(f) = 0``. For the logistic loss that makes p the stationary distribution
of the Markov chain that leaves k for j at rate ``softmax_j(f / rho_k) / rho_k``. Stationary
decoding solves for p and takes the largest entry. For unequal margins argmax of the scores is a
different, inconsistent rule (docs/theory.md).

Three facts keep it cheap and exact:

- experts that share a margin lump: with G distinct margins the chain is G x G, and
  ``p_j = rho_j * sum_g (P_g / rho_g) * softmax_j(f / rho_g)`` gives the single experts back;
- Grassmann-Taksar-Heyman elimination subtracts nothing, so every entry keeps its relative accuracy;
  rows whose rates would underflow are done with logarithms of rates;
- a comp-sum surrogate with tau != 1 only scales the rates out of k, by
  ``softmax_k(f / rho_k)^(tau - 1)``, so ``p_k`` is the logistic one times
  ``softmax_k(f / rho_k)^(1 - tau)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.arrays import FloatArray, IntArray, check_labels, check_margins, check_scores
from mild.exceptions import InvalidInputError, UnsupportedError, check_option
from mild.margins import MarginGroup, margin_groups
from mild.surrogates import Surrogate, parse_surrogate

__all__ = [
    "DECISIONS",
    "argmax_last",
    "argmax_last_experts_first",
    "decide",
    "fit_temperature",
    "relative_costs",
    "stationary_distribution",
    "stationary_experts_first",
]

DECISIONS = ("stationary", "argmax")

# Rows per block in batch decoding: the working set stays in cache.
BLOCK = 8192


def argmax_last(values: FloatArray) -> IntArray:
    """Index of the largest entry per row, ties to the highest index (the paper's rule).

    Examples
    --------
    >>> argmax_last(np.array([[1.0, 3.0, 3.0]]))
    array([2])
    """
    return values.shape[1] - 1 - np.argmax(values[:, ::-1], axis=1)


def argmax_last_experts_first(values: FloatArray) -> IntArray:
    """``argmax_last`` of values given experts first, (p, m): whole rows are compared at once."""
    if len(values) > 64:
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

    Examples
    --------
    The exact minimiser for rewards (0.55, 0.45) and margins (2/3, 1/3): argmax picks the wrong
    expert.

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
    return argmax_last(stationary_distribution(f, rho, kind))


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
    if not kind.decodable:
        raise UnsupportedError(
            "stationary decoding needs a surrogate whose minimiser determines a distribution: not the "
            "hinge, nor tau >= 2. Use rule='argmax'."
        )
    result = np.empty_like(f)
    groups = margin_groups(rho)
    states = f.shape[1] if kind.form == "pairwise" else len(groups)
    block = max(1, min(BLOCK, 4_000_000 // (states * f.shape[1])))
    for start in range(0, len(f), block):
        rows = slice(start, start + block)
        result[rows] = stationary_experts_first(f[rows].T, rho, groups, kind).T
    return result


def stationary_experts_first(
    scores: FloatArray, margins: FloatArray, groups: list[MarginGroup], surrogate: Surrogate
) -> FloatArray:
    """Stationary distribution of scores given experts first, (p, m), without validation."""
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
    limit = 40.0 if scores.dtype == np.float32 else 300.0
    wide = shifted.min(axis=0) < -limit * groups[0].margin
    if not wide.any():
        return _plain(shifted, margins, groups, surrogate.tau)
    result = np.empty_like(shifted)
    result[:, ~wide] = _plain(shifted[:, ~wide], margins, groups, surrogate.tau)
    result[:, wide] = _logarithmic(
        shifted[:, wide].astype(np.float64), margins, groups, surrogate.tau
    )
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
        edges = np.cumsum([0] + [group.members.size for group in groups[:-1]])
        mass = _gth(np.add.reduceat(powers, edges, axis=1))
        distribution = np.einsum("gm,gpm->pm", mass, powers)
    distribution *= rho[order].astype(dtype)[:, None]
    if own is not None:
        distribution *= own ** dtype.type(1 - tau)
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
        for h in range(last):
            rates[:last, h] += rates[:last, last] * rates[last, h]
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

    The lowest state is eliminated first and masses are relative to the highest: at scores of 1e20 a
    logarithm's rounding would otherwise swallow the ratios of the states that matter.
    """
    size, _, m = log_rates.shape
    order = np.argsort(-height, axis=0, kind="stable")
    log_rates = np.take_along_axis(log_rates, order[:, None], axis=0)
    log_rates = np.take_along_axis(log_rates, order[None], axis=1)
    for last in range(size - 1, 0, -1):
        leaving = np.logaddexp.reduce(log_rates[last, :last], axis=0)
        log_rates[:last, last] -= leaving
        for h in range(last):
            through = log_rates[:last, last] + log_rates[last, h]
            np.logaddexp(log_rates[:last, h], through, out=log_rates[:last, h])
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


def relative_costs(distribution: ArrayLike) -> FloatArray:
    """Expected cost of each expert as a share of all experts' together.

    ``E c_k / E sum_j c_j = 1 - (p - 1) p_k``: for scores trained with ``others`` rewards only.
    Clipped at 0: nothing in the model keeps it positive.

    Examples
    --------
    >>> relative_costs([[0.5, 0.3, 0.2]])
    array([[0. , 0.4, 0.6]])
    """
    array = check_scores(distribution)
    return np.clip(1 - (array.shape[1] - 1) * array, 0, None)


def fit_temperature(scores: ArrayLike, labels: ArrayLike) -> float:
    """Temperature T for which ``softmax(scores / T)`` has the least log loss on held-out labels.

    It calibrates probabilities; it cannot change which score is largest.

    Examples
    --------
    >>> fit_temperature([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 0, 1]).__round__(3)
    1.82
    """
    f = check_scores(scores).astype(np.float64)
    y = check_labels(labels, *f.shape)
    if len(f) == 0:
        raise InvalidInputError("scores must have at least one row to fit a temperature; got 0.")
    rows = np.arange(len(f))
    f = f - f.max(axis=1, keepdims=True)

    def slope(log_t: float) -> float:
        z = f * np.exp(-log_t)
        probability = np.exp(z)
        probability /= probability.sum(axis=1, keepdims=True)
        return float((z[rows, y] - (probability * z).sum(axis=1)).mean())

    # The loss is convex in 1/T: its slope changes sign at most once.
    low, high = -10.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        if slope(middle) > 0:
            high = middle
        else:
            low = middle
    return float(np.exp((low + high) / 2))

"""Decisions from scores: the paper's argmax, and stationary decoding.

At the minimiser of a smooth surrogate the gradient vanishes, so the reward distribution p solves
``sum_k p_k * grad loss_k(f) = 0``. For the logistic loss that makes p the stationary distribution
of the Markov chain that leaves k for j at rate ``softmax_j(f / rho_k) / rho_k``. Stationary
decoding solves for p and takes the largest entry. For unequal margins argmax of the scores is a
different, inconsistent rule (docs/science/theory.md).

Experts that share a margin are one state of the chain. Grassmann-Taksar-Heyman elimination subtracts
nothing, so every entry keeps its relative accuracy; rows whose rates would underflow are computed with
logarithms of rates. A comp-sum surrogate with tau != 1 multiplies ``p_k`` by
``softmax_k(f / rho_k)^(1 - tau)``. Where only the largest entry is wanted and there are many margins, a
chain between the anchors is enough. Internal functions take arrays stored experts first, (p, m).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mild.core.arrays import FloatArray, IntArray, check_margins, check_scores
from mild.core.margins import Anchors, MarginGroup, find_anchors, group_sums, margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import UnsupportedError, check_option

DECISIONS = ("stationary", "argmax")

# Rows per block in batch decoding, so that the working set stays in cache.
BLOCK = 8192
# How many rates of chains are held at a time.
RATES = 4_000_000
# From this many samples on, argmax compares whole rows.
LONG = 2048
# Anchors are faster from MANY margins on, if there are at most WORTH times as many anchors.
MANY = 28
WORTH = 0.5
# Gaps, in margins, at which rates are still far from underflow: in single, and in double precision.
SINGLE_REACH = 40.0
DOUBLE_REACH = 300.0


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
    # NumPy's argmax along the first axis takes strides; comparing whole rows is faster.
    largest = values[0].copy()
    index = np.zeros(values.shape[1], np.intp)
    for k in range(1, len(values)):
        np.copyto(index, k, where=values[k] >= largest)
        np.maximum(largest, values[k], out=largest)
    return index


def decide(
    scores: ArrayLike,
    margins: ArrayLike | None = None,
    rule: str = "stationary",
    surrogate: object = "logistic",
) -> IntArray:
    """Expert of each row; ties go to the highest index.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins that the scores were trained with. None stands for all equal.
    rule : {"stationary", "argmax"}, default="stationary"
        "stationary" is consistent for any margins; "argmax" is the paper's rule.
    surrogate : str or float, default="logistic"
        The surrogate that the scores were trained with.

    Returns
    -------
    chosen : array of int of shape (n_samples,)
        Index of the expert of each row.

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
    parsed_surrogate = parse_surrogate(surrogate)
    if rule == "argmax":
        return argmax_last(f)
    _check_decodable(parsed_surrogate)
    if (rho == rho[0]).all():
        # The stationary distribution is then softmax(f / rho), in the order of the scores.
        return argmax_last(f)
    groups = margin_groups(rho)
    chosen = np.empty(len(f), np.intp)
    for start in range(0, len(f), BLOCK):
        rows = slice(start, start + BLOCK)
        block = np.ascontiguousarray(f[rows].T)
        chosen[rows] = stationary_choice(block, rho, groups, parsed_surrogate)
    return chosen


def stationary_choice(
    scores: FloatArray,
    margins: FloatArray,
    groups: list[MarginGroup],
    surrogate: Surrogate,
    order: IntArray | None = None,
) -> IntArray:
    """Expert (m,) of each sample by the stationary rule, of scores (p, m), without validation.

    Ties are decided as by ``argmax_last``.
    """
    p, m = scores.shape
    anchors = deciding_anchors(groups, surrogate, scores.dtype)
    block = rows_at_once(p, groups, surrogate)
    if anchors is not None:
        block = max(1, RATES // (anchors.inverse.size * p))
    chosen = np.empty(m, np.intp)
    for start in range(0, m, block):
        samples = slice(start, start + block)
        f = scores[:, samples]
        if anchors is None:
            distribution = stationary_experts_first(f, margins, groups, surrogate)
        else:
            shifted = f - f.max(axis=0)
            distribution = anchored_distribution(shifted, margins, groups, anchors, surrogate.tau)
        chosen[samples] = argmax_last_experts_first(distribution, order)
    return chosen


def deciding_anchors(
    groups: list[MarginGroup], surrogate: Surrogate, dtype: DTypeLike
) -> Anchors | None:
    """Anchors to decide with; None where the whole chain is faster, or the only way."""
    if len(groups) < MANY or surrogate.form != "comp_sum" or surrogate.tau > 1:
        return None
    anchors = find_anchors(groups, dtype)
    if anchors is None or anchors.inverse.size > WORTH * len(groups):
        return None
    return anchors


def stationary_distribution(
    scores: ArrayLike, margins: ArrayLike | None = None, surrogate: object = "logistic"
) -> FloatArray:
    """The reward distribution for which each row of scores is the exact minimiser.

    It estimates ``E[reward_k] / E[sum_j reward_j]``, and is ``softmax(f / rho)`` if all margins are equal.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins that the scores were trained with. None stands for all ones.
    surrogate : str or float, default="logistic"
        The surrogate that the scores were trained with. The hinge and tau >= 2 have no unique decoding
        and are refused.

    Returns
    -------
    distribution : array of shape (n_samples, n_experts)
        Estimated reward distribution; each row sums to 1.

    Examples
    --------
    >>> stationary_distribution([[-0.2036, 0.0]], [2 / 3, 1 / 3]).round(3)
    array([[0.55, 0.45]])
    """
    f = check_scores(scores)
    rho = check_margins(margins, f.shape[1])
    parsed_surrogate = parse_surrogate(surrogate)
    _check_decodable(parsed_surrogate)
    groups = margin_groups(rho)
    block = min(BLOCK, rows_at_once(f.shape[1], groups, parsed_surrogate))
    distribution = np.empty_like(f)
    for start in range(0, len(f), block):
        rows = slice(start, start + block)
        distribution[rows] = stationary_experts_first(f[rows].T, rho, groups, parsed_surrogate).T
    return distribution


def _check_decodable(surrogate: Surrogate) -> None:
    """Refuse a surrogate without stationary decoding."""
    if not surrogate.decodable:
        raise UnsupportedError(
            "stationary decoding needs a surrogate whose minimiser determines a distribution: not the "
            "hinge, nor tau >= 2. Use rule='argmax'."
        )


def rows_at_once(p: int, groups: list[MarginGroup], surrogate: Surrogate) -> int:
    """Number of rows whose chains together hold at most RATES entries."""
    n_states = len(groups)
    if surrogate.form == "pairwise":
        n_states = p
    return max(1, RATES // (n_states * p))


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
    return _comp_sum(shifted, margins, groups, surrogate.tau)


def _comp_sum(
    shifted: FloatArray, margins: FloatArray, groups: list[MarginGroup], tau: float
) -> FloatArray:
    """Stationary distribution (p, m) for a comp-sum surrogate, of scores with a largest entry of 0.

    Samples whose gaps are too wide for rates in their own precision are computed in double precision,
    which takes a ninth of the time of logarithms, and those too wide even for that by logarithms.
    """
    reach = DOUBLE_REACH
    if shifted.dtype == np.float32:
        reach = SINGLE_REACH
    smallest_margin = groups[0].margin
    lowest = shifted.min(axis=0)
    is_wide = lowest < -reach * smallest_margin
    if not is_wide.any():
        return _by_powers(shifted, margins, groups, tau)
    distribution = np.empty_like(shifted)
    distribution[:, ~is_wide] = _by_powers(shifted[:, ~is_wide], margins, groups, tau)
    needs_logarithms = lowest < -DOUBLE_REACH * smallest_margin
    needs_doubles = is_wide & ~needs_logarithms
    if needs_doubles.any():
        doubles = shifted[:, needs_doubles].astype(np.float64)
        distribution[:, needs_doubles] = _by_powers(doubles, margins, groups, tau)
    if needs_logarithms.any():
        doubles = shifted[:, needs_logarithms].astype(np.float64)
        distribution[:, needs_logarithms] = _logarithmic(doubles, margins, groups, tau)
    return distribution


def anchored_distribution(
    shifted: FloatArray,
    margins: FloatArray,
    groups: list[MarginGroup],
    anchors: Anchors,
    tau: float,
) -> FloatArray:
    """Stationary distribution (p, m) by a chain between a few of the margins, the anchors.

    With the weights C (G, A) of the anchors (see ``Anchors``) and scores f (p, m), the largest being 0::

        E_aj = exp(f_j / rho_a)                     powers (A, p, m)
        S_a  = sum_j E_aj                           sums (A, m)
        T_g  = sum_a C_ga S_a                       totals (G, m) of ``exp(f_j / rho_g)``
        B_ab = sum over g of (sum of E_aj over the experts j of group g) / T_g * C_gb

    The masses ``q_j = p_j / rho_j`` are ``sum_a y_a E_aj``, where y is the left eigenvector of B for the
    eigenvalue 1. It is determined up to scale: adding the rank-one matrix ``u S^T`` with
    ``u = S / (S . S)`` to ``I - B`` makes the system regular.

    C has entries of both signs, so entries of p have an absolute accuracy of 1e-12 (1e-6 for scores
    in single precision), not a relative one: enough to find the largest. tau is at most 1, because small
    masses matter beyond that.
    """
    p, m = shifted.shape
    n_anchors = anchors.inverse.size
    f = shifted.astype(np.float64, copy=False)
    E = np.empty((n_anchors, p, m))
    np.multiply(anchors.inverse[:, None, None], f, out=E)
    np.exp(E, out=E)
    S = E.sum(axis=1)
    T = anchors.weights @ S
    shares = group_sums(E, groups)
    shares /= -T
    minus_B = anchors.weights.T @ shares  # transposed, (A, A, m)
    system = np.ascontiguousarray(minus_B.transpose(2, 1, 0))
    diagonal = np.arange(n_anchors)
    system[:, diagonal, diagonal] += 1
    u = (S / np.square(S).sum(axis=0)).T
    system += u[:, :, None] * S.T[:, None, :]
    y = np.linalg.solve(system, u[:, :, None])[:, :, 0].T
    distribution = np.einsum("am,akm->km", y, E)
    np.maximum(distribution, 0, out=distribution)
    distribution *= margins[:, None]
    if tau != 1:
        softmax = np.exp(f / margins[:, None]) / T[_group_of_expert(groups, p)]
        distribution *= softmax ** (1 - tau)
    distribution /= distribution.sum(axis=0)
    return distribution


def _group_of_expert(groups: list[MarginGroup], p: int) -> IntArray:
    """Number (p,) of the group of each expert."""
    group_of_expert = np.empty(p, np.intp)
    for number, group in enumerate(groups):
        group_of_expert[group.members] = number
    return group_of_expert


def _by_powers(
    shifted: FloatArray, rho: FloatArray, groups: list[MarginGroup], tau: float
) -> FloatArray:
    """Stationary distribution (p, m) by elimination of plain rates.

    With G groups of experts that share a margin, and masses q of the groups::

        E_gj = exp(f_j / rho_g)                          powers (G, p, m)
        T_g  = sum_j E_gj                                totals (G, m)
        R_gh = sum of E_gj over the experts j of h       rates (G, G, m) from group g to group h
        p_j  = rho_j * sum_g q_g E_gj                    up to scale

    Rates are neither divided by ``rho_g`` nor by ``T_g``: a factor of a row of rates only divides the mass
    of its group, and q is that of these rates. If all margins differ, the experts are the groups and
    ``sum_g q_g E_gj = q_j T_j``. For tau != 1, ``p_j`` is also multiplied by
    ``softmax_j(f / rho_j)^(1 - tau)``, which is ``(E_gj / T_g)^(1 - tau)`` for the group g of j.
    """
    dtype = shifted.dtype
    p = len(shifted)
    n_groups = len(groups)
    # Members of a group side by side, so that the rates to a group are a slice of the powers.
    order = np.concatenate([group.members for group in groups])
    group_sizes = [group.members.size for group in groups]
    f = shifted[order]
    E = np.empty((n_groups, *f.shape), dtype)
    for g, group in enumerate(groups):
        np.multiply(f, dtype.type(1 / group.margin), out=E[g])
    np.exp(E, out=E)
    R = E
    if n_groups < p:
        R = _sums_by_group(E, group_sizes)
    T = R.sum(axis=1)
    scale = rho[order].astype(dtype)[:, None]
    if tau != 1:
        group_of_expert = np.repeat(np.arange(n_groups), group_sizes)
        softmax = E[group_of_expert, np.arange(p)] / T[group_of_expert]
        scale = scale * softmax ** dtype.type(1 - tau)
    if n_groups < p:
        ordered = np.einsum("gm,gpm->pm", _gth(R), E)
    else:
        ordered = _gth(R) * T
    ordered *= scale
    ordered /= ordered.sum(axis=0)
    distribution = np.empty_like(ordered)
    distribution[order] = ordered
    return distribution


def _sums_by_group(powers: FloatArray, group_sizes: list[int]) -> FloatArray:
    """Sums (G, G, m) of powers (G, p, m) over the members of each group, which stand side by side."""
    n_groups = len(group_sizes)
    sums = np.empty((n_groups, n_groups, powers.shape[2]), powers.dtype)
    end = 0
    # A sum per group, not reduceat, which is thirty times slower along this axis.
    for number, group_size in enumerate(group_sizes):
        start = end
        end += group_size
        sums[:, number] = powers[:, start:end].sum(axis=1)
    return sums


def _gth(rates: FloatArray) -> FloatArray:
    """Stationary masses (G, m) of chains with rates (G, G, m), up to scale; ``rates`` is overwritten.

    Grassmann-Taksar-Heyman elimination. The last state l is removed from the chain, and what went to l is
    passed on to the states that l leads to::

        rates[g, h] += rates[g, l] / (sum of rates[l, :l]) * rates[l, h]    for g, h < l

    This is repeated until one state is left. The masses then follow in the order of the states: with the
    rates as they were when g was removed,
    ``mass[g] = sum over h < g of mass[h] * rates[h, g] / leaving_g``.
    Nothing is subtracted, so that every mass keeps its relative accuracy.
    """
    n_states, _, m = rates.shape
    for last in range(n_states - 1, 0, -1):
        leaving = rates[last, :last].sum(axis=0)
        rates[:last, last] /= leaving
        rates[:last, :last] += rates[:last, last, None] * rates[last, :last]
    mass = np.empty((n_states, m), rates.dtype)
    mass[0] = 1
    for g in range(1, n_states):
        mass[g] = np.einsum("hm,hm->m", mass[:g], rates[:g, g])
        # Keep the running masses bounded: a nearly absorbing chain grows them without limit.
        mass[: g + 1] /= mass[: g + 1].max(axis=0)
    return mass


def _logarithmic(
    shifted: FloatArray, rho: FloatArray, groups: list[MarginGroup], tau: float
) -> FloatArray:
    """``_by_powers`` with logarithms of rates, for gaps at which plain rates underflow.

    With masses q of the groups, as they are for rates divided by totals and margins::

        log softmax_gj = f_j / rho_g - log T_g                                   (G, p, m)
        log R_gh       = log (sum of softmax_gj over j of h) - log rho_g         (G, G, m)
        log p_j        = log rho_j + log sum_g (q_g / rho_g * softmax_gj)        up to scale
    """
    p, m = shifted.shape
    n_groups = len(groups)
    log_softmax = np.empty((n_groups, p, m))
    for g, group in enumerate(groups):
        log_softmax[g] = np.maximum(shifted / group.margin, -1e300)
        log_softmax[g] -= np.log(np.exp(log_softmax[g]).sum(axis=0))
    log_rates = np.empty((n_groups, n_groups, m))
    best_scores = np.empty((n_groups, m))
    for h, group in enumerate(groups):
        log_rates[:, h] = np.logaddexp.reduce(log_softmax[:, group.members], axis=1)
        best_scores[h] = shifted[group.members].max(axis=0)
    log_margin = np.log([group.margin for group in groups])
    log_rates -= log_margin[:, None, None]
    log_mass = _log_gth(log_rates, best_scores)
    log_terms = (log_mass - log_margin[:, None])[:, None] + log_softmax
    log_distribution = np.logaddexp.reduce(log_terms, axis=0) + np.log(rho)[:, None]
    if tau != 1:
        for g, group in enumerate(groups):
            log_distribution[group.members] += (1 - tau) * log_softmax[g, group.members]
    return _normalise_log(log_distribution)


def _log_gth(log_rates: FloatArray, best_scores: FloatArray) -> FloatArray:
    """Logarithms of ``_gth``, from those of rates; ``best_scores`` (G, m) is the best score of each state.

    The state with the lowest score is eliminated first, and masses are relative to that with the highest:
    at scores of 1e20 the rounding of logarithms would otherwise swamp the ratios of the states that matter.
    """
    n_states, _, m = log_rates.shape
    order = np.argsort(-best_scores, axis=0, kind="stable")
    log_rates = np.take_along_axis(log_rates, order[:, None], axis=0)
    log_rates = np.take_along_axis(log_rates, order[None], axis=1)
    for last in range(n_states - 1, 0, -1):
        leaving = np.logaddexp.reduce(log_rates[last, :last], axis=0)
        log_rates[:last, last] -= leaving
        through_last = log_rates[:last, last, None] + log_rates[last, :last]
        np.logaddexp(log_rates[:last, :last], through_last, out=log_rates[:last, :last])
    ordered_mass = np.empty((n_states, m))
    ordered_mass[0] = 0
    for g in range(1, n_states):
        ordered_mass[g] = np.logaddexp.reduce(ordered_mass[:g] + log_rates[:g, g], axis=0)
    log_mass = np.empty_like(ordered_mass)
    np.put_along_axis(log_mass, order, ordered_mass, axis=0)
    return log_mass


def _pairwise(scores: FloatArray, rho: FloatArray, tau: float) -> FloatArray:
    """Stationary distribution (p, m) for the sum over pairs, whose states are the experts.

    The rate from k to j is ``Phi_tau'(e^v) e^v / rho_k`` with ``v = (f_j - f_k) / rho_k``; its logarithm is
    ``v - tau * log(1 + e^v) - log rho_k``.
    """
    f = scores.astype(np.float64)
    log_rates = np.empty((len(f), len(f), f.shape[1]))
    for k, margin in enumerate(rho):
        v = np.clip((f - f[k]) / margin, -1e300, 1e300)
        log_rates[k] = v - tau * np.logaddexp(v, 0) - np.log(margin)
    return _normalise_log(_log_gth(log_rates, f)).astype(scores.dtype)


def _normalise_log(log_weights: FloatArray) -> FloatArray:
    """Weights (p, m) of each sample from their logarithms, scaled to sum to 1."""
    weights = np.exp(log_weights - log_weights.max(axis=0))
    return weights / weights.sum(axis=0)

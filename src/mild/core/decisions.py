"""Decisions from scores: the paper's argmax, and stationary decoding.

A router is trained with ``core.losses.mild_loss``, in which each expert k has a loss ``ell_k`` and a
reward. The expert to choose is the one with the largest expected reward. So the question is which expected
rewards p, as shares that sum to 1, a row of scores f stands for.

At the minimiser of a smooth surrogate the gradient vanishes, so p solves ``sum_k p_k * grad ell_k(f) = 0``.
For the logistic loss these are the equations of the stationary distribution of a Markov chain between the
experts, which goes from k to j at the rate ``softmax_j(f / rho_k) / rho_k``. *Stationary decoding* solves
for p and takes the largest entry. For unequal margins rho the argmax of the scores is a different,
inconsistent rule (docs/science/theory.md). A comp-sum surrogate with tau != 1 multiplies ``p_k`` by
``softmax_k(f / rho_k)^(1 - tau)``.

Experts that share a margin are one state of the chain. Grassmann-Taksar-Heyman (GTH) elimination solves it
without subtractions, so every entry keeps its relative accuracy. Rows whose rates would underflow are
computed with logarithms of rates. Where only the largest entry is wanted and there are many margins, a
smaller system is enough (``anchored_distribution``).

Internal functions take arrays stored experts first, (p, m) for p experts and m samples.
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
# Most rates of chains that are held at a time.
MAX_RATES = 4_000_000
# From this many samples on, argmax compares whole rows.
MANY_SAMPLES = 2048
# Anchors are faster from this many distinct margins on, if there are at most this share as many anchors.
MANY_MARGINS = 28
MAX_ANCHOR_SHARE = 0.5
# Largest gaps between scores, in margins, at which rates do not underflow: in single and double precision.
SINGLE_REACH = 40.0
DOUBLE_REACH = 300.0


def argmax_last(values: FloatArray, order: IntArray | None = None) -> IntArray:
    """Return the index (n,) of the largest of the values (n, p) of each row.

    Ties go to the highest index, which is the paper's rule, or with an ``order`` (p,) of the indices to the
    last one in that order.
    """
    if order is not None:
        return order[argmax_last(values[:, order])]
    return values.shape[1] - 1 - values[:, ::-1].argmax(axis=1)


def argmax_last_experts_first(values: FloatArray, order: IntArray | None = None) -> IntArray:
    """Return what ``argmax_last`` does, of values stored experts first, (p, m)."""
    if order is not None:
        return order[argmax_last_experts_first(values[order])]
    if values.shape[1] < MANY_SAMPLES:
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
    decision: str = "stationary",
    surrogate: object = "logistic",
) -> IntArray:
    """Return the expert to choose in each row of scores; ties go to the highest index.

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Scores of the router; higher is better.
    margins : array of shape (n_experts,) or float, default=None
        Positive margins that the scores were trained with. None stands for all equal.
    decision : {"stationary", "argmax"}, default="stationary"
        "argmax" takes the largest score, as in the paper. "stationary" takes the largest expected reward,
        by ``stationary_distribution``; it is consistent for any margins. With equal margins they agree.
    surrogate : str or float, default="logistic"
        The surrogate that the scores were trained with.

    Returns
    -------
    chosen : array of int of shape (n_samples,)
        Index of the expert of each row.

    Examples
    --------
    The exact minimiser for rewards (0.55, 0.45): argmax picks the wrong expert.

    >>> decide([[-0.2036, 0.0]], [2 / 3, 1 / 3], decision="argmax")
    array([1])
    >>> decide([[-0.2036, 0.0]], [2 / 3, 1 / 3])
    array([0])
    """
    check_option("decision", decision, DECISIONS)
    f = check_scores(scores)
    rho = check_margins(margins, f.shape[1])
    parsed_surrogate = parse_surrogate(surrogate)
    if decision == "argmax":
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
    """Return the expert (m,) to choose for each sample, by the stationary rule, of scores (p, m).

    Ties are decided as by ``argmax_last``. Nothing is validated.
    """
    p, m = scores.shape
    anchors = deciding_anchors(groups, surrogate, scores.dtype)
    block_size = rows_at_once(p, groups, surrogate)
    if anchors is not None:
        block_size = max(1, MAX_RATES // (anchors.inverse.size * p))
    chosen = np.empty(m, np.intp)
    for start in range(0, m, block_size):
        samples = slice(start, start + block_size)
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
    """Return the anchors for ``anchored_distribution``, or None where the whole chain has to be solved."""
    if len(groups) < MANY_MARGINS or surrogate.form != "comp_sum" or surrogate.tau > 1:
        return None
    anchors = find_anchors(groups, dtype)
    if anchors is None or anchors.inverse.size > MAX_ANCHOR_SHARE * len(groups):
        return None
    return anchors


def stationary_distribution(
    scores: ArrayLike, margins: ArrayLike | None = None, surrogate: object = "logistic"
) -> FloatArray:
    """Return the distribution of rewards over experts for which each row of scores minimises the loss.

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
    block_size = min(BLOCK, rows_at_once(f.shape[1], groups, parsed_surrogate))
    distribution = np.empty_like(f)
    for start in range(0, len(f), block_size):
        rows = slice(start, start + block_size)
        distribution[rows] = stationary_experts_first(f[rows].T, rho, groups, parsed_surrogate).T
    return distribution


def _check_decodable(surrogate: Surrogate) -> None:
    """Raise an error if the scores of the surrogate do not determine a distribution."""
    if not surrogate.decodable:
        raise UnsupportedError(
            "stationary decoding needs a surrogate whose minimiser determines a distribution: not the "
            "hinge, nor tau >= 2. Use decision='argmax'."
        )


def rows_at_once(p: int, groups: list[MarginGroup], surrogate: Surrogate) -> int:
    """Return the number of rows whose chains together have at most ``MAX_RATES`` rates."""
    n_states = len(groups)
    if surrogate.form == "pairwise":
        n_states = p
    return max(1, MAX_RATES // (n_states * p))


def stationary_experts_first(
    scores: FloatArray, margins: FloatArray, groups: list[MarginGroup], surrogate: Surrogate
) -> FloatArray:
    """Return the stationary distribution (p, m) of scores (p, m); nothing is validated."""
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
    """Return the stationary distribution (p, m) for a comp-sum surrogate.

    The largest of the ``shifted`` scores of each sample is 0. Rates are exponentials of scores over margins
    and underflow if the lowest score is too far below. Such samples are computed in double precision, which
    takes a ninth of the time of logarithms, or by logarithms if that is not enough.
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
    """Return the stationary distribution (p, m) by a linear system of only A equations.

    The rates of G groups of experts that share a margin are linear combinations, with weights C (G, A), of
    those of the A margins that were chosen as anchors (see ``Anchors``). So the chain, a matrix of rank A,
    can be solved in A unknowns y. For scores f (p, m), the largest of each sample being 0::

        E_aj = exp(f_j / rho_a)                                             (A, p, m)
        S_a  = sum_j E_aj                                                   (A, m)
        T_g  = sum_a C_ga S_a         (= sum_j exp(f_j / rho_g))            (G, m)
        B_ab = sum_g (sum of E_aj over the experts j of g) / T_g * C_gb     (A, A, m)
        y    = y B                                                          (A, m)
        p_j  = rho_j * sum_a y_a E_aj                                       (p, m) up to a factor

    C has entries of both signs, so entries of p have an absolute accuracy of 1e-12 (1e-6 for scores
    in single precision), not a relative one: enough to find the largest. tau is at most 1, because small
    entries matter beyond that.
    """
    p, m = shifted.shape
    n_anchors = anchors.inverse.size
    C = anchors.weights
    f = shifted.astype(np.float64, copy=False)
    E = np.empty((n_anchors, p, m))
    np.multiply(anchors.inverse[:, None, None], f, out=E)
    np.exp(E, out=E)
    S = E.sum(axis=1)
    T = C @ S
    minus_shares = group_sums(E, groups)
    minus_shares /= -T
    minus_B = C.T @ minus_shares
    y = _fixed_point(minus_B, S)
    distribution = np.einsum("am,akm->km", y, E)
    # Where an entry is almost 0, rounding may make it negative.
    np.maximum(distribution, 0, out=distribution)
    distribution *= margins[:, None]
    if tau != 1:
        softmax = np.exp(f / margins[:, None]) / T[_group_of_expert(groups, p)]
        distribution *= softmax ** (1 - tau)
    distribution /= distribution.sum(axis=0)
    return distribution


def _fixed_point(minus_B: FloatArray, S: FloatArray) -> FloatArray:
    """Return the solution y (A, m) of ``y B = y`` and ``S . y = 1``, given -B (A, A, m) and S (A, m).

    ``I - B`` is singular. Adding the rank-one matrix ``u S^T`` with ``u = S / (S . S)`` makes the system
    regular, and u as its right-hand side selects the solution with ``S . y = 1``.
    """
    system = np.ascontiguousarray(minus_B.transpose(2, 1, 0))
    diagonal = np.arange(len(S))
    system[:, diagonal, diagonal] += 1
    u = (S / np.square(S).sum(axis=0)).T
    system += u[:, :, None] * S.T[:, None, :]
    return np.linalg.solve(system, u[:, :, None])[:, :, 0].T


def _group_of_expert(groups: list[MarginGroup], p: int) -> IntArray:
    """Return the number (p,) of the group of each expert."""
    group_of_expert = np.empty(p, np.intp)
    for number, group in enumerate(groups):
        group_of_expert[group.members] = number
    return group_of_expert


def _by_powers(
    shifted: FloatArray, rho: FloatArray, groups: list[MarginGroup], tau: float
) -> FloatArray:
    """Return the stationary distribution (p, m) by elimination of plain rates.

    With G groups of experts that share a margin, which are the states of the chain::

        E_gj = exp(f_j / rho_g)                              (G, p, m)
        T_g  = sum_j E_gj                                    (G, m)
        R_gh = sum of E_gj over the experts j of group h     (G, G, m) rates from g to h
        q    = stationary masses of the rates R              (G, m)
        p_j  = rho_j * sum_g q_g E_gj                        (p, m) up to a factor

    The chain of the module's docstring has the rates ``R_gh / (rho_g T_g)``. That would only multiply q_g
    by ``rho_g T_g``, by which p would then divide, so it is left out. If all margins differ, every
    expert is a group and ``sum_g q_g E_gj = q_j T_j``. For tau != 1, ``p_j`` is multiplied
    by ``softmax_j(f / rho_j)^(1 - tau)``, which is ``(E_gj / T_g)^(1 - tau)`` for the group g of j.
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
    factor = rho[order].astype(dtype)[:, None]
    if tau != 1:
        group_of_expert = np.repeat(np.arange(n_groups), group_sizes)
        softmax = E[group_of_expert, np.arange(p)] / T[group_of_expert]
        factor = factor * softmax ** dtype.type(1 - tau)
    # Where every expert is a group, R is E, which is lost when ``_gth`` overwrites R.
    q = _gth(R)
    if n_groups < p:
        ordered_p = np.einsum("gm,gpm->pm", q, E)
    else:
        ordered_p = q * T
    ordered_p *= factor
    ordered_p /= ordered_p.sum(axis=0)
    distribution = np.empty_like(ordered_p)
    distribution[order] = ordered_p
    return distribution


def _sums_by_group(powers: FloatArray, group_sizes: list[int]) -> FloatArray:
    """Return sums (G, G, m) of powers (G, p, m) over the members of each group, which are side by side."""
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
    """Return the stationary masses (G, m) of m chains with rates (G, G, m), up to a factor per chain.

    ``rates[g, h]`` leads from state g to state h; the array is overwritten. This is Grassmann-Taksar-Heyman
    elimination: the last state l is removed from the chain, and what went to l is passed on to the states
    that l leads to::

        leaving_l    = sum of rates[l, :l]
        rates[g, h] += rates[g, l] / leaving_l * rates[l, h]    for g, h < l

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
    """Return what ``_by_powers`` does, with logarithms of rates, for scores at which plain rates underflow.

    In its letters, but with rates that are divided by ``rho_g T_g``::

        log softmax_gj = f_j / rho_g - log T_g                                       (G, p, m)
        log R_gh       = log (sum of softmax_gj over j of h) - log rho_g             (G, G, m)
        q              = stationary masses of the rates R                            (G, m)
        log p_j        = log rho_j + log sum_g (q_g / rho_g * softmax_gj)            (p, m) up to a constant
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
    """Return the logarithms of the masses (G, m) that ``_gth`` returns, from logarithms of rates (G, G, m).

    ``best_scores`` (G, m) is the best score of each state. The state with the lowest is eliminated first,
    and masses are relative to that with the highest: at scores of 1e20 the rounding of logarithms would
    otherwise swamp the ratios of the states that matter.
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
    """Return the stationary distribution (p, m) for a pairwise surrogate; the states are the experts.

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
    """Return weights (p, m) from their logarithms, scaled to a sum of 1 per sample."""
    weights = np.exp(log_weights - log_weights.max(axis=0))
    return weights / weights.sum(axis=0)

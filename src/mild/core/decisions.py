"""Decisions from scores: the paper's argmax, and stationary decoding.

A router is trained with ``core.losses.mild_loss``, in which each expert k has a loss ``ell_k`` and a
reward. The expert to choose is the one with the largest expected reward. So the question is which expected
rewards p, as shares that sum to 1, a row of scores f stands for.

At the minimiser of a smooth surrogate the gradient vanishes, so p solves ``sum_k p_k * grad ell_k(f) = 0``.
These are the equations of the stationary distribution of a Markov chain between the experts, which goes
from k to j at the rate ``d ell_k / d f_j``; for the logistic loss this is ``softmax_j(f / rho_k) / rho_k``.
*Stationary decoding* solves for p and takes the largest entry. For unequal margins rho the argmax of the
scores is a different, inconsistent rule (docs/science/theory.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray, check_margins, check_scores
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import UnsupportedError, check_option

DECISIONS = ("stationary", "argmax")

# Most rates between experts that are held at a time: this many fit into the cache.
MAX_RATES = 200_000
# Shares that are equal to this many digits tie: further ones depend on the processor.
DIGITS = 12


def argmax_last(values: FloatArray, order: IntArray | None = None) -> IntArray:
    """Return the index (n,) of the largest of the values (n, p) of each row.

    Ties go to the highest index, which is the paper's rule, or with an ``order`` (p,) of the indices to the
    last one in that order.
    """
    if order is not None:
        return order[argmax_last(values[:, order])]
    return values.shape[1] - 1 - values[:, ::-1].argmax(axis=1)


def largest_share(shares: FloatArray, order: IntArray | None = None) -> IntArray:
    """Return the index (n,) of the largest share (n, p) of each row; ties go as in ``argmax_last``."""
    return argmax_last(np.round(shares, DIGITS), order)


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
    return largest_share(stationary_shares(f, rho, parsed_surrogate))


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
    return stationary_shares(f, rho, parsed_surrogate)


def _check_decodable(surrogate: Surrogate) -> None:
    """Raise an error if the scores of the surrogate do not determine a distribution."""
    if not surrogate.decodable:
        raise UnsupportedError(
            "stationary decoding needs a surrogate whose minimiser determines a distribution: not the "
            "hinge, nor tau >= 2. Use decision='argmax'."
        )


def stationary_shares(scores: FloatArray, margins: FloatArray, surrogate: Surrogate) -> FloatArray:
    """Return the stationary distribution (n, p) of scores (n, p) in float64; nothing is validated."""
    n, p = scores.shape
    f = scores.astype(np.float64)
    f -= f.max(axis=1, keepdims=True)
    if (margins == margins[0]).all():
        shares = np.exp((2 - surrogate.tau) / margins[0] * f)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares
    shares = np.empty((n, p))
    step = max(1, MAX_RATES // p**2)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        if surrogate.form == "comp_sum" and surrogate.tau <= 1:
            shares[rows] = _solve(f[rows], margins, surrogate.tau)
        else:
            shares[rows] = _eliminate(f[rows].T, margins, surrogate).T
    return shares


def _solve(f: FloatArray, rho: FloatArray, tau: float) -> FloatArray:
    """Return the stationary distribution (n, p) for a comp-sum surrogate with tau <= 1, by linear systems.

    The largest score of each row is 0. With ``y = q / rho``, the stationary masses q of the chain for the
    logistic loss solve, for every expert j::

        sum over k != j of y_k * softmax_j(f / rho_k)  =  y_j * sum over i != j of softmax_i(f / rho_j)
        sum_k rho_k * y_k  =  1

    The last one replaces an equation that follows from the others. Every expert leads to that with the
    best score at a rate of at least 1 / p, so the system is never singular. For tau < 1, ``q_k`` is
    multiplied by ``softmax_k(f / rho_k)^(1 - tau)``.
    """
    n, p = f.shape
    diagonal = np.arange(p)
    softmax = np.exp(f[:, None, :] / rho[:, None])  # (n, k, j)
    softmax /= softmax.sum(axis=2, keepdims=True)
    own_softmax = softmax[:, diagonal, diagonal]
    softmax[:, diagonal, diagonal] = 0
    system = softmax.transpose(0, 2, 1).copy()
    system[:, diagonal, diagonal] = -softmax.sum(axis=2)
    system[:, -1] = rho
    right_side = np.zeros((n, p, 1))
    right_side[:, -1] = 1
    # Rounding may make masses of almost 0 negative.
    masses = np.maximum(np.linalg.solve(system, right_side)[:, :, 0], 0) * rho
    if tau < 1:
        masses *= own_softmax ** (1 - tau)
    return masses / masses.sum(axis=1, keepdims=True)


def _eliminate(f: FloatArray, rho: FloatArray, surrogate: Surrogate) -> FloatArray:
    """Return the stationary distribution (p, n) of scores (p, n), by elimination with logarithms.

    The rate from k to j is ``exp(v_kj - tau * ell) / rho_k`` with ``v_kj = (f_j - f_k) / rho_k``. For a
    pairwise surrogate ``ell = log(1 + exp(v_kj))``, for a comp-sum one ``ell = log sum_j exp(v_kj)``.

    This is Grassmann-Taksar-Heyman elimination: the last expert l is removed from the chain, and what went
    to l is passed on to the experts that l leads to::

        leaving_l    = sum of rates[l, :l]
        rates[k, j] += rates[k, l] / leaving_l * rates[l, j]    for k, j < l

    This is repeated until one is left. The masses then follow in their order: with the rates as they
    were when k was removed, ``mass[k] = sum over h < k of mass[h] * rates[h, k] / leaving_k``. The experts
    with the lowest scores are removed first.
    """
    order = np.argsort(-f, axis=0, kind="stable")
    f = np.take_along_axis(f, order, axis=0)
    margins = rho[order]
    gaps = (f[None] - f[:, None]) / margins[:, None]
    if surrogate.form == "pairwise":
        ell = np.logaddexp(gaps, 0)
    else:
        ell = np.logaddexp.reduce(gaps, axis=1, keepdims=True)
    log_rates = gaps - surrogate.tau * ell - np.log(margins)[:, None]
    for last in range(len(f) - 1, 0, -1):
        log_rates[:last, last] -= np.logaddexp.reduce(log_rates[last, :last], axis=0)
        through_last = log_rates[:last, last, None] + log_rates[last, :last]
        np.logaddexp(log_rates[:last, :last], through_last, out=log_rates[:last, :last])
    log_masses = np.zeros(f.shape)
    for k in range(1, len(f)):
        log_masses[k] = np.logaddexp.reduce(log_masses[:k] + log_rates[:k, k], axis=0)
    masses = np.empty(f.shape)
    np.put_along_axis(masses, order, np.exp(log_masses - log_masses.max(axis=0)), axis=0)
    return masses / masses.sum(axis=0)

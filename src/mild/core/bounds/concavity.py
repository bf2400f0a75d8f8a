"""Modulus of strong concavity of the minimal risk: the ``mu(rho)`` of the consistency inequality.

``H(q) = min over f of sum_k q_k ell_k(f)`` has, at the distribution q that scores f decode to, the
Hessian ``-Q`` with ``Q = J M^+ J^T``, ``J_kj = d ell_k / d f_j`` and ``M = sum_k q_k Hess ell_k``.
Its modulus in the 1-norm is

    mu(rho) = inf over f of  1 / max over sign vectors s of  s^T Q^+ s,

with Q^+ the inverse on vectors of sum zero.

With pi_k = softmax(f / rho_k), ``s^T Q^+ s = sum_k (q_k / rho_k^2) Var_{pi_k}(u)``, where u solves
the Poisson equation ``u - pi u = rho * (s - q.s)``: no pseudo-inverse is needed (docs/theory.md).
Only ratios of margins matter.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from mild.core.arrays import FloatArray, check_margins, invalid
from mild.core.decisions import stationary_distribution

__all__ = ["StrongConcavity", "modulus_floor", "strong_concavity"]

# A certified value lies below the infimum by at most this share of it.
TOLERANCE = 1e-6
# Covers the rounding of one interval bound, which is a few units in the last place.
ROUNDING = 1e-12
# Up to this many experts every sign vector is tried.
ALL_SIGNS = 8


@dataclass(frozen=True)
class StrongConcavity:
    """The modulus ``mu(rho)`` and whether it is certified.

    Attributes
    ----------
    value : float
        A proved lower bound within 1e-6 of the infimum if ``certified``; otherwise the least value
        that a numerical search found, which can only be too large.
    certified : bool
    floor : float
        A proved lower bound in every case (``modulus_floor``).
    """

    value: float
    certified: bool
    floor: float


def strong_concavity(
    margins: ArrayLike, n_starts: int = 2000, n_refined: int = 8, seed: int = 0
) -> StrongConcavity:
    """Modulus of strong concavity, in the 1-norm, of the minimal logistic risk.

    Equal margins: exactly 1 (Pinsker). Two experts: certified by branch and bound. More: the least
    of a search over scores and of the value for the two extreme margins, which is an upper bound.

    Parameters
    ----------
    margins : (n_experts,) positive
    n_starts, n_refined, seed : int
        For three experts or more: random scores tried, how many of the best are refined, and the
        seed.

    Examples
    --------
    >>> [round(strong_concavity([1, ratio]).value, 4) for ratio in (1, 2, 4, 16)]
    [1.0, 0.5869, 0.271, 0.0588]
    >>> strong_concavity([1, 2, 2]).certified
    False
    """
    rho = _check(margins)
    floor = modulus_floor(rho)
    if len(rho) <= 2 or (rho == rho[0]).all():
        return StrongConcavity(floor, True, floor)
    found = _search(rho / rho.min(), n_starts, n_refined, np.random.default_rng(seed))
    extremes = _two_experts(float(rho.max() / rho.min()))
    return StrongConcavity(min(found, extremes), False, floor)


def modulus_floor(margins: ArrayLike) -> float:
    """Proved lower bound on ``mu(rho)``.

    1 at equal margins, the certified value for two experts, and otherwise
    ``1 / (2 p max(rho) / min(rho) - 1)`` (docs/theory.md, "The modulus is positive").

    Examples
    --------
    >>> round(modulus_floor([1, 2, 2]), 4)
    0.0909
    """
    rho = _check(margins)
    ratio = float(rho.max() / rho.min())
    if ratio == 1:
        return 1.0
    if len(rho) == 2:
        return _two_experts(ratio)
    return 1 / (2 * len(rho) * ratio - 1)


def _check(margins: ArrayLike) -> FloatArray:
    size = np.size(np.asarray(margins, dtype=object))
    if np.ndim(margins) != 1 or size == 0:
        raise invalid(
            "margins",
            f"must have shape (n_experts,) with at least one expert; got shape "
            f"{np.shape(margins)}.",
        )
    return check_margins(margins, size)


def _two_experts(ratio: float) -> float:
    """Certified infimum over t = f_1 - f_2 for margins (1, 1 / ratio), by branch and bound.

    With ``A = sigmoid(-t)`` falling and ``B = ratio * sigmoid(ratio * t)`` rising in t, and y =
    log(B / A) rising,

        -H'' / 4 = cosh(y / 2)^2 * (A + B) / (1 + ratio - A - B).

    Both factors are bounded below on an interval from the values at its ends.
    """
    scale = np.geomspace(1e-3 / ratio, 1e3, 200)
    edges = np.concatenate([[-np.inf], -scale[::-1], [0.0], scale, [np.inf]])
    low, high = edges[:-1], edges[1:]
    best = float(_half_curvature(edges[1:-1], edges[1:-1], ratio).min())
    while low.size:
        bound = _half_curvature(low, high, ratio)
        middle = np.where(
            np.isinf(low), 2 * high - 1, np.where(np.isinf(high), 2 * low + 1, (low + high) / 2)
        )
        best = min(best, float(_half_curvature(middle, middle, ratio).min()))
        split = bound * (1 - ROUNDING) < (1 - TOLERANCE / 2) * best
        low, middle, high = low[split], middle[split], high[split]
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    # Later values of best only fall, so every interval that was closed stays above this.
    return (1 - TOLERANCE / 2) * best


def _half_curvature(low: FloatArray, high: FloatArray, ratio: float) -> FloatArray:
    """Lower bound on ``-H'' / 4`` over [low, high]; its value where the two are equal."""
    total = _sigmoid(-high) + ratio * _sigmoid(ratio * low)
    rest = _sigmoid(high) + ratio * _sigmoid(-ratio * low)
    y_low = np.log(ratio) + _log_sigmoid(ratio * low) - _log_sigmoid(-low)
    y_high = np.log(ratio) + _log_sigmoid(ratio * high) - _log_sigmoid(-high)
    nearest = np.maximum(np.maximum(y_low, -y_high), 0)
    # Beyond 600 the value is astronomically large; the cap keeps it finite and still a lower bound.
    result: FloatArray = np.cosh(np.minimum(nearest, 600.0) / 2) ** 2 * total / rest
    return result


def _log_sigmoid(t: FloatArray) -> FloatArray:
    return -np.logaddexp(0, -t)


def _sigmoid(t: FloatArray) -> FloatArray:
    result: FloatArray = np.exp(_log_sigmoid(t))
    return result


def _search(rho: FloatArray, n_starts: int, n_refined: int, rng: np.random.Generator) -> float:
    """Least ``1 / (s^T Q^+ s)`` over scores and signs: random starts, the best of them refined."""
    p = len(rho)
    signs = _sign_vectors(rho, rng)
    size = max(50, n_starts * 32 // max(32, len(signs)))
    spread = np.exp(rng.uniform(np.log(0.05), np.log(8), (size, 1))) * rho.max()
    starts = rng.standard_normal((size, p)) * spread
    # Minimisers tend to have the least margin on top and the others level: begin there as well.
    level = np.zeros((20, p))
    level[:, int(np.argmin(rho))] = np.linspace(0.1, 4, 20) * np.sqrt(rho.max())
    starts = np.concatenate([level, starts])
    values = _inverse_curvature(starts, rho, signs)
    best = float(values.max())
    order = np.argsort(values.max(axis=1))[::-1][:n_refined]
    for start in starts[order]:
        best = max(best, _refine(start, rho, signs))
    return 1 / best


def _refine(start: FloatArray, rho: FloatArray, signs: FloatArray) -> float:
    """Ascend in the scores at the best sign vector, then choose the signs again."""
    scores = start - start[-1]
    best = 0.0
    for _ in range(4):
        values = _inverse_curvature(scores[None], rho, signs)[0]
        if values.max() <= best * (1 + 1e-9):
            break
        best = float(values.max())
        sign = signs[[int(np.argmax(values))]]

        found = minimize(
            _objective,
            scores[:-1],
            args=(rho, sign),
            jac=True,
            method="BFGS",
            options={"gtol": 1e-6, "maxiter": 200},
        )
        best = max(best, float(np.exp(-found.fun)))
        scores = np.append(found.x, 0.0)
    return best


def _objective(free: FloatArray, rho: FloatArray, sign: FloatArray) -> tuple[float, FloatArray]:
    """``-log s^T Q^+ s`` and its slope by central differences, all points in one call."""
    step = 1e-5 * np.eye(len(free))
    points = np.concatenate([free[None], free + step, free - step])
    points = np.hstack([points, np.zeros((len(points), 1))])
    curvature = np.maximum(_inverse_curvature(points, rho, sign)[:, 0], np.finfo(np.float64).tiny)
    values = -np.log(curvature)
    up, down = values[1 : len(free) + 1], values[len(free) + 1 :]
    return float(values[0]), (up - down) / 2e-5


def _sign_vectors(rho: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Sign vectors up to a common sign, without the constant one."""
    p = len(rho)
    if p <= ALL_SIGNS:
        tails = np.array(list(itertools.product((1.0, -1.0), repeat=p - 1)))
        return np.hstack([np.ones((len(tails), 1)), tails])[1:]
    rank = np.argsort(np.argsort(rho, kind="stable"))
    splits = np.where(rank[None] < np.arange(1, p)[:, None], 1.0, -1.0)
    singles = 1.0 - 2.0 * np.eye(p)
    random = rng.choice([1.0, -1.0], (64, p))
    random[:, 0], random[:, 1] = 1.0, -1.0
    return np.concatenate([splits, singles, random])


def _inverse_curvature(scores: FloatArray, rho: FloatArray, signs: FloatArray) -> FloatArray:
    """``s^T Q^+ s`` for every row of scores (n, p) and of signs (s, p); shape (n, s)."""
    softmax = scores[:, None, :] / rho[None, :, None]
    softmax -= softmax.max(axis=2, keepdims=True)
    np.exp(softmax, out=softmax)
    softmax /= softmax.sum(axis=2, keepdims=True)
    q = stationary_distribution(scores, rho)
    visits = q / rho
    visits /= visits.sum(axis=1, keepdims=True)
    target = rho[:, None] * (signs.T[None] - (q @ signs.T)[:, None, :])
    # The rank-one term fixes the free constant of the Poisson equation.
    system = np.eye(len(rho)) - softmax + visits[:, None, :]
    potential = np.linalg.solve(system, target)
    mean = softmax @ potential
    result = np.zeros((len(scores), len(signs)))
    for k in range(len(rho)):
        centred = potential - mean[:, k : k + 1]
        variance = np.einsum("nj,njs->ns", softmax[:, k], centred**2)
        result += (q[:, k] / rho[k] ** 2)[:, None] * variance
    return result

"""The exact minimiser of the MILD logistic loss for given expected rewards, one row at a time.

With ``ell_k(f) = log sum_j exp((f_j - f_k) / rho_k)`` and rewards r, the risk ``sum_k r_k
ell_k(f)`` is convex in f and strictly so up to a constant. Its Hessian is the Laplacian of a
weighted graph on the experts: with one expert's score held at 0 it is positive definite, and
Newton's method does the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    IntArray,
    check_entries,
    check_margins,
    check_rewards,
)

__all__ = ["exact_minimiser", "minimal_risk"]


def exact_minimiser(rewards: ArrayLike, margins: ArrayLike | None = None) -> FloatArray:
    """Scores that minimise ``sum_k rewards_k * ell_k(f)`` in each row; the last score is 0.

    Parameters
    ----------
    rewards : (n_rows, n_experts) array, all positive
        Expected rewards, or a reward distribution: only their ratios matter.
    margins : (n_experts,) positive; None for all ones

    Returns
    -------
    (n_rows, n_experts) array

    Examples
    --------
    Expert 0 earns more, but the minimiser scores it lower when its margin is larger:

    >>> exact_minimiser([[0.55, 0.45]], [2 / 3, 1 / 3]).round(4)
    array([[-0.2036,  0.    ]])
    """
    weights, rho = _check(rewards, margins)
    remedy = " Use minimal_risk for the infimum."
    rule = "be positive for a finite minimiser to exist"
    check_entries("rewards", weights, ~(weights > 0), rule, remedy)
    scores = np.zeros_like(weights)
    for i, row_weights in enumerate(weights):
        scores[i] = _newton(row_weights / row_weights.sum(), rho)
    return scores - scores[:, -1:]


def minimal_risk(rewards: ArrayLike, margins: ArrayLike | None = None) -> FloatArray:
    """``inf over f of sum_k rewards_k * ell_k(f)`` in each row; Shannon's entropy at equal margins.

    For a reward distribution this is the ``H`` of docs/theory.md. An expert without reward is sent
    to a score of minus infinity, so the infimum is that of the other experts.

    Examples
    --------
    >>> minimal_risk([[0.5, 0.5], [1.0, 0.0]]).round(4)
    array([0.6931, 0.    ])
    """
    weights, rho = _check(rewards, margins)
    risks = np.zeros(len(weights))
    for i, row in enumerate(weights):
        paid = row > 0
        if paid.sum() < 2:
            continue
        total = row.sum()
        distribution = row[paid] / total
        scores = _newton(distribution, rho[paid])
        risks[i] = total * _risk(scores, distribution, rho[paid])[0]
    return risks


def _check(rewards: ArrayLike, margins: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    weights = check_rewards(rewards).astype(np.float64)
    return weights, check_margins(margins, weights.shape[1])


def _newton(distribution: FloatArray, rho: FloatArray) -> FloatArray:
    """Minimiser for one interior distribution; the score of its largest entry is 0."""
    top = int(np.argmax(distribution))
    free = np.flatnonzero(np.arange(len(rho)) != top)
    scores = rho.mean() * np.log(distribution / distribution[top])
    if free.size == 0:
        return scores
    value, gradient, softmax = _risk(scores, distribution, rho)
    polished = 0
    for _ in range(200):
        step = np.zeros_like(scores)
        step[free] = _newton_step(gradient, softmax, distribution / rho**2, free)
        # Far from the minimum the model is flat and asks for absurd steps.
        step *= min(1.0, 20.0 * float(rho.max()) / max(float(np.abs(step).max()), 1e-300))
        decrement = -float(gradient @ step)
        if decrement <= 1e-10 * value + 1e-15:
            # The value no longer resolves progress, the gradient does: two bare steps finish.
            if polished == 2:
                break
            polished += 1
            scores = scores + step
            value, gradient, softmax = _risk(scores, distribution, rho)
            continue
        size = 1.0
        while size > 1e-6:
            trial = scores + size * step
            found = _risk(trial, distribution, rho)
            if found[0] <= value - 0.25 * size * decrement:
                break
            size /= 2
        else:
            break
        scores = trial
        value, gradient, softmax = found
    return scores


def _risk(
    scores: FloatArray, distribution: FloatArray, rho: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Risk, its gradient, and the matrix of ``softmax_j(f / rho_k)``, for one row of scores."""
    logits = scores / rho[:, None]
    logits -= logits.max(axis=1, keepdims=True)
    softmax = np.exp(logits)
    total = softmax.sum(axis=1)
    softmax /= total[:, None]
    value = float(distribution @ (np.log(total) - np.diag(logits)))
    visits = distribution / rho
    return value, visits @ softmax - visits, softmax


def _newton_step(
    gradient: FloatArray, softmax: FloatArray, weight: FloatArray, free: IntArray
) -> FloatArray:
    coupling = -(softmax.T * weight) @ softmax
    np.fill_diagonal(coupling, 0)
    # Rows of a Laplacian sum to zero: the diagonal from the others keeps its relative accuracy.
    np.fill_diagonal(coupling, -coupling.sum(axis=1))
    hessian = coupling[np.ix_(free, free)]
    # Entries differ by the ratio of the rewards: scale the diagonal to one before solving.
    scale = 1 / np.sqrt(np.maximum(np.diag(hessian), np.finfo(np.float64).tiny))
    solution = np.linalg.solve(hessian * np.outer(scale, scale), scale * gradient[free])
    return -scale * solution

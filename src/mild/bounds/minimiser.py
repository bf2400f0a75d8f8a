"""The exact minimiser of the MILD logistic loss for given expected rewards, one row at a time.

With ``ell_k(f) = log sum_j exp((f_j - f_k) / rho_k)`` and rewards r, the risk ``sum_k r_k ell_k(f)`` is
convex in f and strictly so up to a constant. Its Hessian is the Laplacian of a weighted graph on the
experts: with one expert's score held at 0 it is positive definite, and Newton's method does the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.arrays import FloatArray, check_margins, check_rewards, float_matrix
from mild.exceptions import InvalidInputError
from mild.losses import mild_loss

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
    if not (weights > 0).all():
        row, expert = np.argwhere(~(weights > 0))[0]
        raise InvalidInputError(
            f"rewards must be positive for a finite minimiser to exist; got "
            f"{weights[row, expert]:g} in row {row}, expert {expert}. Use minimal_risk for the infimum."
        )
    scores = np.zeros_like(weights)
    for i, row_weights in enumerate(weights):
        scores[i] = _newton(row_weights / row_weights.sum(), rho)
    return scores - scores[:, -1:]


def minimal_risk(rewards: ArrayLike, margins: ArrayLike | None = None) -> FloatArray:
    """``inf over f of sum_k rewards_k * ell_k(f)`` in each row; Shannon's entropy at equal margins.

    For a reward distribution this is the ``H`` of docs/theory.md. An expert without reward is sent to a
    score of minus infinity, so the infimum is that of the other experts.

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
        risks[i] = total * mild_loss(scores[None], distribution[None], rho[paid])[0]
    return risks


def _check(rewards: ArrayLike, margins: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    matrix = float_matrix("rewards", rewards).astype(np.float64)
    weights = check_rewards(matrix, matrix.shape)
    return weights, check_margins(margins, weights.shape[1])


def _newton(distribution: FloatArray, rho: FloatArray) -> FloatArray:
    """Minimiser for one interior distribution; the score of its largest entry is 0."""
    top = int(np.argmax(distribution))
    free = np.arange(len(rho)) != top
    scores = rho.mean() * np.log(distribution / distribution[top])
    if not free.any():
        return scores
    value, gradient = _risk(scores, distribution, rho)
    for _ in range(200):
        step = np.zeros_like(scores)
        step[free] = _newton_step(scores, gradient[free], distribution, rho, free)
        decrement = -float(gradient @ step)
        size = 1.0
        while size > 1e-12:
            trial = scores + size * step
            trial_value, trial_gradient = _risk(trial, distribution, rho)
            if trial_value <= value - 0.25 * size * decrement:
                break
            size /= 2
        else:
            break
        scores, value, gradient = trial, trial_value, trial_gradient
    return scores


def _risk(
    scores: FloatArray, distribution: FloatArray, rho: FloatArray
) -> tuple[float, FloatArray]:
    values, gradient = mild_loss(scores[None], distribution[None], rho, return_gradient=True)
    return float(values[0]), gradient[0]


def _newton_step(
    scores: FloatArray,
    gradient: FloatArray,
    distribution: FloatArray,
    rho: FloatArray,
    free: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> FloatArray:
    logits = scores / rho[:, None]
    softmax = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax /= softmax.sum(axis=1, keepdims=True)
    weight = distribution / rho**2
    coupling = -(softmax.T * weight) @ softmax
    np.fill_diagonal(coupling, 0)
    # Rows of a Laplacian sum to zero: the diagonal from the others keeps its relative accuracy.
    np.fill_diagonal(coupling, -coupling.sum(axis=1))
    hessian = coupling[np.ix_(free, free)]
    # Entries differ by the ratio of the rewards: scale the diagonal to one before solving.
    scale = 1 / np.sqrt(np.maximum(np.diag(hessian), np.finfo(np.float64).tiny))
    step = -scale * np.linalg.solve(hessian * np.outer(scale, scale), scale * gradient)
    # Far from the minimum the model is flat and asks for absurd steps.
    longest = float(np.abs(step).max())
    limit = 20.0 * float(rho.max())
    return step if longest <= limit else step * (limit / longest)

"""Preconditioned L-BFGS for linear routers.

Near the start the Hessian of the objective is close to ``kappa * A + 2 alpha I`` for every expert, where A
is the second-moment matrix of the features with a constant 1. Its Cholesky factor, from a sample of the
rows, is the preconditioner. Near the solution experts differ, and kappa becomes a matrix K between their
scores: the Hessian is close to the Kronecker product of K and A. The stopping rule is the estimated
suboptimality ``||L^-1 gradient||^2 / 2`` relative to the value, which does not depend on the scale of the
features.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from mild.core.arrays import FloatArray

__all__ = [
    "Objective",
    "Preconditioner",
    "Solution",
    "minimise",
    "sample_rows",
    "sampled_preconditioner",
    "second_moments",
]

SAMPLE = 8192
DENSE_LIMIT = 2048
MEMORY = 12
PATIENCE = 12
MAX_TRIALS = 25
# Least curvature that any direction between scores is taken to have, in units of the mean.
FLATTEST = 0.01


class Objective(Protocol):
    """Value and gradient at W, (p, d + 1)."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]: ...


@dataclass(frozen=True)
class Solution:
    """Where the solver stopped; ``gap`` is the estimated relative suboptimality of its start."""

    W: FloatArray
    value: float
    n_iter: int
    converged: bool
    gap: float = 0.0


class Preconditioner:
    """Preconditioned variables ``V = W F`` with ``F F^T = curvature * moments + 2 alpha I``.

    Dense: weights act on centred features. With mean m and
    ``L L^T = curvature * covariance + 2 alpha I``, ``V = (W L, (W m + b) sqrt(curvature))``.

    Parameters
    ----------
    moments : second moments per unit of weight, (d + 1, d + 1), or its diagonal (d + 1,)
    curvature : mean curvature of the loss in one score, or between all scores, (p, p); V then is
        ``(K / mean curvature)^(1/2)`` times what it is without
    alpha : L2 strength
    """

    def __init__(
        self,
        moments: FloatArray,
        curvature: float | FloatArray,
        alpha: float,
        fit_intercept: bool = True,
    ) -> None:
        self.dense = moments.ndim == 2
        self.between: tuple[FloatArray, FloatArray] | None = None
        if isinstance(curvature, np.ndarray):
            spread = np.diag(moments) if self.dense else moments
            # The penalty curves every direction equally; none may seem flat for lack of rows.
            curvature, self.between = _matrix_roots(
                curvature, 2 * alpha / max(spread.mean(), 1e-300)
            )
        self.root = float(np.sqrt(curvature))
        if self.dense:
            # Centring moves the intercept with the weights, so it needs a free intercept.
            self.mean = moments[-1, :-1] if fit_intercept else np.zeros(len(moments) - 1)
            spread = curvature * (moments[:-1, :-1] - np.outer(self.mean, self.mean))
            diagonal = np.diag_indices_from(spread)
            rounding = 1e-13 * curvature * moments[:-1, :-1][diagonal]
            spread[diagonal] = np.maximum(spread[diagonal], rounding) + 2 * alpha
            self.factor = _lower_factor(spread)
        else:
            scaled = moments * curvature
            scaled[:-1] += 2 * alpha
            self.factor = np.sqrt(np.maximum(scaled, 1e-8 * max(scaled.max(), 1e-30)))

    def to_weights(self, V: FloatArray) -> FloatArray:
        """W from V."""
        if self.between is not None:
            V = self.between[1] @ V
        if not self.dense:
            return V / self.factor
        W = np.empty_like(V)
        W[:, :-1] = self._solve(V[:, :-1], "T")
        W[:, -1] = V[:, -1] / self.root - W[:, :-1] @ self.mean
        return W

    def to_variables(self, W: FloatArray) -> FloatArray:
        """V from W."""
        if self.between is not None:
            W = self.between[0] @ W
        if not self.dense:
            return W * self.factor
        offset = (W[:, :-1] @ self.mean + W[:, -1]) * self.root
        return np.column_stack([W[:, :-1] @ self.factor, offset])

    def turn_gradient(self, G: FloatArray) -> FloatArray:
        """Gradient in V from the gradient in W."""
        if self.between is not None:
            G = self.between[1] @ G
        if not self.dense:
            return G / self.factor
        centred = G[:, :-1] - np.outer(G[:, -1], self.mean)
        return np.column_stack([self._solve(centred, "N"), G[:, -1] / self.root])

    def _solve(self, rows: FloatArray, trans: str) -> FloatArray:
        return solve_triangular(self.factor, rows.T, lower=True, trans=trans, check_finite=False).T


def minimise(
    objective: Objective,
    preconditioner: Preconditioner,
    start: FloatArray,
    tol: float,
    max_iter: int,
    reference: float = 0.0,
) -> Solution:
    """L-BFGS in the preconditioned variables until the estimated relative suboptimality is below ``tol``.

    Relative to the value, or to its distance from ``reference``, such as the value at zero weights.

    The first trial step is 1, which fits the preconditioner: a good start costs one evaluation. The weak
    Wolfe line search also works at the kinks of the hinge.
    """
    shape = objective.shape

    def evaluate(v: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(preconditioner.to_weights(v.reshape(shape)))
        return value, preconditioner.turn_gradient(gradient).ravel()

    v = preconditioner.to_variables(start).ravel()
    value, gradient = evaluate(v)
    pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=MEMORY)
    values = deque([value], maxlen=PATIENCE)
    converged = False
    iteration = 0
    first_gap = 0.5 * float(gradient @ gradient) / max(abs(value - reference), 1e-12)
    for iteration in range(max_iter + 1):
        gap = 0.5 * float(gradient @ gradient)
        level = tol * max(abs(value - reference), 1e-9 * abs(value), 1e-12)
        if gap <= level or (len(values) == PATIENCE and values[0] - value <= level * 0.1):
            converged = True
            break
        if iteration == max_iter:
            break
        direction = _direction(gradient, pairs)
        step = _search(evaluate, v, value, gradient, direction)
        if step is None:
            # In float32 rounding can end the search before the tolerance is met.
            converged = gap <= 1e-3 * max(abs(value), 1e-12)
            break
        v_new, value, new_gradient = step
        change, turn = v_new - v, new_gradient - gradient
        curvature = float(change @ turn)
        if curvature > 1e-12 * float(turn @ turn):
            pairs.append((change, turn, curvature))
        v, gradient = v_new, new_gradient
        values.append(value)
    W = preconditioner.to_weights(v.reshape(shape))
    return Solution(W, value, iteration, converged, first_gap)


def _direction(
    gradient: FloatArray, pairs: Sequence[tuple[FloatArray, FloatArray, float]]
) -> FloatArray:
    """Two-loop recursion: minus the inverse Hessian estimate times the gradient."""
    q = gradient.copy()
    weights = []
    for change, turn, curvature in reversed(pairs):
        weight = float(change @ q) / curvature
        q -= weight * turn
        weights.append(weight)
    if pairs:
        _, turn, curvature = pairs[-1]
        q *= curvature / float(turn @ turn)
    for (change, turn, curvature), weight in zip(pairs, reversed(weights), strict=True):
        q += (weight - float(turn @ q) / curvature) * change
    return -q


def _search(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray]],
    v: FloatArray,
    value: float,
    gradient: FloatArray,
    direction: FloatArray,
) -> tuple[FloatArray, float, FloatArray] | None:
    """Weak Wolfe line search by doubling and bisection; None when no step lowers the value."""
    slope = float(gradient @ direction)
    if not slope < 0:
        return None
    low, high, step = 0.0, np.inf, 1.0
    best: tuple[FloatArray, float, FloatArray] | None = None
    for _ in range(MAX_TRIALS):
        trial = v + step * direction
        new_value, new_gradient = evaluate(trial)
        if not new_value <= value + 1e-4 * step * slope:
            high = step
        else:
            if best is None or new_value < best[1]:
                best = trial, new_value, new_gradient
            if float(new_gradient @ direction) >= 0.9 * slope:
                return trial, new_value, new_gradient
            low = step
        step = (low + high) / 2 if np.isfinite(high) else 2 * low
    return best


def sample_rows(n: int, size: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """A fixed random sample of rows: the same for the same n."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, size, replace=False))


def second_moments(X: Any, weights: FloatArray) -> FloatArray:
    """Weighted mean of ``[x 1]^T [x 1]``; only its diagonal for sparse or very wide X."""
    total = max(float(weights.sum()), 1e-300)
    if hasattr(X, "tocsr") or X.shape[1] > DENSE_LIMIT:
        if hasattr(X, "tocsr"):
            diagonal = np.asarray(X.multiply(X).T @ weights).ravel()
        else:
            diagonal = np.einsum("ij,ij,i->j", X, X, weights)
        return np.append(diagonal, total) / total
    size = X.shape[1] + 1
    moments = np.zeros((size, size))
    for start in range(0, X.shape[0], 1024):
        rows = slice(start, start + 1024)
        roots = np.sqrt(weights[rows]).astype(X.dtype)
        scaled = np.column_stack([X[rows] * roots[:, None], roots])
        moments += scaled.T @ scaled
    return moments / total


def sampled_preconditioner(
    X: Any, weights: FloatArray, curvature: float, alpha: float
) -> Preconditioner:
    """Preconditioner from the second moments of a sample of the rows, weighted by ``weights`` (n,)."""
    rows = sample_rows(X.shape[0], SAMPLE)
    return Preconditioner(second_moments(X[rows], weights[rows]), curvature, alpha)


def _matrix_roots(
    curvature: FloatArray, penalty: float
) -> tuple[float, tuple[FloatArray, FloatArray]]:
    """Mean curvature, and the root of the matrix in its units with that root's inverse."""
    p = len(curvature)
    mean = max(float(np.trace(curvature)) / max(p - 1, 1), 1e-12)
    # The loss is constant along equal scores: that direction gets the mean.
    sizes, turns = np.linalg.eigh(curvature / mean + 1 / p)
    roots = np.sqrt(np.maximum(sizes, FLATTEST) + penalty / mean)
    roots /= np.sqrt(1 + penalty / mean)
    return mean, ((turns * roots) @ turns.T, (turns / roots) @ turns.T)


def _lower_factor(moments: FloatArray) -> FloatArray:
    """Cholesky factor, in units of each feature; a growing ridge for collinear features."""
    diagonal = np.diag_indices_from(moments)
    scale = np.sqrt(moments[diagonal])
    scale[scale == 0] = 1
    unit = moments / np.outer(scale, scale)
    jitter = 1e-7
    for _ in range(8):
        unit[diagonal] += jitter
        try:
            return scale[:, None] * cholesky(unit, lower=True, check_finite=False)
        except LinAlgError:
            jitter *= 10
    return np.diag(scale)

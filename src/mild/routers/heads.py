"""Linear heads: one number per expert, each estimated from the rows on which that expert was asked.

``targets`` is (n_samples, n_experts), NaN where nothing was observed. Every head has a free intercept.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge

from mild.core.arrays import FloatArray, IntArray
from mild.errors import ConvergenceWarning, InvalidInputError
from mild.routers.objective import LinearObjective, single_blas_thread
from mild.routers.solver import minimise, sampled_preconditioner

__all__ = ["Heads", "LogisticLoss", "logistic_heads", "observed", "ridge_heads"]


@dataclass(frozen=True)
class Heads:
    """Weights (n_experts, n_features), intercepts (n_experts,) and the iterations they took."""

    coef: FloatArray
    intercept: FloatArray
    n_iter: int = 1


def observed(name: str, targets: FloatArray, sample_weight: FloatArray | None) -> FloatArray:
    """Weight (n_samples, n_experts) of each target: the sample's, or 0 where the target is NaN."""
    known = (~np.isnan(targets)).astype(np.float64)
    if sample_weight is not None:
        known *= sample_weight[:, None]
    unknown = np.flatnonzero(~known.any(axis=0))
    if unknown.size:
        raise InvalidInputError(
            f"{name} must be known in at least one row of positive weight for every expert; expert "
            f"{unknown[0]} has none. Remove the column, or ask this expert.",
            parameter=name,
        )
    return known


def ridge_heads(
    X: Any, targets: FloatArray, weights: FloatArray, penalties: FloatArray | float
) -> Heads:
    """Ridge regression: minimises ``sum_i w_ik (t_ik - w_k . x_i - b_k)^2 + penalty_k ||w_k||^2``.

    Experts that were asked about the same rows share one factorisation.
    """
    p = targets.shape[1]
    penalty = np.broadcast_to(np.asarray(penalties, dtype=np.float64), (p,))
    coef = np.zeros((p, X.shape[1]), X.dtype)
    intercept = np.zeros(p, X.dtype)
    for rows, experts in _same_rows(weights > 0):
        few = np.ix_(rows, experts)
        weight = weights[rows, experts[0]]
        model = Ridge(alpha=penalty[experts].copy(), **_ridge_solver(X, penalty[experts]))
        model.fit(
            X if len(rows) == X.shape[0] else X[rows],
            targets[few],
            None if (weight == weight[0]).all() and weight[0] == 1 else weight,
        )
        coef[experts] = model.coef_
        intercept[experts] = model.intercept_
    return Heads(coef, intercept)


def logistic_heads(
    X: Any,
    targets: FloatArray,
    weights: FloatArray,
    alpha: float,
    max_iter: int = 300,
    tol: float = 1e-10,
) -> Heads:
    """Logistic regression on soft targets in [0, 1], all heads in one L-BFGS run.

    Minimises ``mean_i [log(1 + e^f) - t f] + alpha ||w_k||^2``, ``f = w_k . x_i + b_k``, for each
    expert k; the mean is over the rows on which k was asked, weighted.
    """
    share = weights / weights.sum(axis=0)
    soft = np.where(share > 0, targets, 0)
    loss = LogisticLoss(
        np.ascontiguousarray((share * soft).T, dtype=X.dtype),
        np.ascontiguousarray((share * (1 - soft)).T, dtype=X.dtype),
    )
    preconditioner = sampled_preconditioner(X, share.mean(axis=1), 0.25, alpha)
    with single_blas_thread() as threads:
        objective = LinearObjective(X, loss, alpha, threads=threads)
        solution = minimise(objective, preconditioner, np.zeros(objective.shape), tol, max_iter)
    if not solution.converged:
        warnings.warn(
            f"the logistic heads stopped after {solution.n_iter} iterations before the tolerance "
            f"{tol:g} was met. Raise alpha, or scale the features.",
            ConvergenceWarning,
            stacklevel=5,
        )
    W = solution.W.astype(X.dtype)
    return Heads(W[:, :-1].copy(), W[:, -1].copy(), max(1, solution.n_iter))


@dataclass(frozen=True)
class LogisticLoss:
    """``rewards * log(1 + e^-f) + penalties * log(1 + e^f)`` of every expert, experts first.

    A ``BlockLoss`` for a ``LinearObjective``; here experts do not compete.
    """

    rewards: FloatArray
    penalties: FloatArray

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]:
        """Summed loss and gradient (p, m) of a block of scores (p, m)."""
        up = self.rewards[:, rows]
        down = self.penalties[:, rows]
        low = np.logaddexp(0, -scores)
        high = np.logaddexp(0, scores)
        value = float((up * low + down * high).sum(dtype=np.float64))
        return value, down * np.exp(-low) - up * np.exp(-high)


def _same_rows(known: np.ndarray[Any, np.dtype[np.bool_]]) -> Iterator[tuple[IntArray, IntArray]]:
    """Groups of experts that were asked about the same rows: (rows, experts)."""
    patterns, group = np.unique(known, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        yield np.flatnonzero(patterns[:, number]), np.flatnonzero(group.ravel() == number)


def _ridge_solver(X: Any, penalty: FloatArray) -> dict[str, Any]:
    """A direct solver where X is dense; without a penalty, one that handles collinear features."""
    if not penalty.all():
        return {"solver": "lsqr", "tol": 1e-12}
    return {"solver": "sparse_cg", "tol": 1e-10} if hasattr(X, "tocsr") else {"solver": "cholesky"}

"""Empirical class-sensitive Rademacher complexity of the linear class (paper, section 4.1 B).

The class is ``f(x, k) = w_k . x`` with ``||W||_F <= norm``. ``membership`` (n, p) says how much of
sample i belongs to each expert: one-hot for labelled samples, the reward distribution for deferral.
With ``a_i = sum_k membership_ik / rho_k`` and independent signs eps,

    R = (1 / n) E sup over f of sum_ik eps_ik a_i f(x_i, k)
      = (norm / n) E || sum_i a_i eps_i x_i^T ||_F,

which for one-hot rows is the paper's definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, check_margins, float_matrix, invalid
from mild.core.margins import squared_norms
from mild.errors import check_option

__all__ = [
    "FEATURE_NORMS",
    "Estimate",
    "feature_norms",
    "rademacher_closed_form",
    "rademacher_monte_carlo",
]

FEATURE_NORMS = ("rms", "max")

# Numbers in one block of signs: the working set stays small.
BLOCK = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A Monte-Carlo mean and its standard error."""

    value: float
    standard_error: float


def feature_norms(X: Any, intercept: bool = True) -> FloatArray:
    """Euclidean norm of each row, the intercept counted as a feature that is always 1.

    Parameters
    ----------
    X : (n_samples, n_features) array or CSR matrix
    intercept : bool

    Examples
    --------
    >>> feature_norms([[3.0, 4.0]], intercept=False)
    array([5.])
    """
    features = check_features(X)
    return np.sqrt(squared_norms(features) + float(intercept))


def rademacher_closed_form(
    X: Any,
    membership: ArrayLike,
    margins: ArrayLike | None = None,
    norm: float = 1.0,
    intercept: bool = False,
    norms: str = "rms",
) -> float:
    """``sqrt(p) * norm / n * sqrt(sum_j m_j X_j^2 / rho_j^2)``: an upper bound on the complexity.

    ``m_j = sum_i membership_ij``. ``X_j`` is the root mean square of the feature norms of expert
    j's samples, or their maximum (the paper's, never smaller).

    Examples
    --------
    >>> rademacher_closed_form([[1.0], [1.0]], [[1, 0], [0, 1]], margins=[1, 0.5]).__round__(4)
    1.5811
    """
    lengths = feature_norms(X, intercept)
    member = check_membership(membership, len(lengths))
    rho = check_margins(margins, member.shape[1])
    check_positive("norm", norm, zero=True)
    energy = class_energy(lengths, member, rho, norms)
    return float(np.sqrt(member.shape[1] * energy) * norm / len(lengths))


def rademacher_monte_carlo(
    X: Any,
    membership: ArrayLike,
    margins: ArrayLike | None = None,
    norm: float = 1.0,
    intercept: bool = False,
    n_draws: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Estimate:
    """Monte-Carlo estimate of the complexity: the supremum is exact, the signs are drawn.

    Examples
    --------
    >>> one = rademacher_monte_carlo([[2.0]], [[1.0]], margins=[0.5], n_draws=10)
    >>> one
    Estimate(value=4.0, standard_error=0.0)
    """
    features = check_features(X)
    n = features.shape[0]
    member = check_membership(membership, n)
    rho = check_margins(margins, member.shape[1])
    check_positive("norm", norm, zero=True)
    if not (isinstance(n_draws, (int, np.integer)) and n_draws >= 2):
        raise invalid("n_draws", f"must be an integer of at least 2; got {n_draws!r}.")
    rng = np.random.default_rng(seed)
    p = member.shape[1]
    slope = member @ (1 / rho)
    if hasattr(features, "multiply"):
        weighted = features.multiply(slope[:, None]).T.tocsr()
    else:
        weighted = (features * slope[:, None]).T
    batch = max(1, min(n_draws, BLOCK // (n * p)))
    suprema = np.empty(n_draws)
    for start in range(0, n_draws, batch):
        count = min(batch, n_draws - start)
        signs = 2.0 * rng.integers(0, 2, (n, count * p)) - 1.0
        squared = np.square(weighted @ signs).sum(axis=0).reshape(count, p).sum(axis=1)
        if intercept:
            squared += np.square(slope @ signs).reshape(count, p).sum(axis=1)
        suprema[start : start + count] = np.sqrt(squared)
    suprema *= norm / n
    return Estimate(float(suprema.mean()), float(suprema.std(ddof=1) / np.sqrt(n_draws)))


def class_energy(lengths: FloatArray, membership: FloatArray, rho: FloatArray, norms: str) -> float:
    """``sum_j m_j X_j^2 / rho_j^2``."""
    check_option("norms", norms, FEATURE_NORMS)
    squared = lengths[:, None] ** 2
    if norms == "rms":
        per_expert = (membership * squared).sum(axis=0)
    else:
        largest = np.where(membership > 0, squared, 0).max(axis=0)
        per_expert = membership.sum(axis=0) * largest
    return float((per_expert / rho**2).sum())


def check_features(X: Any) -> Any:
    """Return X as a finite float matrix with at least one row; sparse stays sparse."""
    sparse = hasattr(X, "multiply")
    if not sparse:
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise invalid("X", f"must hold numbers; got {error}.") from error
    if len(X.shape) != 2 or X.shape[0] == 0:
        raise invalid(
            "X", f"must have shape (n_samples, n_features) with at least one sample; got {X.shape}."
        )
    if not np.isfinite(X.data if sparse else X).all():
        raise invalid("X", "must be finite; got NaN or infinity. Impute or drop such rows.")
    return X


def check_membership(membership: ArrayLike, n_samples: int) -> FloatArray:
    """Return non-negative membership of shape (n_samples, n_experts) with row sums of at most 1."""
    array = float_matrix("membership", membership).astype(np.float64)
    if array.shape[0] != n_samples:
        raise invalid(
            "membership",
            f"must have shape (n_samples, n_experts) = ({n_samples}, {array.shape[1]}); "
            f"got {array.shape}.",
        )
    if not ((array >= 0).all() and (array.sum(axis=1) <= 1 + 1e-9).all()):
        raise invalid(
            "membership",
            "must be non-negative with row sums of at most 1. Use one-hot rows for "
            "labels, reward_distribution(rewards) for deferral.",
        )
    return array


def check_positive(name: str, value: float, zero: bool = False) -> float:
    """Return a finite number above 0, or at least 0 where zero is allowed."""
    if not (np.isfinite(value) and (value > 0 or (zero and value == 0))):
        rule = "non-negative" if zero else "positive"
        raise invalid(name, f"must be finite and {rule}; got {value!r}.")
    return float(value)

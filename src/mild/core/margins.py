"""Margins: uniform, from theory, and grids for tuning.

The margin rho_k of expert k is a positive number by which the MILD loss divides differences of scores
(``core.losses.mild_loss``). Experts that are rarely the best one get small margins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    check_costs,
    check_margins,
    check_number,
    float_vector,
    invalid,
)
from mild.core.costs import ALL_REWARDS, cheapest_labels, reward_distribution, unchecked_rewards
from mild.errors import InvalidInputError, check_option

COUNTS = ("reward", "best")
NORMS = ("none", "max", "rms")


def expert_mass(
    costs: ArrayLike, rewards: str = "others", counts: str = "reward", strength: float = 0.5
) -> FloatArray:
    """Return how many samples count for each expert: ``m_k`` in the bound behind ``theory_margins``.

    Parameters
    ----------
    costs : array of shape (n_samples, n_experts)
        Costs; NaN where an expert was never asked.
    rewards : {"others", "complement", "contrast", "baseline"}, default="others"
        Kind of the rewards, as in ``mild.core.rewards``.
    counts : {"reward", "best"}, default="reward"
        "reward" sums each expert's share of the rewards, ``sum over i of p(k | x_i)``. "best" counts how
        often expert k is cheapest; ties go to the lowest index.
    strength : float, default=0.5
        Strength of ``baseline`` rewards.

    Returns
    -------
    mass : array of shape (n_experts,)
        Masses; each sample contributes at most 1 in total.

    Examples
    --------
    >>> expert_mass([[0, 1], [0, 1], [1, 0]], counts="best")
    array([2., 1.])
    """
    check_option("counts", counts, COUNTS)
    check_option("rewards", rewards, ALL_REWARDS)
    return membership(check_costs(costs), rewards, counts, None, strength).sum(axis=0)


def squared_norms(X: Any) -> FloatArray:
    """Return the squared Euclidean norm (n_samples,) of each row of an array or a sparse matrix."""
    if hasattr(X, "multiply"):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).reshape(-1)
    # Not np.square(X), which would copy X.
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def membership(
    costs: FloatArray,
    rewards: str,
    counts: str,
    scale: float | None = None,
    strength: float = 0.5,
    means: FloatArray | None = None,
) -> FloatArray:
    """Return the weight (n_samples, n_experts) with which each sample counts for each expert.

    With ``counts="reward"`` it is the distribution of the rewards, of the kind ``rewards``. With
    ``counts="best"`` a sample counts only for its cheapest expert, ``cheapest_labels(costs, means)``.
    """
    if counts == "reward":
        distribution = reward_distribution(unchecked_rewards(costs, rewards, scale, strength))
        return distribution.astype(np.float64)
    weights = np.zeros(costs.shape)
    weights[np.arange(len(costs)), cheapest_labels(costs, means)] = 1
    return weights


def uniform_margins(n_experts: int, total: float | None = None) -> FloatArray:
    """Return equal margins (n_experts,) that sum to ``total``, by default the number of experts."""
    return np.full(n_experts, _checked_total(total, n_experts) / n_experts)


def theory_margins(
    mass: ArrayLike,
    norms: ArrayLike | None = None,
    total: float | None = None,
    share_below: float = 0.0,
) -> FloatArray:
    """Return the margins that minimise the complexity term of the paper's margin bound (section 4.2).

    ``rho_k`` is proportional to ``(m_k * X_k^2)^(1/3)``, and the margins sum to ``total``.

    Parameters
    ----------
    mass : array of shape (n_experts,)
        Non-negative masses ``m_k``, as ``expert_mass`` gives them. 0 counts as one sample, or as the
        smallest positive mass if that is less.
    norms : array of shape (n_experts,), default=None
        Positive feature norms ``X_k``. None takes all as equal.
    total : float, default=None
        Sum of the margins. None takes the number of experts, so that the mean margin is 1.
    share_below : float, default=0.0
        Experts with less than this share of the mass share one margin, that of their mean mass.

    Returns
    -------
    margins : array of shape (n_experts,)
        Positive margins.

    Examples
    --------
    >>> theory_margins([8, 1])
    array([1.33333333, 0.66666667])
    """
    m = float_vector("mass", mass, nonzero=True)
    check_number("share_below", share_below, "lie in [0, 1]")
    # A margin must be positive also where the mass is 0.
    smallest_positive = m[m > 0].min()
    m = np.maximum(m, min(1.0, smallest_positive))
    is_rare = m < share_below * m.sum()
    if is_rare.any():
        m = np.where(is_rare, m[is_rare].mean(), m)
    if norms is not None:
        X = float_vector("norms", norms, m.size, positive=True)
        m = m * np.square(X)
    proportional = np.cbrt(m)
    return proportional * (_checked_total(total, m.size) / proportional.sum())


@dataclass(frozen=True)
class MarginGrid:
    """Margin vectors to try in a search; iterating over it gives arrays (n_experts,)."""

    margins: tuple[tuple[float, ...], ...]
    # Number of vectors that were left out, because an entry is not positive or there were too many.
    dropped: int = 0

    def __iter__(self) -> Iterator[FloatArray]:
        return (np.array(entry) for entry in self.margins)

    def __len__(self) -> int:
        return len(self.margins)


def ratio_grid(
    center: ArrayLike, factors: ArrayLike = (0.5, 1.0, 2.0), limit: int = 81
) -> MarginGrid:
    """Return margin vectors around ``center`` with other ratios between the margins, and the same sum.

    The first margin is kept, each of the others is multiplied by one of the factors, in every combination,
    and the vector is scaled back to the sum of ``center``: for a linear router the scale is redundant with
    the regularisation. If that makes more than ``limit`` vectors, one margin is changed at a time.

    Parameters
    ----------
    center : array of shape (n_experts,)
        Positive margins to start from.
    factors : array, default=(0.5, 1.0, 2.0)
        Positive factors of the margins.
    limit : int, default=81
        Largest number of vectors; further ones are dropped.

    Returns
    -------
    grid : MarginGrid
        Distinct margin vectors, and the number of those that were dropped.

    Examples
    --------
    >>> grid = ratio_grid([1.0] * 8, limit=16)
    >>> len(grid), grid.dropped
    (16, 1)
    """
    if not (isinstance(limit, (int, np.integer)) and limit >= 1):
        raise InvalidInputError(
            f"max_margins (limit) must be an integer of at least 1; got {limit!r}.",
            parameter="limit",
        )
    center_margins = check_margins(center, np.asarray(center).size)
    checked_factors = check_margins(factors, np.asarray(factors).size)
    # By rounded logarithms of shares: a margin of 1e-13 differs from its half, whatever the sum is.
    vector_of_shares: dict[tuple[float, ...], tuple[float, ...]] = {}
    for factor_vector in _factor_vectors(checked_factors, center_margins.size, limit):
        vector = center_margins * factor_vector
        vector *= center_margins.sum() / vector.sum()
        log_shares = np.round(np.log(vector) - np.log(vector.sum()), 9)
        vector_of_shares.setdefault(tuple(log_shares.tolist()), tuple(vector.tolist()))
    vectors = tuple(vector_of_shares.values())
    return MarginGrid(vectors[:limit], dropped=max(0, len(vectors) - limit))


def _factor_vectors(factors: FloatArray, n_experts: int, limit: int) -> Iterator[FloatArray]:
    """Yield factors (n_experts,): all combinations, or beyond ``limit`` those that change one margin."""
    if len(factors) ** (n_experts - 1) <= limit:
        for combination in itertools.product(factors, repeat=n_experts - 1):
            yield np.array((1.0, *combination))
        return
    yield np.ones(n_experts)
    for expert in range(n_experts):
        for factor in factors:
            if factor != 1:
                changed = np.ones(n_experts)
                changed[expert] = factor
                yield changed


def paper_grid(center: ArrayLike, step: float = 1.0, radius: float = 5.0) -> MarginGrid:
    """Return the paper's grid: ``[rho* - radius, rho* + radius]`` in steps of ``step`` for every expert.

    Unlike in the paper, vectors with entries that are not positive are dropped.
    """
    base = check_margins(center, np.asarray(center).size)
    if not (step > 0 and radius >= 0):
        raise invalid("step", f"must be positive and radius non-negative; got {step} and {radius}.")
    # 0.3 / 0.1 is slightly below 3, but the end point belongs to the grid.
    reach = np.floor(radius / step + 1e-9)
    offsets = step * np.arange(-reach, reach + 1)
    axes = []
    for margin in base:
        candidates = margin + offsets
        axes.append(candidates[candidates > 0].tolist())
    size = math.prod(map(len, axes))
    if size > 1_000_000:
        raise InvalidInputError(
            f"the paper's grid must have at most 1,000,000 vectors; got {size:,} for {base.size} "
            f"experts. Use a larger step, or ratio_grid."
        )
    vectors = tuple(itertools.product(*axes))
    return MarginGrid(vectors, dropped=len(offsets) ** base.size - len(vectors))


def _checked_total(total: float | None, n_experts: int) -> float:
    """Return the sum that margins are scaled to, by default the number of experts."""
    if total is None:
        return float(n_experts)
    if not (np.isfinite(float(total)) and float(total) > 0):
        raise invalid("total", f"must be positive and finite; got {total}.")
    return float(total)

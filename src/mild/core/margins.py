"""Margins: uniform, from theory, grids for tuning, and groups of experts that share one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mild.core.arrays import (
    FloatArray,
    IntArray,
    check_costs,
    check_margins,
    check_number,
    float_vector,
    invalid,
)
from mild.core.costs import ALL_REWARDS, label_of, reward_distribution, rewards_of
from mild.errors import InvalidInputError, check_option

COUNTS = ("reward", "best")
NORMS = ("none", "max", "rms")


def expert_mass(
    costs: ArrayLike, rewards: str = "others", counts: str = "reward", strength: float = 0.5
) -> FloatArray:
    """Mass of each expert, in samples: the ``m_k`` of the margin bound.

    Parameters
    ----------
    costs : (n_samples, n_experts) array
    rewards : kind of the rewards, as in ``mild.rewards``
    counts : "reward": ``sum over i of p(k | x_i)``; "best": how often expert k is cheapest, ties to
        the lowest index
    strength : strength of ``baseline`` rewards

    Returns
    -------
    (n_experts,) array

    Examples
    --------
    >>> expert_mass([[0, 1], [0, 1], [1, 0]], counts="best")
    array([2., 1.])
    """
    check_option("counts", counts, COUNTS)
    check_option("rewards", rewards, ALL_REWARDS)
    return membership(check_costs(costs), rewards, counts, None, strength).sum(axis=0)


def squared_norms(X: Any) -> FloatArray:
    """Squared Euclidean norm of each row, (n_samples,), of an array or a sparse matrix."""
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
    """Weight (n_samples, n_experts) with which each sample counts for each expert.

    With ``counts="best"`` a sample counts for its ``label_of`` these ``means``.
    """
    if counts == "reward":
        made = rewards_of(costs, rewards, scale, strength)
        return reward_distribution(made).astype(np.float64)
    result = np.zeros(costs.shape)
    result[np.arange(len(costs)), label_of(costs, means)] = 1
    return result


def uniform_margins(n_experts: int, total: float | None = None) -> FloatArray:
    """All margins equal, summing to ``total`` (default: the number of experts)."""
    total = _total(total, n_experts)
    return np.full(n_experts, total / n_experts)


def theory_margins(
    mass: ArrayLike,
    norms: ArrayLike | None = None,
    total: float | None = None,
    share_below: float = 0.0,
) -> FloatArray:
    """Margins that minimise the complexity term of the bound for a fixed sum.

    ``rho_k`` proportional to ``(m_k * X_k^2)^(1/3)``, summing to ``total`` (paper, section 4.2).

    Parameters
    ----------
    mass : (n_experts,) non-negative; 0 counts as one sample, or as the smallest mass if that is less
    norms : (n_experts,) positive, optional: feature norms ``X_k``
    total : sum of the margins; by default the number of experts, so that the mean is 1
    share_below : experts with less than this share of the mass get the margin of their mean mass

    Returns
    -------
    (n_experts,) array of positive margins

    Examples
    --------
    >>> theory_margins([8, 1])
    array([1.33333333, 0.66666667])
    """
    weights = float_vector("mass", mass, nonzero=True)
    check_number("share_below", share_below, "lie in [0, 1]")
    weights = np.maximum(weights, min(1.0, weights[weights > 0].min()))
    small = weights < share_below * weights.sum()
    if small.any():
        weights = np.where(small, weights[small].mean(), weights)
    if norms is not None:
        weights = weights * np.square(float_vector("norms", norms, weights.size, positive=True))
    raw = np.cbrt(weights)
    return raw * (_total(total, weights.size) / raw.sum())


@dataclass(frozen=True)
class MarginGrid:
    """Margin vectors to try; ``dropped`` counts those left out (not positive, or beyond the limit)."""

    margins: tuple[tuple[float, ...], ...]
    dropped: int = 0

    def __iter__(self) -> Iterator[FloatArray]:
        return (np.array(entry) for entry in self.margins)

    def __len__(self) -> int:
        return len(self.margins)


def ratio_grid(
    center: ArrayLike, factors: ArrayLike = (0.5, 1.0, 2.0), limit: int = 81
) -> MarginGrid:
    """Neighbours of ``center`` in the p - 1 ratios, the sum kept.

    The first margin stays, every other is multiplied by each factor, and the vector is scaled back to
    its sum: for a linear router the scale is redundant with the regularisation. Beyond ``limit``
    vectors one margin is changed at a time, and the last ones are dropped if these are still too many.

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
    base = check_margins(center, np.asarray(center).size)
    steps = check_margins(factors, np.asarray(factors).size)
    p = base.size
    if len(steps) ** (p - 1) <= limit:
        moves = [np.array((1.0, *combo)) for combo in itertools.product(steps, repeat=p - 1)]
    else:
        one_moved = [np.where(row, step, 1.0) for row in np.eye(p) for step in steps if step != 1]
        moves = [np.ones(p), *one_moved]
    seen: dict[tuple[float, ...], tuple[float, ...]] = {}
    for move in moves:
        vector = base * move
        vector *= base.sum() / vector.sum()
        # Logarithms of shares: a margin of 1e-13 differs from its half, whatever the sum is.
        key = np.round(np.log(vector) - np.log(vector.sum()), 9)
        seen.setdefault(tuple(key.tolist()), tuple(vector.tolist()))
    return MarginGrid(tuple(seen.values())[:limit], dropped=max(0, len(seen) - limit))


def paper_grid(center: ArrayLike, step: float = 1.0, radius: float = 5.0) -> MarginGrid:
    """The paper's grid: ``step`` on ``[rho* - radius, rho* + radius]`` for every expert.

    Departs from the paper: vectors with entries that are not positive are dropped.
    """
    base = check_margins(center, np.asarray(center).size)
    if not (step > 0 and radius >= 0):
        raise invalid("step", f"must be positive and radius non-negative; got {step} and {radius}.")
    # 0.3 / 0.1 is slightly below 3: the end point belongs to the grid.
    reach = np.floor(radius / step + 1e-9)
    offsets = step * np.arange(-reach, reach + 1)
    kept = [(value + offsets)[value + offsets > 0] for value in base]
    size = math.prod(map(len, kept))
    if size > 1_000_000:
        raise InvalidInputError(
            f"the paper's grid must have at most 1,000,000 vectors; got {size:,} for {base.size} "
            f"experts. Use a larger step, or ratio_grid."
        )
    vectors = tuple(itertools.product(*(axis.tolist() for axis in kept)))
    return MarginGrid(vectors, dropped=len(offsets) ** base.size - len(vectors))


def _total(total: float | None, n_experts: int) -> float:
    value = float(n_experts) if total is None else float(total)
    if not (np.isfinite(value) and value > 0):
        raise invalid("total", f"must be positive and finite; got {total}.")
    return value


class MarginGroup(NamedTuple):
    """Experts that share one margin."""

    margin: float
    members: IntArray


class Anchors(NamedTuple):
    """A of G margins: their indices (A,), one over each (A,), and weights (G, A), float64, with

        exp(-x / rho_g) = sum_a weights[g, a] * exp(-x / rho_a)    for every x >= 0

    to about the precision of the dtype. A grows with the logarithm of the ratio of the largest margin to
    the smallest, not with G: 11 for a ratio of 4 in single precision, 23 for a ratio of 100, and under
    twice as many in double precision.
    """

    members: IntArray
    inverse: FloatArray
    weights: FloatArray


def margin_groups(margins: FloatArray) -> list[MarginGroup]:
    """Distinct margins in rising order, each with the experts that have it."""
    values, inverse = np.unique(margins, return_inverse=True)
    return [
        MarginGroup(float(value), np.flatnonzero(inverse == g)) for g, value in enumerate(values)
    ]


def group_sums(values: FloatArray, groups: list[MarginGroup]) -> FloatArray:
    """Values (..., p, m) of experts, summed over the experts of each group: (..., G, m)."""
    first = values[..., [group.members[0] for group in groups], :]
    for g, group in enumerate(groups):
        if group.members.size > 1:
            first[..., g, :] = values[..., group.members, :].sum(axis=-2)
    return first


# Fewer margins than this are never worth it; nor are anchors above this share of the margins.
FEWEST = 16
WORTH = 0.6
# Ratio of the largest margin to the smallest up to which the grid is dense enough.
WIDEST = 1e4


def anchors(groups: list[MarginGroup], dtype: DTypeLike) -> Anchors | None:
    """Anchors of distinct margins for numbers of ``dtype``; None where they would not save work.

    Examples
    --------
    >>> groups = margin_groups(np.linspace(0.5, 2, 100))
    >>> few = anchors(groups, np.float32)
    >>> few.weights.shape
    (100, 11)
    >>> guess = few.weights @ np.exp(-0.7 * few.inverse)
    >>> bool(np.abs(guess - [np.exp(-0.7 / group.margin) for group in groups]).max() < 1e-7)
    True
    """
    if len(groups) < FEWEST or groups[0].margin * WIDEST < groups[-1].margin:
        return None
    return _choose_anchors(tuple(group.margin for group in groups), np.dtype(dtype).itemsize <= 4)


@lru_cache(maxsize=32)
def _choose_anchors(margins: tuple[float, ...], single: bool) -> Anchors | None:
    """Pivoted orthogonalisation over a grid of x: the worst-approximated margin becomes an anchor."""
    accuracy = 1e-8 if single else 1e-14
    steep = margins[0] / np.array(margins)
    most = int(WORTH * steep.size)
    x = np.append(0, np.geomspace(1e-3, -1.2 * np.log(accuracy) / steep[-1], 300))
    table = np.exp(-np.outer(x, steep))
    left = table.copy()
    base = np.empty((x.size, most))
    members: list[int] = []
    while np.abs(left).max() > accuracy:
        size = len(members)
        if size == most:
            return None
        members.append(int(np.square(left).sum(axis=0).argmax()))
        new = left[:, members[-1]].copy()
        new -= base[:, :size] @ (base[:, :size].T @ new)
        base[:, size] = new / np.linalg.norm(new)
        left -= np.outer(base[:, size], base[:, size] @ left)
    base = base[:, : len(members)]
    weights = np.linalg.solve(base.T @ table[:, members], base.T @ table).T
    weights[members] = np.eye(len(members))
    if np.abs(table[:, members] @ weights.T - table).max() > 10 * accuracy:
        return None
    return Anchors(np.array(members), 1 / np.array(margins)[members], weights)

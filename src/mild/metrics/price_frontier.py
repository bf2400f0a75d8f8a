"""The cost-quality frontier: what a router's estimates buy at every weight of the price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, float_matrix
from mild.errors import InvalidInputError
from mild.metrics.rows import known_rows, number_vector
from mild.metrics.shares import expert_shares

__all__ = ["FrontierPoint", "frontier", "pareto"]


@dataclass(frozen=True, eq=False)
class FrontierPoint:
    """One price weight: what was lost, what was paid, who was asked.

    Attributes
    ----------
    weight : the price weight, in errors per unit of price
    error : mean error of the chosen experts
    price : mean price of the chosen experts
    shares : (n_experts,) share of the rows sent to each expert
    """

    weight: float
    error: float
    price: float
    shares: FloatArray


def frontier(
    expected_errors: ArrayLike,
    expected_prices: ArrayLike,
    errors: ArrayLike,
    prices: ArrayLike,
    weights: ArrayLike,
    missing: str = "error",
) -> tuple[FrontierPoint, ...]:
    """Mean error and mean price of one router's estimates, one point per price weight.

    At weight w each row goes to ``argmin_k expected_errors_ik + w * expected_prices_ik``, ties to
    the highest index (a router's rule); the point holds the means of ``errors`` and ``prices``.

    Parameters
    ----------
    expected_errors : (n_samples, n_experts) array, what the router expects
    expected_prices : (n_samples, n_experts) array, or (n_experts,) when the same for all rows
    errors : (n_samples, n_experts) array, what happened; NaN where an expert was never asked
    prices : (n_samples, n_experts) or (n_experts,) array, what was paid; NaN as above
    weights : (n_weights,) array of non-negative numbers
    missing : "error" or "skip", as in ``deferral_loss``

    Returns
    -------
    tuple of FrontierPoint, in the order of ``weights``

    Examples
    --------
    >>> errors = [[0.0, 1.0], [0.0, 0.0]]
    >>> for point in frontier(errors, [3.0, 1.0], errors, [3.0, 1.0], [0, 0.25, 1]):
    ...     print(point.weight, point.error, point.price, point.shares.tolist())
    0.0 0.0 2.0 [0.5, 0.5]
    0.25 0.0 2.0 [0.5, 0.5]
    1.0 0.5 1.0 [0.0, 1.0]
    """
    guess = _matrix("expected_errors", expected_errors, None, may_miss=False)
    shape = guess.shape
    if shape[0] == 0:
        raise InvalidInputError("expected_errors must have at least one row; got 0.")
    guess_price = _matrix("expected_prices", expected_prices, shape, may_miss=False)
    error = _matrix("errors", errors, shape, may_miss=True)
    price = _matrix("prices", prices, shape, may_miss=True)
    grid = number_vector("weights", weights)
    if (grid < 0).any():
        raise InvalidInputError(f"weights must be non-negative; got {grid.min():g}.")
    rows = np.arange(shape[0])
    total = np.empty(shape)
    points = []
    for weight in grid:
        np.multiply(guess_price, weight, out=total)
        total += guess
        chosen = shape[1] - 1 - np.argmin(total[:, ::-1], axis=1)
        lost, paid = error[rows, chosen], price[rows, chosen]
        known = known_rows(lost + paid, missing)
        points.append(
            FrontierPoint(
                weight=float(weight),
                error=float(lost[known].mean()),
                price=float(paid[known].mean()),
                shares=expert_shares(chosen, shape[1]),
            )
        )
    return tuple(points)


def pareto(points: Iterable[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """The efficient points, by rising price: nothing given is both no dearer and no worse.

    Points of several routers may be given together. Of points that agree in error and price the
    first is kept.

    Examples
    --------
    >>> shares = np.array([1.0])
    >>> cheap, dear = FrontierPoint(1, 0.2, 1.0, shares), FrontierPoint(0, 0.1, 3.0, shares)
    >>> wasteful = FrontierPoint(0.5, 0.2, 2.0, shares)
    >>> [point.price for point in pareto([dear, wasteful, cheap])]
    [1.0, 3.0]
    """
    efficient: list[FrontierPoint] = []
    for point in sorted(points, key=lambda point: (point.price, point.error)):
        if not efficient or point.error < efficient[-1].error:
            efficient.append(point)
    return tuple(efficient)


def _matrix(
    name: str, values: ArrayLike, shape: tuple[int, ...] | None, may_miss: bool
) -> FloatArray:
    """Return ``values`` as float64 of ``shape``; a vector, one value per expert, is broadcast."""
    one_row = shape is not None and np.ndim(values) == 1
    array = float_matrix(name, np.asarray(values)[None] if one_row else values)
    array = array.astype(np.float64, copy=False)
    if shape is not None:
        rule = (1, shape[1]) if one_row else shape
        if array.shape != rule:
            got = array.shape[1:] if one_row else array.shape
            raise InvalidInputError(
                f"{name} must have shape (n_samples, n_experts) = {shape}; got {got}."
            )
    bad = np.isinf(array) if may_miss else ~np.isfinite(array)
    if bad.any():
        row, expert = np.argwhere(bad)[0]
        known = ", or NaN where an expert was never asked" if may_miss else ""
        raise InvalidInputError(
            f"{name} must be finite{known}; got {array[row, expert]} in row {row}, expert {expert}."
        )
    return array if shape is None else np.broadcast_to(array, shape)

"""Quality against price: the trade-off curve, the frontier, and RouteLLM's curve for two experts.

A router that estimates error and price of every expert can be set to any exchange rate between the two. The
curves here show what each setting does: its mean error and its mean price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    IntArray,
    check_entries,
    check_number,
    float_matrix,
    invalid,
)
from mild.core.costs import cheapest_expected
from mild.core.rounding import tie_ranks
from mild.metrics.routing import expert_shares
from mild.metrics.rows import known_rows, number_vector


def prices_unused(prices: str) -> str:
    """Return a remark for users whose loss leaves out prices; ``prices`` is a sentence about these."""
    return (
        f"Dollars are not part of the loss. {prices} To save dollars, tune with a target, such as "
        "keep_quality=1.0 for the quality of the best expert, or count them in the loss with "
        "price_weight=NUMBER."
    )


def tradeoff_choices(
    expected_errors: FloatArray,
    expected_prices: FloatArray,
    weights: ArrayLike,
    ranks: IntArray | None = None,
) -> IntArray:
    """Return the expert with the least expected error plus t times expected price, for m weights t.

    The indices are (n_samples, m). Ties are decided as by ``cheapest_expected``, with the same ``ranks``.

    >>> tradeoff_choices(np.array([[0.1, 0.4]]), np.array([[2.0, 1.0]]), [0.0, 1.0])
    array([[0, 1]])
    """
    weights = np.asarray(weights)
    choices = np.empty((len(expected_errors), len(weights)), np.intp)
    for column, t in enumerate(weights):
        choices[:, column] = cheapest_expected(expected_errors + t * expected_prices, ranks)
    return choices


@dataclass(frozen=True, eq=False)
class FrontierPoint:
    """What a router does at one price weight.

    Attributes
    ----------
    weight : float
        The price weight, in errors per unit of price.
    error, price : float
        Mean error and mean price of the chosen experts.
    shares : array of shape (n_experts,)
        Share of the rows that each expert gets.
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
    """Return the mean error and the mean price of a router at each of several price weights.

    At weight w row i goes to the expert ``argmin_k expected_errors_ik + w * expected_prices_ik``, with ties
    to the highest index. The point of w holds the means of ``errors`` and ``prices`` of these experts.

    Parameters
    ----------
    expected_errors : array of shape (n_samples, n_experts)
        Estimates of the router.
    expected_prices : array of shape (n_samples, n_experts)
        Estimates of the router; (n_experts,) if they are the same for all rows.
    errors : array of shape (n_samples, n_experts)
        Actual errors; NaN where an expert was never asked.
    prices : array of shape (n_samples, n_experts)
        Actual prices; NaN where an expert was never asked; (n_experts,) if they are the same for all rows.
    weights : array of shape (n_weights,)
        Non-negative price weights, in errors per unit of price.
    missing : {"error", "skip"}, default="error"
        What to do with rows whose chosen expert was never asked: refuse them, or leave them out of the
        means.

    Returns
    -------
    points : tuple of FrontierPoint
        One point per weight, in their order.

    Examples
    --------
    >>> errors = [[0.0, 1.0], [0.0, 0.0]]
    >>> for point in frontier(errors, [3.0, 1.0], errors, [3.0, 1.0], [0, 0.25, 1]):
    ...     print(point.weight, point.error, point.price, point.shares.tolist())
    0.0 0.0 2.0 [0.5, 0.5]
    0.25 0.0 2.0 [0.5, 0.5]
    1.0 0.5 1.0 [0.0, 1.0]
    """
    error_estimates = float_matrix("expected_errors", expected_errors)
    error_estimates = error_estimates.astype(np.float64, copy=False)
    _check_finite("expected_errors", error_estimates)
    n_samples, n_experts = error_estimates.shape
    if n_samples == 0:
        raise invalid("expected_errors", "must have at least one row; got 0.")
    shape = (n_samples, n_experts)
    price_estimates = _broadcast_matrix("expected_prices", expected_prices, shape)
    _check_finite("expected_prices", price_estimates)
    actual_errors = _broadcast_matrix("errors", errors, shape)
    _check_finite_or_nan("errors", actual_errors)
    actual_prices = _broadcast_matrix("prices", prices, shape)
    _check_finite_or_nan("prices", actual_prices)
    price_weights = number_vector("weights", weights)
    if (price_weights < 0).any():
        raise invalid("weights", f"must be non-negative; got {price_weights.min():g}.")
    rows = np.arange(n_samples)
    points = []
    for weight in price_weights:
        chosen = tradeoff_choices(error_estimates, price_estimates, [weight])[:, 0]
        chosen_errors = actual_errors[rows, chosen]
        chosen_prices = actual_prices[rows, chosen]
        averaged = known_rows(chosen_errors + chosen_prices, missing)
        point = FrontierPoint(
            weight=float(weight),
            error=float(chosen_errors[averaged].mean()),
            price=float(chosen_prices[averaged].mean()),
            shares=expert_shares(chosen, n_experts),
        )
        points.append(point)
    return tuple(points)


def _broadcast_matrix(name: str, values: ArrayLike, shape: tuple[int, int]) -> FloatArray:
    """Return values as float64 of a shape (n_samples, n_experts), to which (n_experts,) is broadcast."""
    if np.ndim(values) == 1:
        array = float_matrix(name, np.asarray(values)[None], (1, shape[1]))
    else:
        array = float_matrix(name, values, shape)
    return np.broadcast_to(array.astype(np.float64, copy=False), shape)


def _check_finite(name: str, array: FloatArray) -> None:
    check_entries(name, array, ~np.isfinite(array), "be finite")


def _check_finite_or_nan(name: str, array: FloatArray) -> None:
    rule = "be finite, or NaN where an expert was never asked"
    check_entries(name, array, np.isinf(array), rule)


@dataclass(frozen=True, eq=False)
class TwoExpertCurve:
    """Mean quality against the share of rows that go to the stronger of two experts.

    These are the metrics of RouteLLM (Ong et al. 2024, arXiv:2406.18665), on the exact curve instead
    of a grid of ten shares. Between its points the curve is linear.

    Attributes
    ----------
    strong_share : array of shape (m,)
        Shares of the rows, rising from 0 to 1.
    quality : array of shape (m,)
        Mean quality over all rows at each share.
    """

    strong_share: FloatArray
    quality: FloatArray

    @property
    def pgr(self) -> FloatArray:
        """Performance gap recovered: ``(q - q_weak) / (q_strong - q_weak)`` at each threshold."""
        return (self.quality - self.quality[0]) / (self.quality[-1] - self.quality[0])

    @property
    def auc(self) -> float:
        """Area under ``quality`` over ``strong_share``, which is the mean quality over all shares."""
        return _area(self.strong_share, self.quality)

    @property
    def apgr(self) -> float:
        """Average performance gap recovered: area under ``pgr``; 0.5 for a random preference."""
        return _area(self.strong_share, self.pgr)

    def cpt(self, level: float) -> float:
        """Return the call-performance threshold: the smallest strong share with ``pgr >= level``.

        RouteLLM reports levels 0.2, 0.5 and 0.8. Between points the share is interpolated.
        """
        check_number("level", level, "lie in [0, 1]")
        pgr = self.pgr
        after = int(np.argmax(pgr >= level))
        if after == 0:
            return float(self.strong_share[0])
        before = after - 1
        fraction = (level - pgr[before]) / (pgr[after] - pgr[before])
        gap = self.strong_share[after] - self.strong_share[before]
        return float(self.strong_share[before] + fraction * gap)


def two_expert_curve(
    preference_for_strong: ArrayLike, quality_weak: ArrayLike, quality_strong: ArrayLike
) -> TwoExpertCurve:
    """Return the mean quality at every share of rows that a router sends to the stronger of two experts.

    Row i goes to the strong expert if its preference is at least a threshold t::

        quality(t) = mean_i of (quality_strong_i if preference_i >= t else quality_weak_i)

    The curve has a point for every t. Only the order of the preferences matters; rows whose preferences
    are equal, or differ only by rounding, always go to the same expert.

    Parameters
    ----------
    preference_for_strong : array of shape (n_samples,)
        Larger where the strong expert is needed more.
    quality_weak, quality_strong : arrays of shape (n_samples,)
        Quality of the answer of each expert; higher is better.

    Returns
    -------
    curve : TwoExpertCurve

    Examples
    --------
    >>> curve = two_expert_curve([0.9, 0.5, 0.1, 0.1], [0, 0, 1, 1], [1, 1, 1, 1])
    >>> curve.strong_share, curve.quality
    (array([0.  , 0.25, 0.5 , 1.  ]), array([0.5 , 0.75, 1.  , 1.  ]))
    >>> curve.apgr, curve.auc, curve.cpt(0.5)
    (0.75, 0.875, 0.25)
    """
    weak = number_vector("quality_weak", quality_weak)
    strong = number_vector("quality_strong", quality_strong, len(weak))
    preference = np.asarray(preference_for_strong, dtype=np.float64)
    if preference.shape != weak.shape or np.isnan(preference).any():
        raise invalid(
            "preference_for_strong",
            f"must have shape (n_samples,) = {weak.shape} and no NaN; "
            f"got shape {preference.shape} with {np.isnan(preference).sum()} NaN.",
        )
    if len(weak) == 0:
        raise invalid("quality_weak", "must have at least one row; got 0.")
    if not strong.mean() > weak.mean():
        raise invalid(
            "quality_strong",
            f"must be higher than quality_weak on average; got {strong.mean():g} "
            f"and {weak.mean():g}. Swap the experts, or always ask the weak one.",
        )
    ranks = tie_ranks(-preference)
    order = np.argsort(ranks, kind="stable")
    sorted_ranks = ranks[order]
    is_last_of_tie = np.append(sorted_ranks[1:] != sorted_ranks[:-1], True)
    # Numbers of rows that can be sent to the strong expert without separating ties.
    n_strong = np.append(0, np.flatnonzero(is_last_of_tie) + 1)
    # Entry j: gain in total quality if the first j rows go to the strong expert.
    total_gain = np.append(0.0, np.cumsum((strong - weak)[order]))
    quality = weak.mean() + total_gain[n_strong] / len(weak)
    # Cumulative sums round, but the curve must end exactly at the quality of the strong expert.
    quality[-1] = strong.mean()
    return TwoExpertCurve(n_strong / len(weak), quality)


def _area(x: FloatArray, y: FloatArray) -> float:
    """Return the area under the points (x, y) by the trapezoidal rule."""
    # numpy 1.26 has no np.trapezoid.
    return float(np.diff(x) @ (y[1:] + y[:-1]) / 2)

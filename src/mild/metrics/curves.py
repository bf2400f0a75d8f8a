"""Quality against price: the trade-off curve, the frontier, and RouteLLM's curve for two experts."""

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
    """Sentences for a loss that leaves out known prices; ``prices`` is the one that says what these are."""
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
    """Expert (n_samples, m) of least expected error plus t times expected price, for each of m weights t.

    Ties are those of ``cheapest_expected``.

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
    """Mean error and price of the chosen experts, and shares (n_experts,), at one price weight."""

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
    weights : (n_weights,) non-negative price weights, in errors per unit of price
    missing : "error" or "skip", as in ``deferral_loss``

    Examples
    --------
    >>> errors = [[0.0, 1.0], [0.0, 0.0]]
    >>> for point in frontier(errors, [3.0, 1.0], errors, [3.0, 1.0], [0, 0.25, 1]):
    ...     print(point.weight, point.error, point.price, point.shares.tolist())
    0.0 0.0 2.0 [0.5, 0.5]
    0.25 0.0 2.0 [0.5, 0.5]
    1.0 0.5 1.0 [0.0, 1.0]
    """
    guess = _matrix("expected_errors", expected_errors)
    shape = (len(guess), guess.shape[1])
    if shape[0] == 0:
        raise invalid("expected_errors", "must have at least one row; got 0.")
    guess_price = _matrix("expected_prices", expected_prices, shape)
    error = _matrix("errors", errors, shape, may_miss=True)
    price = _matrix("prices", prices, shape, may_miss=True)
    grid = number_vector("weights", weights)
    if (grid < 0).any():
        raise invalid("weights", f"must be non-negative; got {grid.min():g}.")
    rows = np.arange(shape[0])
    points = []
    for weight in grid:
        chosen = tradeoff_choices(guess, guess_price, [weight])[:, 0]
        lost, paid = error[rows, chosen], price[rows, chosen]
        known = known_rows(lost + paid, missing)
        means = float(lost[known].mean()), float(paid[known].mean())
        points.append(FrontierPoint(float(weight), *means, expert_shares(chosen, shape[1])))
    return tuple(points)


def _matrix(
    name: str, values: ArrayLike, shape: tuple[int, int] | None = None, may_miss: bool = False
) -> FloatArray:
    """Return ``values`` as float64 of ``shape``; a vector, one value per expert, is broadcast."""
    if shape is None:
        array = float_matrix(name, values)
    elif np.ndim(values) == 1:
        array = float_matrix(name, np.asarray(values)[None], (1, shape[1]))
    else:
        array = float_matrix(name, values, shape)
    bad = np.isinf(array) if may_miss else ~np.isfinite(array)
    known = ", or NaN where an expert was never asked" if may_miss else ""
    check_entries(name, array, bad, f"be finite{known}")
    array = array.astype(np.float64, copy=False)
    return array if shape is None else np.broadcast_to(array, shape)


@dataclass(frozen=True, eq=False)
class TwoExpertCurve:
    """Quality against the share of rows sent to the strong expert, linear between thresholds.

    These are the metrics of RouteLLM (Ong et al. 2024, arXiv:2406.18665), on the exact curve instead
    of a grid of ten shares. ``strong_share`` (m,) rises from 0 to 1; ``quality`` (m,) is the mean there.
    """

    strong_share: FloatArray
    quality: FloatArray

    @property
    def pgr(self) -> FloatArray:
        """Performance gap recovered: ``(q - q_weak) / (q_strong - q_weak)`` at each threshold."""
        return (self.quality - self.quality[0]) / (self.quality[-1] - self.quality[0])

    @property
    def auc(self) -> float:
        """Area under the quality over strong-call shares from 0 to 1."""
        return _area(self.strong_share, self.quality)

    @property
    def apgr(self) -> float:
        """Average performance gap recovered: area under ``pgr``; 0.5 for a random preference."""
        return _area(self.strong_share, self.pgr)

    def cpt(self, level: float) -> float:
        """Call-performance threshold: the smallest strong-call share with ``pgr >= level``.

        RouteLLM reports levels 0.2, 0.5 and 0.8. Between thresholds the share is interpolated.
        """
        check_number("level", level, "lie in [0, 1]")
        recovered = self.pgr
        reached = int(np.argmax(recovered >= level))
        if reached == 0:
            return float(self.strong_share[0])
        before = reached - 1
        part = (level - recovered[before]) / (recovered[reached] - recovered[before])
        step = self.strong_share[reached] - self.strong_share[before]
        return float(self.strong_share[before] + part * step)


def two_expert_curve(
    preference_for_strong: ArrayLike, quality_weak: ArrayLike, quality_strong: ArrayLike
) -> TwoExpertCurve:
    """Quality at every share of strong calls, as rows go to the strong expert by decreasing preference.

    ``quality(t) = mean_i of (quality_strong_i if preference_i >= t else quality_weak_i)`` for every
    threshold t. Only the order of the preferences matters; rows whose preferences are equal, or differ by
    rounding only, move together.

    Parameters
    ----------
    preference_for_strong : (n_samples,) array, larger where the strong expert is needed more
    quality_weak, quality_strong : (n_samples,) arrays, higher is better

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
    gain_by_rows = np.append(0.0, np.cumsum((strong - weak)[order]))
    quality = weak.mean() + gain_by_rows[n_strong] / len(weak)
    # Cumulative sums round, but the curve must end exactly at the quality of the strong expert.
    quality[-1] = strong.mean()
    return TwoExpertCurve(n_strong / len(weak), quality)


def _area(x: FloatArray, y: FloatArray) -> float:
    # numpy 1.26 has no np.trapezoid.
    return float(np.diff(x) @ (y[1:] + y[:-1]) / 2)

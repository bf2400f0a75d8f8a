"""Quality against price: the trade-off curve, and RouteLLM's curve for two experts.

A router that estimates error and price of every expert can be set to any exchange rate between the two. The
choices here are those of each setting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    IntArray,
    check_number,
    invalid,
)
from mild.core.costs import cheapest_expected
from mild.core.rounding import tie_ranks
from mild.metrics.rows import number_vector


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

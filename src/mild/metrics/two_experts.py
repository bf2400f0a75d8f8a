"""Two experts, one strong and dear, one weak and cheap: RouteLLM's metrics, on the exact curve.

RouteLLM (Ong et al., 2024, arXiv:2406.18665) reads these off a grid of ten strong-call shares; here
every threshold on the preference is a point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray
from mild.errors import InvalidInputError
from mild.metrics.rows import number_vector

__all__ = ["TwoExpertCurve", "two_expert_curve"]


@dataclass(frozen=True, eq=False)
class TwoExpertCurve:
    """Quality against the share of rows sent to the strong expert, straight between thresholds.

    Attributes
    ----------
    strong_share : (m,) rising from 0 to 1, one entry per threshold
    quality : (m,) mean quality there
    """

    strong_share: FloatArray
    quality: FloatArray

    @property
    def quality_weak(self) -> float:
        """Mean quality when every row goes to the weak expert."""
        return float(self.quality[0])

    @property
    def quality_strong(self) -> float:
        """Mean quality when every row goes to the strong expert."""
        return float(self.quality[-1])

    @property
    def pgr(self) -> FloatArray:
        """Performance gap recovered: ``(q - q_weak) / (q_strong - q_weak)`` at each threshold."""
        return (self.quality - self.quality_weak) / (self.quality_strong - self.quality_weak)

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

        RouteLLM reports levels 0.2, 0.5 and 0.8. Where a straight piece crosses the level, the
        share is read off at the crossing.

        Examples
        --------
        >>> curve = two_expert_curve([0.9, 0.5, 0.1, 0.2], [0, 0, 1, 1], [1, 1, 1, 1])
        >>> curve.cpt(0.5), curve.cpt(0.8)
        (0.25, 0.4)
        """
        if not 0 <= level <= 1:
            raise InvalidInputError(f"level must lie in [0, 1]; got {level}.")
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
    """Quality at every share of strong calls, rows sent to the strong expert by falling preference.

    ``quality(t) = mean_i of (quality_strong_i if preference_i >= t else quality_weak_i)`` for every
    threshold t. Rows of equal preference move together; the straight piece across them is what
    sending a random part of them gives. Only the order of the preference matters.

    Parameters
    ----------
    preference_for_strong : (n_samples,) array, larger where the strong expert is needed more
    quality_weak, quality_strong : (n_samples,) arrays, higher is better

    Examples
    --------
    >>> curve = two_expert_curve([0.9, 0.5, 0.1, 0.1], [0, 0, 1, 1], [1, 1, 1, 1])
    >>> curve.strong_share
    array([0.  , 0.25, 0.5 , 1.  ])
    >>> curve.quality
    array([0.5 , 0.75, 1.  , 1.  ])
    >>> curve.apgr, curve.auc
    (0.75, 0.875)
    """
    weak = number_vector("quality_weak", quality_weak)
    strong = number_vector("quality_strong", quality_strong, len(weak))
    preference = np.asarray(preference_for_strong, dtype=np.float64)
    if preference.shape != weak.shape:
        raise InvalidInputError(
            f"preference_for_strong must have shape (n_samples,) = {weak.shape}; "
            f"got {preference.shape}."
        )
    if np.isnan(preference).any():
        raise InvalidInputError(
            f"preference_for_strong must be known in every row; "
            f"got {np.isnan(preference).sum()} NaN."
        )
    n_samples = len(weak)
    if n_samples == 0:
        raise InvalidInputError("quality_weak must have at least one row; got 0.")
    if not strong.mean() > weak.mean():
        raise InvalidInputError(
            f"quality_strong must be higher than quality_weak on average; got {strong.mean():g} "
            f"and {weak.mean():g}. Swap the experts, or always ask the weak one."
        )
    order = np.argsort(-preference, kind="stable")
    ordered = preference[order]
    last_of_tie = np.append(ordered[1:] != ordered[:-1], True)
    sent = np.append(0, np.flatnonzero(last_of_tie) + 1)
    gain = np.append(0.0, np.cumsum((strong - weak)[order]))[sent]
    quality = weak.mean() + gain / n_samples
    # Exact at the end, so that pgr ends at 1 and every level is reached.
    quality[-1] = strong.mean()
    return TwoExpertCurve(sent / n_samples, quality)


def _area(x: FloatArray, y: FloatArray) -> float:
    # numpy 1.26 has no np.trapezoid.
    return float(np.diff(x) @ (y[1:] + y[:-1]) / 2)

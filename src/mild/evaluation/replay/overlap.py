"""Could the log have shown what the new router would do?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mild.core.arrays import FloatArray
from mild.evaluation.replay.estimates import Episodes

__all__ = ["Overlap", "measure_overlap"]


@dataclass(frozen=True)
class Overlap:
    """How much of the log speaks about the new router.

    Attributes
    ----------
    draws : number of draws
    agreement : share of the draws that the new router might have made, too
    effective : draws under the new router that would tell as much: ``(sum w)^2 / sum w^2``
    largest_share : share of the largest weight in their sum
    mean_weight, weight_error : mean of the weights, which must be 1 within its standard error
    unseen : expert -> share of the queries that the new router gives to it, although it was never drawn
    """

    draws: int
    agreement: float
    effective: float
    largest_share: float
    mean_weight: float
    weight_error: float
    unseen: dict[str, float]

    @property
    def weights_fit(self) -> bool:
        """Whether the mean weight may be 1; if not, the propensities are not the true ones."""
        return abs(self.mean_weight - 1) <= 4 * self.weight_error + 1e-9


def measure_overlap(episodes: Episodes, expert_names: Sequence[str]) -> Overlap:
    """Diagnostics of the weights."""
    weights = episodes.weights
    count = weights.size
    if count == 0:
        return Overlap(0, 0.0, 0.0, 0.0, 0.0, 0.0, {})
    total, squares = float(weights.sum()), float((weights**2).sum())
    shares = episodes.target.mean(axis=0)
    seen = set(episodes.chosen.tolist())
    unseen = {
        name: float(shares[place])
        for place, name in enumerate(expert_names)
        if shares[place] > 0 and place not in seen
    }
    return Overlap(
        draws=count,
        agreement=float((weights > 0).mean()),
        effective=total**2 / squares if squares else 0.0,
        largest_share=float(weights.max()) / total if total else 0.0,
        mean_weight=total / count,
        weight_error=_error(weights),
        unseen=unseen,
    )


def _error(weights: FloatArray) -> float:
    if weights.size < 2:
        return float("inf")
    return float(weights.std(ddof=1) / np.sqrt(weights.size))

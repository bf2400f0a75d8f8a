"""How far an input is from the training inputs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.policies.base import blocks

# Shares of the held-out inputs at which the score is stored.
LEVELS = np.linspace(0, 1, 201)
# An input that is farther than this share of the held-out inputs is novel.
NOVEL = 0.99


@dataclass(frozen=True, eq=False)
class Novelty:
    """Scores inputs by their distance to the training inputs, against inputs that were held out.

    The score is the sum of the distance to the nearest centre and, of texts with terms, the share of the
    terms that no training text has, each divided by its scale.
    """

    centres: FloatArray  # (n_centres, n_features) of clusters of training inputs
    scales: (
        FloatArray  # (2,) of the distance and of the share: their 99th percentiles when held out
    )
    score_quantiles: FloatArray  # (201,) of the score of held-out inputs, at LEVELS
    # (1, n_experts) mean costs, or (2, n_experts) mean errors and prices where they are separate heads
    means: FloatArray

    @cached_property
    def _half_norms(self) -> FloatArray:
        return np.asarray(0.5 * np.einsum("ij,ij->i", self.centres, self.centres))

    def scores(self, X: FloatArray, unseen: FloatArray) -> FloatArray:
        """Score (n,) of features (n, n_features) and shares (n,) of unseen terms."""
        distances = np.empty(len(X))
        for rows in blocks(X):
            part = X[rows]
            norms = np.einsum("ij,ij->i", part, part)
            nearest = (self._half_norms - part @ self.centres.T).min(axis=1)
            distances[rows] = np.sqrt(np.maximum(norms + 2 * nearest, 0))
        return distances / self.scales[0] + unseen / self.scales[1]

    def shares(self, scores: FloatArray) -> FloatArray:
        """Share (n,) of the held-out inputs with a smaller score."""
        return np.interp(scores, self.score_quantiles, LEVELS)

    def is_novel(self, scores: FloatArray) -> BoolArray:
        """Whether (n,) a score is beyond the 99th percentile of the held-out inputs."""
        return np.asarray(scores > np.interp(NOVEL, LEVELS, self.score_quantiles))

    def with_experts(self, experts: IntArray) -> Novelty:
        """The same for some of the experts, by index, or for all of them in another order."""
        return replace(self, means=self.means[:, experts])

    def tensors(self) -> dict[str, FloatArray]:
        """Arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

"""How far an input is from the training inputs, and what can be expected of the experts there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from mild.artifact.info import CostInfo
from mild.core.arrays import BoolArray, FloatArray
from mild.errors import UnsupportedError
from mild.policies import Policy
from mild.policies.base import blocks

# Shares of the held-out inputs at which the score is stored.
LEVELS = np.linspace(0, 1, 201)
# Expected costs begin to shrink at the first share, and are the means from the second, where an input is
# novel.
SHRINKS, NOVEL = 0.9, 0.99


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

    def shrinkage(self, scores: FloatArray) -> FloatArray:
        """How far (n,) expected costs go to the means: from 0 at the 90th percentile to 1 at the 99th."""
        start, end = np.interp((SHRINKS, NOVEL), LEVELS, self.score_quantiles)
        if end <= start:
            return np.asarray(scores > end, float)
        return np.clip((scores - start) / (end - start), 0.0, 1.0)

    def without(self, expert: int) -> Novelty:
        """The same with one expert removed."""
        return replace(self, means=np.delete(self.means, expert, axis=1))

    def tensors(self) -> dict[str, FloatArray]:
        """Arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Estimates:
    """What can be expected of p experts on n inputs: calibrated, and the means where an input is novel."""

    costs: FloatArray | None  # (n, p); None where the router has not learned them
    right: FloatArray | None  # (n, p) probability of a right answer; None where it is not known
    novelty: (
        FloatArray | None
    )  # (n,) share of the held-out inputs that are nearer to the training inputs
    novel: BoolArray | None  # (n,) whether that share is above 99 %


def estimate(
    policy: Policy,
    X: FloatArray,
    unseen: FloatArray,
    expert_names: Sequence[str],
    terms: CostInfo | None = None,
    known: Novelty | None = None,
) -> Estimates:
    """Estimates for features X (n, n_features) of texts with shares (n,) of unseen terms.

    ``terms`` are those of the cost that the policy was fitted with, ``known`` what it knows of novelty.
    """
    try:
        costs: FloatArray | None = policy.expected_costs(X)
    except UnsupportedError:
        costs = None
    errors = None
    if policy.has_errors:
        errors = policy.expected_errors(X)
    elif costs is not None and terms and not (terms.price_weight or terms.latency_weight):
        errors = costs - _betas(terms, expert_names)
    if known is None:
        return Estimates(costs, _right(errors), None, None)
    scores = known.scores(X, unseen)
    if costs is not None:
        means = known.means[0]
        prices = known.means[1] if len(known.means) > 1 else None
        if policy.has_errors:
            mean_errors, means = means, policy.costs_at_means(means, prices)
        else:
            if prices is not None:
                means = means + ((terms and terms.price_weight) or 0.0) * prices
            mean_errors = means - _betas(terms, expert_names)
        if errors is not None:
            errors = _shrunk(errors, mean_errors, known.shrinkage(scores))
        costs = _shrunk(costs, means, known.shrinkage(scores))
    return Estimates(costs, _right(errors), known.shares(scores), known.is_novel(scores))


def _betas(terms: CostInfo | None, names: Sequence[str]) -> FloatArray:
    betas = (terms and terms.beta) or {}
    return np.array([float(betas.get(name, 0.0)) for name in names])


def _shrunk(values: FloatArray, means: FloatArray, by: FloatArray) -> FloatArray:
    shrunk: FloatArray = values + by[:, None] * (means - values)
    return shrunk


def _right(errors: FloatArray | None) -> FloatArray | None:
    return None if errors is None else np.clip(1 - errors, 0.0, 1.0)

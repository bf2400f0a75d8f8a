"""Mean cost of another policy from what was logged under known probabilities.

An episode g is one draw: a request, or all requests of a pinned session, which follow the draw of its
first. It has ``n_g`` requests that cost ``C_g`` together; expert ``a_g`` was drawn with propensity ``p_g``,
and the new policy would have drawn it with probability ``pi(a_g)``. With ``w_g = pi(a_g) / p_g``, the mean
cost per request of the new policy is estimated by

    inverse propensity    sum_g w_g C_g / sum_g n_g
    self-normalised       sum_g w_g C_g / sum_g w_g n_g
    doubly robust         sum_g (sum_k pi(k) Q_kg + w_g (C_g - Q_{a_g} g)) / sum_g n_g

where ``Q_kg`` is what a model, fitted on other episodes, expects the episode to cost with expert k. The
first and the last are unbiased whenever the propensities are right and every expert that the new policy
draws could have been drawn, however poor the model; a good model takes the noise away.

Intervals come from the variance over episodes of the estimator's linear part, with Student's t. A few
large weights make that variance itself uncertain: the degrees of freedom are ``2 G / (kurtosis - 1)``,
those of a normal sample whose variance would be as uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from mild.core.arrays import FloatArray, IntArray
from mild.errors import InvalidInputError

__all__ = [
    "Episodes",
    "Estimate",
    "Overlap",
    "doubly_robust",
    "inverse_propensity",
    "logged_mean",
    "measure_overlap",
    "self_normalised",
]


@dataclass(frozen=True, eq=False)
class Episodes:
    """G draws and what followed.

    Attributes
    ----------
    chosen : (G,) index of the expert that was drawn; -1 for one that the new policy does not know
    propensity : (G,) probability in (0, 1] with which it was drawn
    target : (G, n_experts) probabilities of the new policy
    requests : (G,) number of requests
    costs : (G,) what they cost together
    """

    chosen: IntArray
    propensity: FloatArray
    target: FloatArray
    requests: FloatArray
    costs: FloatArray

    @property
    def weights(self) -> FloatArray:
        """(G,) how much more probable the draw is under the new policy."""
        return np.where(self.chosen >= 0, _pick(self.target, self.chosen), 0.0) / self.propensity


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate with its interval.

    Attributes
    ----------
    mean, low, high : estimate and limits
    standard_error : of the mean
    parts : (G,) linear part of the estimator, mean 0: estimates on the same episodes can be compared by it
    confidence : coverage aimed at
    """

    mean: float
    low: float
    high: float
    standard_error: float
    parts: FloatArray
    confidence: float

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two estimates on the same episodes."""
        return _estimate(self.mean - other.mean, self.parts - other.parts, self.confidence)


def inverse_propensity(episodes: Episodes, confidence: float = 0.95) -> Estimate:
    """Unbiased; noisy where the new policy prefers what was rarely drawn.

    Examples
    --------
    >>> drawn = Episodes(np.array([0, 1]), np.array([0.5, 0.5]), np.array([[1.0, 0.0]] * 2),
    ...                  np.ones(2), np.array([3.0, 7.0]))
    >>> inverse_propensity(drawn).mean
    3.0
    """
    return _ratio(episodes.weights * episodes.costs, episodes.requests, confidence)


def self_normalised(episodes: Episodes, confidence: float = 0.95) -> Estimate:
    """A weighted mean: slightly biased in small logs, never outside the costs that were seen."""
    weights = episodes.weights
    return _ratio(weights * episodes.costs, weights * episodes.requests, confidence)


def doubly_robust(episodes: Episodes, expected: FloatArray, confidence: float = 0.95) -> Estimate:
    """Unbiased as inverse propensity is, and less noisy the better the model.

    Parameters
    ----------
    episodes : the draws
    expected : (G, n_experts) costs of the episode with each expert, by a model fitted on other episodes
    """
    if expected.shape != episodes.target.shape:
        raise InvalidInputError(
            f"expected must have the shape of target, {episodes.target.shape}; got {expected.shape}."
        )
    model = (episodes.target * expected).sum(axis=1)
    error = episodes.costs - _pick(expected, episodes.chosen)
    # Of an expert that the new policy does not know there is no model, and its weight is 0.
    correction = np.where(episodes.chosen >= 0, episodes.weights * error, 0.0)
    return _ratio(model + correction, episodes.requests, confidence)


def logged_mean(episodes: Episodes, confidence: float = 0.95) -> Estimate:
    """What was paid."""
    return _ratio(episodes.costs, episodes.requests, confidence)


def _ratio(costs: FloatArray, requests: FloatArray, confidence: float) -> Estimate:
    """``sum(costs) / sum(requests)`` with its linear part."""
    scale = float(requests.mean()) if requests.size else 0.0
    if scale <= 0:
        return _estimate(float("nan"), np.full(requests.size, np.nan), confidence)
    mean = float(costs.mean()) / scale
    return _estimate(mean, (costs - mean * requests) / scale, confidence)


def _estimate(mean: float, parts: FloatArray, confidence: float) -> Estimate:
    count = parts.size
    if count < 2:
        return Estimate(mean, -np.inf, np.inf, np.inf, parts, confidence)
    squares = parts**2
    variance = float(squares.mean())
    error = float(np.sqrt(variance / (count - 1)))
    if error == 0:
        return Estimate(mean, mean, mean, 0.0, parts, confidence)
    kurtosis = float((squares**2).mean()) / variance**2
    freedom = max(2 * count / max(kurtosis - 1, 2 * count / (count - 1)), 1.0)
    reach = float(stdtrit(freedom, 0.5 + confidence / 2)) * error
    return Estimate(mean, mean - reach, mean + reach, error, parts, confidence)


def _pick(values: FloatArray, chosen: IntArray) -> FloatArray:
    return values[np.arange(chosen.size), chosen]


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

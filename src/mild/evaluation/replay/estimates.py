"""Mean cost of another policy, from draws that were logged with their probabilities.

An episode g is one draw: a request, or all requests of a pinned session. It has ``n_g`` requests that
cost ``C_g`` together; expert ``a_g`` was drawn with propensity ``p_g``, and the new policy would draw it
with probability ``pi(a_g)``. Where only a sample of the requests was judged, ``n_g`` and ``C_g`` are sums
over the sample, each request weighted by the inverse of its rate. With ``w_g = pi(a_g) / p_g``, the mean
cost per request of the new policy is estimated by

    inverse propensity    sum_g w_g C_g / sum_g n_g
    self-normalised       sum_g w_g C_g / sum_g w_g n_g
    doubly robust         sum_g (sum_k pi(k) Q_kg + w_g (C_g - Q_{a_g} g)) / sum_g n_g

where ``Q_kg`` is the cost of the episode with expert k that a model, fitted on other episodes, expects.
What was logged contains the cost of exploration. The new policy is therefore compared with the serving
router under the same share of exploration, usually none:

    serving router        sum_g (h_g + v_g (C_g - h_g)) / sum_g n_g,    h_g = sum_k pi(k) Q_kg

``v_g`` is the probability of the draw without logged exploration, divided by ``p_g``: its mean is 1 given
the query, so that any ``h_g`` is allowed, and of equal policies the difference is 0.
The first and the last are unbiased if the propensities are right and every expert that the new policy
draws could have been drawn, also with a poor model; a good model reduces the variance.

Intervals come from the variance over episodes of the estimator's linear part (``linear_interval``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray, invalid
from mild.metrics.intervals import linear_interval


@dataclass(frozen=True, eq=False)
class Episodes:
    """G draws and what followed."""

    # (G,) index of the expert that was drawn; -1 for one that the new policy does not know
    chosen: IntArray
    propensity: FloatArray  # (G,) probability in (0, 1] with which it was drawn
    target: FloatArray  # (G, n_experts) probabilities of the new policy
    requests: FloatArray  # (G,) number of requests
    costs: FloatArray  # (G,) what they cost together
    # (G,) weights of the serving router, as ``weights`` are those of the new one; None for 1, as logged
    serving: FloatArray | None = None
    # (G,) for how many draws each stands, if draws were not picked alike; None for 1
    mass: FloatArray | None = None

    @property
    def weights(self) -> FloatArray:
        """(G,) how much more probable the draw is under the new policy."""
        return np.where(self.chosen >= 0, _pick(self.target, self.chosen), 0.0) / self.propensity


@dataclass(frozen=True, eq=False)
class OffPolicyEstimate:
    mean: float
    low: float
    high: float
    standard_error: float  # of the mean
    parts: FloatArray  # (G,) linear part of the estimator, by which estimates can be subtracted
    confidence: float

    def minus(self, other: OffPolicyEstimate) -> OffPolicyEstimate:
        """The difference of two estimates on the same episodes."""
        return _estimate(self.mean - other.mean, self.parts - other.parts, self.confidence)


def inverse_propensity(episodes: Episodes, confidence: float = 0.95) -> OffPolicyEstimate:
    """Unbiased; noisy where the new policy prefers what was rarely drawn."""
    return _ratio(episodes.weights * episodes.costs, episodes.requests, confidence)


def self_normalised(episodes: Episodes, confidence: float = 0.95) -> OffPolicyEstimate:
    """A weighted mean: slightly biased in small logs, never outside the costs that were seen."""
    weights = episodes.weights
    return _ratio(weights * episodes.costs, weights * episodes.requests, confidence)


def doubly_robust(
    episodes: Episodes, expected: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """Unbiased as inverse propensity is, and less noisy the better the model."""
    if expected.shape != episodes.target.shape:
        rule = f"must have the shape of target, {episodes.target.shape}; got {expected.shape}."
        raise invalid("expected", rule)
    model = (episodes.target * expected).sum(axis=1)
    error = episodes.costs - _pick(expected, episodes.chosen)
    # Of an expert that the new policy does not know there is no model, and its weight is 0.
    correction = np.where(episodes.chosen >= 0, episodes.weights * error, 0.0)
    return _ratio(model + correction, episodes.requests, confidence)


def serving_router(
    episodes: Episodes, expected: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """The serving router without the exploration of the log, by the same model as ``doubly_robust``."""
    model = (episodes.target * expected).sum(axis=1)
    weights = 1.0 if episodes.serving is None else episodes.serving
    return _ratio(model + weights * (episodes.costs - model), episodes.requests, confidence)


def logged_mean(episodes: Episodes, confidence: float = 0.95) -> OffPolicyEstimate:
    """What was paid."""
    return _ratio(episodes.costs, episodes.requests, confidence)


def _ratio(costs: FloatArray, requests: FloatArray, confidence: float) -> OffPolicyEstimate:
    """``sum(costs) / sum(requests)`` with its linear part."""
    scale = float(requests.mean()) if requests.size else 0.0
    if scale <= 0:
        return _estimate(float("nan"), np.full(requests.size, np.nan), confidence)
    mean = float(costs.mean()) / scale
    return _estimate(mean, (costs - mean * requests) / scale, confidence)


def _estimate(mean: float, parts: FloatArray, confidence: float) -> OffPolicyEstimate:
    found = linear_interval(mean, parts, confidence)
    return OffPolicyEstimate(mean, found.low, found.high, found.standard_error, parts, confidence)


def _pick(values: FloatArray, chosen: IntArray) -> FloatArray:
    return values[np.arange(chosen.size), chosen]


def measure_overlap(episodes: Episodes, expert_names: Sequence[str]) -> dict[str, Any]:
    """How much the log tells about the new router, JSON-ready.

    ``agreement`` is the share of the draws that the new router could have made, too; ``effective`` the
    effective sample size ``(sum w)^2 / sum w^2``. The mean weight must be 1 within its standard error.
    ``unseen`` are experts that were never drawn, and the share of the queries that they would get.
    """
    mass = np.ones(episodes.chosen.size) if episodes.mass is None else episodes.mass
    weights, draws = mass * episodes.weights, float(mass.sum())
    count, total, squares = weights.size, float(weights.sum()), float((weights**2).sum())
    shares = (mass @ episodes.target / draws).tolist() if count else []
    seen = set(episodes.chosen.tolist())
    away = weights - mass * total / max(draws, 1)
    spread = float(away.std(ddof=1) * np.sqrt(count) / draws) if count > 1 else float("inf")
    return {
        "draws": count,
        "agreement": float((weights > 0).mean()) if count else 0.0,
        "effective": total**2 / squares if squares else 0.0,
        "largest_share": float(weights.max()) / total if total else 0.0,
        "mean_weight": total / draws if count else 0.0,
        "weight_error": spread if count else 0.0,
        "unseen": {
            expert_names[k]: share for k, share in enumerate(shares) if share > 0 and k not in seen
        },
    }


FOLDS = 5
# Ridge strengths, as multiples of the mean variance of a feature.
STRENGTHS = 10.0 ** np.arange(-4, 5)
# With fewer rows of an expert only their mean is learned.
MIN_RIDGE_ROWS = 10


def expected_costs(
    features: FloatArray,
    chosen: IntArray,
    costs: FloatArray,
    groups: IntArray,
    n_experts: int,
    seed: int = 0,
) -> FloatArray:
    """Expected cost (n, n_experts) of each expert on each row, by models fitted on other rows.

    For every expert and fold this is a ridge regression of the cost (n,) on the features (n, d), fitted
    on the rows of the other folds on which that expert was ``chosen``; its strength by generalised
    cross-validation. An expert with few rows there gets their mean, one with none the mean over all
    experts. Rows of one group, an episode, are never on both sides of a split.
    """
    scale = features.std(axis=0, dtype=np.float64)
    # Products of these columns (1, X, y) are all that a ridge regression needs.
    columns = np.empty((len(costs), len(scale) + 2))
    columns[:, 0], columns[:, -1] = 1.0, costs
    columns[:, 1:-1] = features - features.mean(axis=0, dtype=np.float64)
    columns[:, 1:-1] /= np.where(scale > 0, scale, 1.0)
    _, episode = np.unique(groups, return_inverse=True)
    count = int(episode.max(initial=-1)) + 1
    fold = (np.random.default_rng(seed).permutation(count) % FOLDS)[episode]
    result = np.empty((len(costs), n_experts))
    drawn = chosen >= 0
    for expert in range(n_experts):
        for f in range(FOLDS):
            own = columns[(chosen == expert) & (fold != f)]
            model = _ridge(own.T @ own)
            if model is None:
                known = costs[drawn & (fold != f)]
                model = np.append(known.mean() if known.size else 0.0, np.zeros(len(scale)))
            rows = fold == f
            result[rows, expert] = columns[rows, :-1] @ model
    return result


def _ridge(products: FloatArray) -> FloatArray | None:
    """Intercept and slope from the products of (1, X, y); None without any row."""
    count = products[0, 0]
    if count == 0:
        return None
    mean = products[0] / count
    covariance = products / count - np.outer(mean, mean)
    value, vector = np.linalg.eigh(covariance[1:-1, 1:-1])
    value = np.clip(value, 0.0, None)
    along = vector.T @ covariance[1:-1, -1]
    unit = float(value.mean())
    best, chosen = np.inf, np.zeros(len(value))
    for strength in STRENGTHS * unit if count >= MIN_RIDGE_ROWS and unit > 0 else ():
        slope = along / (value + strength)
        residual = max(covariance[-1, -1] - 2 * slope @ along + slope**2 @ value, 0.0)
        # The intercept is a parameter, too.
        freedom = 1 - (1 + (value / (value + strength)).sum()) / count
        if freedom > 0 and residual / freedom**2 < best:
            best, chosen = residual / freedom**2, slope
    slope = vector @ chosen
    return np.append(mean[-1] - mean[1:-1] @ slope, slope)

"""Mean cost of another policy, from draws that were logged with their probabilities.

Row i is an answer of expert ``a_i``, which was asked with probability ``p_i`` and cost ``c_i``. Where only
a sample of the answers was judged, it counts ``w_i`` times, the inverse of the rate of the sample;
otherwise once. It stands for ``s_i`` requests: ``w_i``, divided by the number of answers to the same
request that are in the log. The new policy would ask expert k with probability ``pi_i(k)``, and a model
that was fitted on other rows expects the cost ``Q_ik``. With ``r_i = pi_i(a_i) / p_i`` and
``h_i = sum_k pi_i(k) Q_ik``, the mean cost per request of the new policy is estimated by

    inverse propensity    sum_i w_i r_i c_i / sum_i s_i
    self-normalised       sum_i w_i r_i c_i / sum_i w_i r_i
    doubly robust         sum_i (s_i h_i + w_i r_i (c_i - Q_{i a_i})) / sum_i s_i

What was logged contains the cost of exploration. The new policy is therefore compared with the serving
router under the same share of exploration, usually none:

    serving router        sum_i (s_i h_i + w_i v_i (c_i - h_i)) / sum_i s_i

``v_i`` is the probability of the draw without logged exploration, divided by ``p_i``: its mean is 1 given
the query, so that any ``h_i`` is allowed, and of equal policies the difference is 0.
Inverse propensity, doubly robust and serving router are unbiased if the propensities are right and every
expert that the new policy draws could have been drawn, also with a poor model; a good model reduces the
variance.

An episode is one draw: a request, or all requests of a pinned session. Intervals come from the variance
over episodes of the estimator's linear part (``linear_interval``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray, invalid
from mild.metrics.interval import Interval
from mild.metrics.intervals import linear_interval

#: Draws of experts that only the new router chooses, below which the log says too little about a change.
ENOUGH_CHANGED = 30


@dataclass(frozen=True, eq=False)
class LoggedAnswers:
    """n answers in a log, and how probable each was."""

    expert: IntArray  # (n,) index of the expert that gave it; -1 for one that the new policy does not know
    propensity: FloatArray  # (n,) probability in (0, 1] with which the expert was asked
    weight: FloatArray  # (n,) inverse of the rate at which answers were sampled; 1 if all are here
    share: FloatArray  # (n,) requests that it stands for: weight / number of answers to its request
    episode: IntArray  # (n,) label of the draw; a pinned session has one

    @classmethod
    def one_per_request(cls, expert: IntArray, propensity: FloatArray) -> LoggedAnswers:
        """Answers to different requests, each drawn on its own, without any left out."""
        ones = np.ones(len(expert))
        return cls(expert, propensity, ones, ones, np.arange(len(expert)))

    def ratios(self, target: FloatArray) -> FloatArray:
        """(n,) how much more probable each answer is with the probabilities ``target`` (n, n_experts)."""
        # An expert that the new policy does not know has the probability 0.
        probability = np.where(self.expert >= 0, values_of(target, self.expert), 0.0)
        return probability / self.propensity


@dataclass(frozen=True, eq=False)
class OffPolicyEstimate:
    """A mean cost per request."""

    interval: Interval
    parts: FloatArray  # (n_episodes,) linear part of the estimator, by which estimates can be subtracted

    def minus(self, other: OffPolicyEstimate) -> OffPolicyEstimate:
        """The difference of two estimates from the same answers."""
        difference = self.interval.estimate - other.interval.estimate
        linear_parts = self.parts - other.parts
        interval = linear_interval(difference, linear_parts, self.interval.confidence)
        return OffPolicyEstimate(interval, linear_parts)


def inverse_propensity(
    answers: LoggedAnswers, costs: FloatArray, target: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """Unbiased; noisy where the new policy prefers what was rarely drawn.

    ``costs`` (n,) are those of the answers, ``target`` (n, n_experts) the new policy's probabilities.
    """
    weights = answers.weight * answers.ratios(target)
    return _mean_per_request(weights * costs, answers.share, answers.episode, confidence)


def self_normalised(
    answers: LoggedAnswers, costs: FloatArray, target: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """A weighted mean: slightly biased in small logs, never outside the costs that were seen.

    Arguments are as in ``inverse_propensity``.
    """
    weights = answers.weight * answers.ratios(target)
    return _mean_per_request(weights * costs, weights, answers.episode, confidence)


def doubly_robust(
    answers: LoggedAnswers,
    costs: FloatArray,
    target: FloatArray,
    expected: FloatArray,
    confidence: float = 0.95,
) -> OffPolicyEstimate:
    """Unbiased as inverse propensity is, and less noisy the better the model.

    ``expected`` (n, n_experts) are the costs that the model expects; other arguments are as in
    ``inverse_propensity``.
    """
    if expected.shape != target.shape:
        rule = f"must have the shape of target, {target.shape}; got {expected.shape}."
        raise invalid("expected", rule)
    by_model = (target * expected).sum(axis=1)
    weights = answers.weight * answers.ratios(target)
    # There is no model of an expert that the new policy does not know; its weight is 0.
    error = np.where(answers.expert >= 0, costs - values_of(expected, answers.expert), 0.0)
    corrected = answers.share * by_model + weights * error
    return _mean_per_request(corrected, answers.share, answers.episode, confidence)


def serving_router(
    answers: LoggedAnswers,
    costs: FloatArray,
    target: FloatArray,
    expected: FloatArray,
    serving: FloatArray,
    confidence: float = 0.95,
) -> OffPolicyEstimate:
    """The serving router without the exploration of the log, by the same model as ``doubly_robust``.

    ``serving`` (n,) is the probability of each answer without exploration, divided by its propensity; 1 to
    take the router as it was logged. Other arguments are as in ``doubly_robust``.
    """
    by_model = (target * expected).sum(axis=1)
    weights = answers.weight * serving
    corrected = answers.share * by_model + weights * (costs - by_model)
    return _mean_per_request(corrected, answers.share, answers.episode, confidence)


def logged_mean(
    answers: LoggedAnswers, costs: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """What was paid."""
    return _mean_per_request(answers.share * costs, answers.share, answers.episode, confidence)


def _mean_per_request(
    costs: FloatArray, requests: FloatArray, episode: IntArray, confidence: float
) -> OffPolicyEstimate:
    """``sum(costs) / sum(requests)`` with its linear part, which is a sum over the rows of an episode."""
    labels, episode_of_row = np.unique(episode, return_inverse=True)
    n_requests = float(requests.sum())
    if n_requests <= 0:
        nothing = np.full(len(labels), np.nan)
        return OffPolicyEstimate(linear_interval(np.nan, nothing, confidence), nothing)
    mean = float(costs.sum()) / n_requests
    deviations = np.bincount(episode_of_row, costs - mean * requests)
    linear_parts = deviations * (len(labels) / n_requests)
    return OffPolicyEstimate(linear_interval(mean, linear_parts, confidence), linear_parts)


def values_of(values: FloatArray, expert: IntArray) -> FloatArray:
    """(n,) the value of one expert in each row of (n, n_experts)."""
    return values[np.arange(len(expert)), expert]


def measure_overlap(
    draws: LoggedAnswers, target: FloatArray, expert_names: Sequence[str]
) -> dict[str, Any]:
    """How much the log tells about the new router, JSON-ready.

    ``draws`` has one answer per episode. ``agreement`` is the share of the draws that the new router could
    have made, too; ``effective`` the effective sample size ``(sum w)^2 / sum w^2``. The mean weight must be
    1 within its standard error. ``unseen`` are experts that were never drawn, and the share of the queries
    that they would get.
    """
    mass = draws.weight
    weights = mass * draws.ratios(target)
    if weights.size == 0:
        return {
            "draws": 0,
            "agreement": 0.0,
            "effective": 0.0,
            "largest_share": 0.0,
            "mean_weight": 0.0,
            "weight_error": 0.0,
            "unseen": {},
        }
    n_draws = float(mass.sum())
    total = float(weights.sum())
    squares = float((weights**2).sum())
    effective = 0.0
    if squares:
        effective = total**2 / squares
    largest_share = 0.0
    if total:
        largest_share = float(weights.max()) / total
    weight_error = float("inf")
    if weights.size > 1:
        deviations = weights - mass * total / max(n_draws, 1)
        weight_error = float(deviations.std(ddof=1) * np.sqrt(weights.size) / n_draws)
    return {
        "draws": weights.size,
        "agreement": float((weights > 0).mean()),
        "effective": effective,
        "largest_share": largest_share,
        "mean_weight": total / n_draws,
        "weight_error": weight_error,
        "unseen": _unseen_shares(draws, target, expert_names),
    }


def _unseen_shares(
    draws: LoggedAnswers, target: FloatArray, expert_names: Sequence[str]
) -> dict[str, float]:
    """Share of the queries that experts would get which were never drawn, by name."""
    drawn_experts = set(draws.expert.tolist())
    shares = (draws.weight @ target / float(draws.weight.sum())).tolist()
    unseen = {}
    for expert, share in enumerate(shares):
        if share > 0 and expert not in drawn_experts:
            unseen[expert_names[expert]] = share
    return unseen


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
    columns = _regression_columns(features, costs)
    fold_of_row = _fold_of_row(groups, seed)
    result = np.empty((len(costs), n_experts))
    is_drawn = chosen >= 0
    for expert in range(n_experts):
        for fold in range(FOLDS):
            other_folds = fold_of_row != fold
            expert_columns = columns[(chosen == expert) & other_folds]
            coefficients = _ridge(expert_columns.T @ expert_columns)
            if coefficients is None:
                coefficients = np.zeros(columns.shape[1] - 1)
                other_costs = costs[is_drawn & other_folds]
                if other_costs.size:
                    coefficients[0] = other_costs.mean()
            rows = fold_of_row == fold
            result[rows, expert] = columns[rows, :-1] @ coefficients
    return result


def _regression_columns(features: FloatArray, costs: FloatArray) -> FloatArray:
    """Columns (1, X, y), X standardised; their products are all that a ridge regression needs."""
    scale = features.std(axis=0, dtype=np.float64)
    columns = np.empty((len(costs), len(scale) + 2))
    columns[:, 0] = 1.0
    columns[:, 1:-1] = features - features.mean(axis=0, dtype=np.float64)
    columns[:, 1:-1] /= np.where(scale > 0, scale, 1.0)
    columns[:, -1] = costs
    return columns


def _fold_of_row(groups: IntArray, seed: int) -> IntArray:
    """Fold (n,) of each row, drawn by group."""
    _, group_of_row = np.unique(groups, return_inverse=True)
    n_groups = int(group_of_row.max(initial=-1)) + 1
    fold_of_group = np.random.default_rng(seed).permutation(n_groups) % FOLDS
    return fold_of_group[group_of_row]


def _ridge(products: FloatArray) -> FloatArray | None:
    """Intercept and slope from the products of (1, X, y); None without any row."""
    count = products[0, 0]
    if count == 0:
        return None
    mean = products[0] / count
    covariance = products / count - np.outer(mean, mean)
    eigenvalues, eigenvectors = np.linalg.eigh(covariance[1:-1, 1:-1])
    eigenvalues = np.clip(eigenvalues, 0.0, None)
    # The covariance of X and y along the eigenvectors.
    along = eigenvectors.T @ covariance[1:-1, -1]
    mean_variance = float(eigenvalues.mean())
    best_slope = np.zeros(len(eigenvalues))
    if count >= MIN_RIDGE_ROWS and mean_variance > 0:
        least_error = np.inf
        for strength in STRENGTHS * mean_variance:
            slope = along / (eigenvalues + strength)
            residual = max(covariance[-1, -1] - 2 * slope @ along + slope**2 @ eigenvalues, 0.0)
            # The intercept is a parameter, too.
            freedom = 1 - (1 + (eigenvalues / (eigenvalues + strength)).sum()) / count
            if freedom > 0 and residual / freedom**2 < least_error:
                least_error = residual / freedom**2
                best_slope = slope
    coefficients = eigenvectors @ best_slope
    return np.append(mean[-1] - mean[1:-1] @ coefficients, coefficients)

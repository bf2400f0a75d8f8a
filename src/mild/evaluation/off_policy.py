"""Off-policy evaluation: the mean cost of a new policy, from answers of the logged one.

The log has the probability with which each answer was drawn.

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
        """Return ``r_i`` (n,): how much more probable each answer is under ``target`` (n, n_experts)."""
        # An expert that the new policy does not know has the probability 0.
        probability = np.where(self.expert >= 0, values_of(target, self.expert), 0.0)
        return probability / self.propensity


@dataclass(frozen=True, eq=False)
class OffPolicyEstimate:
    """A mean cost per request."""

    interval: Interval
    # (n_episodes,) linear part of the estimator, by which the interval of a difference is computed
    parts: FloatArray

    def minus(self, other: OffPolicyEstimate) -> OffPolicyEstimate:
        """The difference of two estimates from the same answers."""
        difference = self.interval.estimate - other.interval.estimate
        linear_parts = self.parts - other.parts
        interval = linear_interval(difference, linear_parts, self.interval.confidence)
        return OffPolicyEstimate(interval, linear_parts)


def inverse_propensity(
    answers: LoggedAnswers, costs: FloatArray, target: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """Estimate the mean cost by inverse propensities: unbiased, but noisy for rarely drawn experts.

    ``costs`` (n,) are those of the answers, ``target`` (n, n_experts) the new policy's probabilities.
    """
    weights = answers.weight * answers.ratios(target)
    return _mean_per_request(weights * costs, answers.share, answers.episode, confidence)


def self_normalised(
    answers: LoggedAnswers, costs: FloatArray, target: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """Estimate the mean cost as a weighted mean: slightly biased, within the costs of the log.

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
    """Estimate the mean cost by a model whose errors are corrected by inverse propensities.

    It is unbiased as ``inverse_propensity`` is, and less noisy the better the model.

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
    """Estimate the mean cost of the router that wrote the log, without its exploration.

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
    """Estimate the mean cost of the logged policy, exploration included."""
    return _mean_per_request(answers.share * costs, answers.share, answers.episode, confidence)


def _mean_per_request(
    costs: FloatArray, requests: FloatArray, episode: IntArray, confidence: float
) -> OffPolicyEstimate:
    """Return ``sum(costs) / sum(requests)`` with its interval and its linear part by episode."""
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
    """Return the value (n,) of one expert in each row of values (n, n_experts)."""
    return values[np.arange(len(expert)), expert]


def measure_overlap(
    draws: LoggedAnswers, target: FloatArray, expert_names: Sequence[str]
) -> dict[str, Any]:
    """Measure how much a log says about a new policy.

    Draw i counts ``m_i`` times (``draws.weight``), and its weight under the new policy is

        ``w_i = m_i pi_i(a_i) / p_i``

    in the letters of the module's docstring. Divided by ``sum_i m_i``, the weights have the mean 1, within
    its standard error, if the logged propensities are right.

    Parameters
    ----------
    draws : LoggedAnswers
        One answer per episode.
    target : (n_draws, n_experts) array
        Probability with which the new policy would draw each expert.
    expert_names : sequence of str
        Names of the experts of the new policy.

    Returns
    -------
    dict
        JSON-ready: "agreement", the share of the draws that the new policy could have made;
        "effective", the effective sample size ``(sum_i w_i)^2 / sum_i w_i^2``; "largest_share" of one draw
        in the sum of the weights; "mean_weight" and its standard error "weight_error"; "unseen", the share
        of the queries that each expert would get which was never drawn; and the number of "draws".
    """
    weights = draws.weight * draws.ratios(target)
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
    n_counted = float(draws.weight.sum())
    weight_sum = float(weights.sum())
    square_sum = float((weights**2).sum())
    effective = 0.0
    if square_sum:
        effective = weight_sum**2 / square_sum
    largest_share = 0.0
    if weight_sum:
        largest_share = float(weights.max()) / weight_sum
    weight_error = float("inf")
    if weights.size > 1:
        deviations = weights - draws.weight * weight_sum / max(n_counted, 1)
        weight_error = float(deviations.std(ddof=1) * np.sqrt(weights.size) / n_counted)
    return {
        "draws": weights.size,
        "agreement": float((weights > 0).mean()),
        "effective": effective,
        "largest_share": largest_share,
        "mean_weight": weight_sum / n_counted,
        "weight_error": weight_error,
        "unseen": _unseen_shares(draws, target, expert_names),
    }


def _unseen_shares(
    draws: LoggedAnswers, target: FloatArray, expert_names: Sequence[str]
) -> dict[str, float]:
    """Return, by name, the share of the queries that each expert would get which was never drawn."""
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
    """Predict the cost of each expert on each row, with models fitted on other rows.

    For each expert and fold, a ridge regression of the cost on the features is fitted on the rows of the
    other folds in which this expert was chosen. Its strength is chosen by generalised cross-validation.
    An expert with few such rows gets their mean cost; one without any, the mean over all experts.

    Parameters
    ----------
    features : (n, d) array
    chosen : (n,) array
        Index of the expert that answered; -1 for one that is not among the n_experts.
    costs : (n,) array
        Costs of these answers.
    groups : (n,) array
        Rows of one group, such as an episode, are in one fold.
    n_experts : int
    seed : int, default=0
        Seed of the folds.

    Returns
    -------
    (n, n_experts) array
    """
    columns = _regression_columns(features, costs)
    fold_of_row = _fold_of_row(groups, seed)
    predicted = np.empty((len(costs), n_experts))
    for fold in range(FOLDS):
        is_test = fold_of_row == fold
        mean_cost = 0.0
        train_costs = costs[(chosen >= 0) & ~is_test]
        if train_costs.size:
            mean_cost = float(train_costs.mean())
        for expert in range(n_experts):
            train_columns = columns[(chosen == expert) & ~is_test]
            coefficients = _ridge(train_columns.T @ train_columns)
            if coefficients is None:
                coefficients = np.zeros(columns.shape[1] - 1)
                coefficients[0] = mean_cost
            predicted[is_test, expert] = columns[is_test, :-1] @ coefficients
    return predicted


def _regression_columns(features: FloatArray, costs: FloatArray) -> FloatArray:
    """Return the columns (1, X, y), with X standardised.

    Their products are all that a ridge regression needs.
    """
    scale = features.std(axis=0, dtype=np.float64)
    columns = np.empty((len(costs), len(scale) + 2))
    columns[:, 0] = 1.0
    columns[:, 1:-1] = features - features.mean(axis=0, dtype=np.float64)
    columns[:, 1:-1] /= np.where(scale > 0, scale, 1.0)
    columns[:, -1] = costs
    return columns


def _fold_of_row(groups: IntArray, seed: int) -> IntArray:
    """Return the fold (n,) of each row, drawn at random by group."""
    _, group_of_row = np.unique(groups, return_inverse=True)
    n_groups = int(group_of_row.max(initial=-1)) + 1
    fold_of_group = np.random.default_rng(seed).permutation(n_groups) % FOLDS
    return fold_of_group[group_of_row]


def _ridge(products: FloatArray) -> FloatArray | None:
    """Fit a ridge regression from the products of the columns (1, X, y).

    Returns intercept and slope (1 + n_features,), or None without any row.
    """
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

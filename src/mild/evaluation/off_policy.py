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

Inverse propensity and doubly robust are unbiased if the propensities are right and every
expert that the new policy draws could have been drawn, also with a poor model; a good model reduces the
variance.

An episode is one draw: a request, or all requests of a pinned session. Intervals come from the variance
over episodes of the estimator's linear part (``linear_interval``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mild.core.arrays import FloatArray, IntArray, invalid
from mild.metrics.interval import Interval
from mild.metrics.intervals import linear_interval


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
        probability = np.where(self.expert >= 0, _values_of(target, self.expert), 0.0)
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
    error = np.where(answers.expert >= 0, costs - _values_of(expected, answers.expert), 0.0)
    corrected = answers.share * by_model + weights * error
    return _mean_per_request(corrected, answers.share, answers.episode, confidence)


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


def _values_of(values: FloatArray, expert: IntArray) -> FloatArray:
    """Return the value (n,) of one expert in each row of values (n, n_experts)."""
    return values[np.arange(len(expert)), expert]

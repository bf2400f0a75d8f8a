"""The numbers of learning to defer: four accuracies, the curve over coverage, calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oracles
from mild.errors import InvalidInputError
from mild.metrics import (
    accuracy_coverage_curve,
    deferral_summary,
    expected_calibration_error,
    expert_correctness,
    mean_coverage_curve,
    reliability_curve,
)


def _random_system(seed: int = 0, n_samples: int = 500, n_experts: int = 3):
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n_samples)
    predicted = rng.integers(4, size=n_samples)
    experts = rng.integers(4, size=(n_samples, n_experts))
    deferred_to = rng.integers(-1, n_experts, size=n_samples)
    return y, predicted, deferred_to, experts


def test_the_four_numbers_agree_with_a_loop():
    y, predicted, deferred_to, experts = _random_system()
    kept_right, n_kept, expert_right = 0, 0, 0
    for row, expert in enumerate(deferred_to):
        if expert == -1:
            n_kept += 1
            kept_right += predicted[row] == y[row]
        else:
            expert_right += experts[row, expert] == y[row]
    result = deferral_summary(y, predicted, deferred_to, experts)
    assert result.coverage == pytest.approx(n_kept / len(y))
    assert result.classifier_accuracy == pytest.approx(kept_right / n_kept)
    assert result.expert_accuracy == pytest.approx(expert_right / (len(y) - n_kept))
    assert result.system_accuracy == pytest.approx((kept_right + expert_right) / len(y))


def test_system_accuracy_is_the_mixture_of_the_other_three():
    result = deferral_summary(*_random_system(seed=1))
    mixture = result.coverage * result.classifier_accuracy
    mixture += (1 - result.coverage) * result.expert_accuracy
    assert result.system_accuracy == pytest.approx(mixture)


def test_nothing_deferred_leaves_no_expert_accuracy():
    y, predicted, _, experts = _random_system()
    result = deferral_summary(y, predicted, np.full(len(y), -1), experts)
    assert result.coverage == 1
    assert math.isnan(result.expert_accuracy)
    assert result.as_dict()["expert_accuracy"] is None


def test_everything_deferred_leaves_no_classifier_accuracy():
    y, predicted, _, experts = _random_system()
    result = deferral_summary(y, predicted, np.zeros(len(y), int), experts)
    assert result.coverage == 0
    assert math.isnan(result.classifier_accuracy)


@pytest.mark.parametrize(
    "answers",
    [
        np.array([["a"], [None]], dtype=object),
        np.ma.masked_array([["a"], ["b"]], mask=[[False], [True]]),
    ],
)
def test_missing_answers_are_not_right(answers):
    assert expert_correctness(["a", "b"], answers).tolist() == [[True], [False]]


def test_a_nan_answer_is_not_right():
    assert expert_correctness([0, 1], [0.0, np.nan]).tolist() == [[True], [False]]


@pytest.mark.parametrize(
    ("deferred_to", "words"),
    [([0, 1], "indices of experts"), ([-2, 0], "or -1"), ([0.0, 0.0], "integers"), ([0], "shape")],
)
def test_bad_choices_are_refused(deferred_to, words):
    with pytest.raises(InvalidInputError, match=words):
        deferral_summary([0, 1], [0, 1], deferred_to, [0, 1])


def test_answers_of_other_rows_are_refused():
    with pytest.raises(InvalidInputError, match="experts must have shape"):
        deferral_summary([0, 1], [0, 1], [0, 0], [0, 1, 1])


def test_the_curve_passes_through_every_threshold():
    rng = np.random.default_rng(0)
    classifier, expert = rng.integers(2, size=(2, 200))
    margin = rng.normal(size=200)
    curve = accuracy_coverage_curve(classifier, expert, margin)
    for threshold in (-1.0, 0.0, 0.7):
        deferred = margin > threshold
        accuracy = np.where(deferred, expert, classifier).mean()
        assert curve.at(1 - deferred.mean()) == pytest.approx(accuracy)
    assert curve.at(1) == pytest.approx(classifier.mean())
    assert curve.at(0) == pytest.approx(expert.mean())


def test_rows_of_equal_margin_move_together():
    curve = accuracy_coverage_curve([1, 0, 1, 1], [0, 1, 0, 1], [0.0, 1.0, 1.0, 1.0])
    assert curve.coverage.tolist() == [0, 0.25, 1]


def test_the_interval_covers_the_accuracy_at_most_draws():
    # Right with 0.9 and 0.5, deferred at random: accuracy at half coverage is 0.7.
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        classifier = rng.random(150) < 0.9
        expert = rng.random(150) < 0.5
        curve = accuracy_coverage_curve(classifier, expert, rng.normal(size=150), n_resamples=200)
        low, high = (np.interp(0.5, curve.coverage, limit) for limit in (curve.low, curve.high))
        covered += low <= 0.7 <= high
    assert covered >= 88


def test_mean_of_seeds_has_the_interval_of_student():
    rng = np.random.default_rng(0)
    curves = [
        accuracy_coverage_curve(*rng.integers(2, size=(2, 50)), rng.normal(size=50))
        for _ in range(4)
    ]
    mean = mean_coverage_curve(curves)
    values = np.array([curve.at(0.3) for curve in curves])
    reach = 3.182446 * values.std(ddof=1) / 2
    assert mean.at(0.3) == pytest.approx(values.mean())
    assert mean.high[30] - mean.accuracy[30] == pytest.approx(reach, rel=1e-5)
    with pytest.raises(InvalidInputError, match="two seeds"):
        mean_coverage_curve(curves[:1])


def test_the_area_is_the_mean_accuracy():
    curve = accuracy_coverage_curve([1, 0], [1, 1], [0.0, 1.0])
    assert curve.area == pytest.approx((1 + 0.75) / 2)


def test_bins_have_equal_mass():
    probability = np.random.default_rng(0).random(103)
    curve = reliability_curve(np.ones(103), probability, n_bins=10)
    assert sorted(curve.counts.tolist()) == [10] * 7 + [11] * 3
    assert (np.diff(curve.predicted) > 0).all()


def test_equal_probabilities_share_a_bin():
    assert reliability_curve([0, 1, 1, 0], [0.5] * 4).counts.tolist() == [4]


def test_calibration_error_of_known_estimates():
    rng = np.random.default_rng(0)
    probability = rng.random(20_000)
    is_right = rng.random(20_000) < probability
    assert expected_calibration_error(is_right, probability) < 0.02
    assert expected_calibration_error(is_right, probability + 0.1) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(("n_samples", "n_bins"), [(7, 10), (103, 10), (200, 4)])
def test_calibration_error_agrees_with_a_loop(n_samples, n_bins):
    rng = np.random.default_rng(n_samples)
    # Skewed, so that bins of equal width would hold very different numbers of rows.
    probability = rng.random(n_samples) ** 4
    is_right = (rng.random(n_samples) < 0.5).astype(float)
    error = expected_calibration_error(is_right, probability, n_bins)
    expected = oracles.expected_calibration_error(is_right.tolist(), probability.tolist(), n_bins)
    assert error == pytest.approx(expected, rel=1e-12)


def test_calibration_error_has_bins_of_equal_mass_not_of_equal_width():
    # The two halves are off by 0.015 and 0.965; in one bin of width 0.5 they would be off by 0.475.
    error = expected_calibration_error([0, 0, 1, 1], [0.01, 0.02, 0.03, 0.04], n_bins=2)
    assert error == pytest.approx((0.015 + 0.965) / 2)


def test_probabilities_above_one_are_allowed():
    assert expected_calibration_error([1, 1], [1.5, 1.5]) == 0.5

"""Plots of accuracy over coverage, and of the calibration of P(expert is right)."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from mild.deferral import DeferralClassifier
from mild.errors import InvalidInputError
from mild.evaluation.coverage_display import CoverageCurveDisplay, ReliabilityDisplay
from mild.metrics import accuracy_coverage_curve


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    experts = np.column_stack([np.where(X[:, 1] > 0, y, 1 - y), rng.integers(2, size=300)])
    return DeferralClassifier(random_state=0).fit(X, y, experts=experts), X, y, experts


def test_the_curve_of_an_estimator_passes_through_its_accuracy(fitted):
    estimator, X, y, experts = fitted
    display = CoverageCurveDisplay.from_estimator(estimator, X, y, experts=experts)
    assert display.curve.at(display.coverage) == pytest.approx(
        estimator.system_score(X, y, experts=experts)
    )
    assert display.ax_.get_xlabel().startswith("coverage")
    assert display.ax_.get_legend().get_texts()[0].get_text() == "ova"


def test_two_curves_share_the_axes(fitted):
    estimator, X, y, experts = fitted
    first = CoverageCurveDisplay.from_estimator(estimator, X, y, experts=experts)
    second = CoverageCurveDisplay.from_predictions(
        [1, 0], [0, 1], [0.1, 0.9], name="b", ax=first.ax_
    )
    assert second.ax_ is first.ax_
    assert len(first.ax_.get_legend().get_texts()) == 2


def test_a_curve_without_name_has_no_legend():
    display = CoverageCurveDisplay.from_predictions([1, 0], [0, 1], [0.1, 0.9])
    assert display.ax_.get_legend() is None


def test_the_mean_of_seeds():
    rng = np.random.default_rng(0)
    curves = [
        accuracy_coverage_curve(*rng.integers(2, size=(2, 40)), rng.normal(size=40))
        for _ in range(3)
    ]
    display = CoverageCurveDisplay.from_seeds(curves, name="three seeds")
    assert display.curve.at(0.5) == pytest.approx(np.mean([curve.at(0.5) for curve in curves]))


def test_calibration_of_an_expert(fitted):
    estimator, X, y, experts = fitted
    display = ReliabilityDisplay.from_estimator(
        estimator, X, y, experts=experts, expert=0, n_bins=5
    )
    assert display.curve.counts.tolist() == [60] * 5
    # The expert is right where the second feature is positive.
    assert display.curve.observed[0] < 0.1
    assert display.curve.observed[-1] > 0.9
    with pytest.raises(InvalidInputError, match="expert must lie in"):
        ReliabilityDisplay.from_estimator(estimator, X, y, experts=experts, expert=2)

"""The line: regions that cut across the classes."""

from __future__ import annotations

import numpy as np
import pytest

from mild.data.datasets import class_densities, expert_accuracies, one_dimensional
from mild.data.datasets.synthetic import BETAS, CLASSES, SPAN
from mild.errors import InvalidInputError


def test_mean_costs_follow_the_accuracy_curves():
    data = one_dimensional(20_000, random_state=0)
    x = data.X[:, 0]
    for low, high in ((1, 2), (4, 5), (8.5, 9.5)):
        inside = (x > low) & (x < high)
        expected = (1 - expert_accuracies(x[inside]) + np.array(BETAS)).mean(axis=0)
        spread = 5 * 0.5 / np.sqrt(inside.sum())
        assert np.abs(data.costs[inside].mean(axis=0) - expected).max() < spread


def test_accuracy_does_not_depend_on_the_class():
    data = one_dimensional(40_000, random_state=1)
    x = data.X[:, 0]
    inside = (x > 2.5) & (x < 3.1)
    right = (data.predictions == data.labels[:, None])[inside, 2]
    first, second = (right[data.labels[inside] == label] for label in (0, 1))
    assert min(len(first), len(second)) > 500
    assert abs(first.mean() - second.mean()) < 0.03


def test_wrong_answers_name_another_class():
    data = one_dimensional(2000, random_state=0)
    assert set(np.unique(data.predictions)) == {0, 1, 2, 3}
    assert np.array_equal(data.predictions != data.labels[:, None], (data.costs - BETAS) > 0.5)


def test_dearer_experts_cost_more_to_ask_and_every_expert_is_best_somewhere():
    data = one_dimensional(4000, random_state=0)
    assert (np.diff(data.betas) > 0).all()
    assert set(data.expected_costs.argmin(axis=1)) == {0, 1, 2}


def test_one_region_crosses_a_border_between_classes():
    grid = np.linspace(*SPAN, 2001)
    best = (1 - expert_accuracies(grid) + np.array(BETAS)).argmin(axis=1)
    leading = class_densities(grid).argmax(axis=1)
    assert len(set(leading[best == 2])) >= 3


def test_inputs_stay_on_the_line_and_classes_keep_their_shares():
    data = one_dimensional(10_000, random_state=0)
    assert data.X.min() >= SPAN[0]
    assert data.X.max() <= SPAN[1]
    shares = np.bincount(data.labels) / len(data.labels)
    assert np.abs(shares - [entry[0] for entry in CLASSES]).max() < 0.025


def test_densities_integrate_to_almost_one():
    x = np.linspace(-10, 20, 30_001)
    assert class_densities(x).sum() * (x[1] - x[0]) == pytest.approx(1, abs=1e-6)


def test_no_samples_are_refused():
    with pytest.raises(InvalidInputError, match="n_samples must be at least 1; got 0"):
        one_dimensional(0)

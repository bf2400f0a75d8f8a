"""Synthetic problems: a line on which regions cut across classes, a plane on which labels say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mild.core.costs import cheapest
from mild.datasets import (
    class_densities,
    expert_accuracies,
    one_dimensional,
    region_of,
    regions,
)
from mild.datasets.synthetic import BETAS, CLASSES, SPAN
from mild.errors import InvalidInputError
from mild.metrics import best_constant, deferral_loss


@pytest.fixture(scope="module")
def line():
    return one_dimensional(40_000, random_state=1)


@pytest.fixture(scope="module")
def plane():
    return regions(20_000, random_state=0)


def test_mean_costs_follow_the_accuracy_curves(line):
    x = line.X[:, 0]
    for low, high in ((1, 2), (4, 5), (8.5, 9.5)):
        inside = (x > low) & (x < high)
        expected = (1 - expert_accuracies(x[inside]) + np.array(BETAS)).mean(axis=0)
        spread = 5 * 0.5 / np.sqrt(inside.sum())
        assert np.abs(line.costs[inside].mean(axis=0) - expected).max() < spread


def test_accuracy_does_not_depend_on_the_class(line):
    x = line.X[:, 0]
    inside = (x > 2.5) & (x < 3.1)
    right = (line.predictions == line.labels[:, None])[inside, 2]
    first, second = (right[line.labels[inside] == label] for label in (0, 1))
    assert min(len(first), len(second)) > 500
    assert abs(first.mean() - second.mean()) < 0.03


def test_wrong_answers_name_another_class_and_every_expert_is_best_somewhere(line):
    assert set(np.unique(line.predictions)) == {0, 1, 2, 3}
    assert np.array_equal(line.predictions != line.labels[:, None], (line.costs - BETAS) > 0.5)
    assert (np.diff(line.betas) > 0).all()
    assert set(line.expected_costs.argmin(axis=1)) == {0, 1, 2}


def test_one_region_crosses_a_border_between_classes():
    grid = np.linspace(*SPAN, 2001)
    best = (1 - expert_accuracies(grid) + np.array(BETAS)).argmin(axis=1)
    leading = class_densities(grid).argmax(axis=1)
    assert len(set(leading[best == 2])) >= 3


def test_inputs_lie_on_the_line_and_classes_have_their_shares(line):
    assert line.X.min() >= SPAN[0]
    assert line.X.max() <= SPAN[1]
    shares = np.bincount(line.labels) / len(line.labels)
    assert np.abs(shares - [entry[0] for entry in CLASSES]).max() < 0.025
    x = np.linspace(-10, 20, 30_001)
    assert class_densities(x).sum() * (x[1] - x[0]) == pytest.approx(1, abs=1e-6)


def test_experts_are_skilled_in_their_region_and_guess_elsewhere(plane):
    right = plane.predictions == plane.labels[:, None]
    own = region_of(plane.X)
    for k in range(4):
        assert right[own == k, k].mean() == pytest.approx(0.95, abs=0.02)
        assert right[own != k, k].mean() == pytest.approx(0.25, abs=0.02)
    shares = np.bincount(own) / len(own)
    assert shares == pytest.approx([0.573, 0.196, 0.15, 0.08], abs=0.02)


def test_the_label_is_worth_nothing_and_the_region_much(plane):
    means = np.array([plane.costs[plane.labels == y].mean(axis=0) for y in range(4)])
    by_label = deferral_loss(plane.costs, cheapest(means)[plane.labels])
    constant = best_constant(plane.costs).cost
    assert by_label == pytest.approx(constant, abs=0.005)
    assert deferral_loss(plane.costs, region_of(plane.X)) < 0.2 * constant


@pytest.mark.parametrize(
    "call", [lambda: region_of([1.0, 2.0]), lambda: regions(0), lambda: one_dimensional(0)]
)
def test_bad_shapes_and_sizes_are_refused(call):
    with pytest.raises(InvalidInputError):
        call()


def test_take_keeps_rows_together(plane):
    part = plane.take(np.array([5, 2, 9]))
    for name in ("X", "labels", "predictions", "costs", "rows", "expected_costs"):
        assert np.array_equal(getattr(part, name), getattr(plane, name)[[5, 2, 9]])
    assert part.expert_names == plane.expert_names


def test_halves_contain_every_row_exactly_once():
    first, second = one_dimensional(101, random_state=0).halves(random_state=1)
    assert (len(first.X), len(second.X)) == (50, 51)
    assert np.array_equal(np.sort(np.concatenate([first.rows, second.rows])), np.arange(101))

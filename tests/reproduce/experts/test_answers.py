"""Costs of answers, and how often experts are right."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mild.exceptions import InvalidInputError, OptionError
from mild.reproduce.experts import (
    SETUPS,
    expert_costs,
    get_setup,
    largest_cost,
    synthetic_answers,
)
from mild.reproduce.experts.answers import Accuracy, accuracy, class_names

ANSWERS = np.array([[0, 1], [1, 1], [2, 0]])
LABELS = np.array([0, 1, 1])


def test_error_costs_are_one_for_a_wrong_answer():
    costs = expert_costs(ANSWERS, LABELS, [0.7, 0.3], "error")
    assert costs.dtype == np.float32
    np.testing.assert_array_equal(costs, [[0, 1], [0, 0], [1, 1]])


def test_the_second_cost_type_adds_each_experts_price():
    error, cost = (expert_costs(ANSWERS, LABELS, [0.7, 0.3], kind) for kind in ("error", "cost"))
    np.testing.assert_allclose(cost - error, np.tile([0.7, 0.3], (3, 1)), atol=1e-6)


@pytest.mark.parametrize("setup", SETUPS)
def test_no_cost_exceeds_the_largest(setup, images):
    answers = synthetic_answers(images, get_setup(setup), 0)
    for cost in ("error", "cost"):
        costs = expert_costs(answers.train, images.train_labels, answers.prices, cost)
        assert costs.max() == pytest.approx(largest_cost(answers.prices, cost))


def test_an_unknown_cost_type_is_refused():
    for function in (
        lambda: expert_costs(ANSWERS, LABELS, [0, 0], "price"),
        lambda: largest_cost([0], "price"),
    ):
        with pytest.raises(OptionError, match="cost must be one of 'error', 'cost'; got 'price'"):
            function()


def test_labels_of_another_length_are_refused():
    with pytest.raises(InvalidInputError, match="labels must have shape"):
        expert_costs(ANSWERS, LABELS[:2], [0, 0], "error")


def test_accuracy_is_split_by_the_own_classes():
    assert accuracy([0, 0, 5, 5], [0, 1, 5, 4], [0, 1]) == Accuracy(0.5, 0.5, 0.5)
    assert accuracy([0, 1], [0, 2], None) == Accuracy(0.5, None, None)
    assert accuracy([0, 0], [0, 1], [0, 1]).others is None


def test_accuracies_of_synthetic_experts_are_perfect_on_their_own(make_images):
    data = make_images(n_test=300)
    answers = synthetic_answers(data, SETUPS["I"], 0)
    owners = SETUPS["I"].owners(10)
    found = [
        accuracy(answers.test[:, k], data.test_labels, np.flatnonzero(owners == k))
        for k in range(3)
    ]
    assert [one.own for one in found] == [1.0, 1.0, 1.0]
    for one, share in zip(found, (0.7, 0.2, 0.1), strict=True):
        assert one.others == pytest.approx(0.1, abs=0.05)
        assert one.overall == pytest.approx(share + (1 - share) * one.others)


def test_experts_are_named_by_their_classes():
    assert class_names(SETUPS["I"].owners(10)) == ("classes 0-6", "classes 7-8", "class 9")
    assert class_names(SETUPS["severe"].owners(200)) == ("classes 0-179", "classes 180-199")


def test_importing_experts_imports_no_torch():
    code = "import sys, mild.reproduce.experts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

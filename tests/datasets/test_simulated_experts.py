"""Simulated experts: how often they are right, and where."""

from __future__ import annotations

import numpy as np
import pytest

from mild.datasets import (
    expert_by_group,
    expert_on_first_classes,
    probabilistic_expert,
    random_annotator,
    with_missing_answers,
    within_capacity,
)
from mild.errors import InvalidInputError

Y = np.tile(np.arange(10), 2000)


def test_the_expert_knows_the_first_classes_and_guesses_the_others():
    answers = expert_on_first_classes(Y, 3, 10)
    known = Y < 3
    assert (answers[known] == Y[known]).all()
    assert (answers[~known] == Y[~known]).mean() == pytest.approx(0.1, abs=0.01)
    assert np.bincount(answers[~known]) / (~known).sum() == pytest.approx(0.1, abs=0.01)


def test_no_class_and_all_classes():
    assert (expert_on_first_classes(Y, 10, 10) == Y).all()
    assert (expert_on_first_classes(Y, 0, 10) == Y).mean() == pytest.approx(0.1, abs=0.01)


def test_the_expert_of_a_group():
    groups = np.repeat(["north", "south"], len(Y) // 2)
    is_right = expert_by_group(Y, groups, ["south"], 10) == Y
    assert is_right[groups == "south"].all()
    assert is_right[groups == "north"].mean() == pytest.approx(0.1, abs=0.01)


def test_probability_of_being_right():
    answers = probabilistic_expert(Y, 0.7, 10)
    assert (answers == Y).mean() == pytest.approx(0.7, abs=0.01)
    wrong = answers[(answers != Y) & (Y == 4)]
    counts = np.bincount(wrong, minlength=10)
    assert counts[4] == 0
    assert np.delete(counts, 4) / len(wrong) == pytest.approx(1 / 9, abs=0.04)


def test_probability_of_each_row():
    accuracy = np.where(Y < 5, 1.0, 0.0)
    assert ((probabilistic_expert(Y, accuracy, 10) == Y) == (Y < 5)).all()


def test_an_annotator_is_drawn_in_proportion_to_the_votes():
    votes = np.tile([[1, 0, 3]], (8000, 1))
    shares = np.bincount(random_annotator(votes), minlength=3) / 8000
    assert shares == pytest.approx([0.25, 0, 0.75], abs=0.02)


def test_missing_answers():
    answers = with_missing_answers(np.column_stack([Y, Y]), 0.3)
    assert np.isnan(answers).mean(axis=0) == pytest.approx(0.3, abs=0.02)
    known = ~np.isnan(answers)
    assert (answers == Y[:, None])[known].all()


def test_capacity_holds_in_every_batch_and_keeps_the_most_urgent():
    rng = np.random.default_rng(0)
    deferred_to = rng.integers(-1, 2, size=95)
    priority = rng.normal(size=95)
    limited = within_capacity(deferred_to, priority, 3, 10)
    assert ((limited == deferred_to) | (limited == -1)).all()
    for start in range(0, 95, 10):
        batch = slice(start, start + 10)
        for expert in (0, 1):
            wanted = np.sort(priority[batch][deferred_to[batch] == expert])[::-1]
            given = np.sort(priority[batch][limited[batch] == expert])[::-1]
            assert given.tolist() == wanted[:3].tolist()


def test_equal_seeds_give_equal_answers():
    first = probabilistic_expert(Y, 0.5, 10, random_state=7)
    assert (first == probabilistic_expert(Y, 0.5, 10, random_state=7)).all()
    assert (first != probabilistic_expert(Y, 0.5, 10, random_state=8)).any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expert_on_first_classes([0, 5], 1, 3), "y must lie in"),
        (lambda: expert_on_first_classes([0, 1], 4, 3), "n_known"),
        (lambda: expert_by_group([0, 1], ["a"], ["a"], 2), "groups must have shape"),
        (lambda: probabilistic_expert([0, 1], 1.5, 2), "accuracy"),
        (lambda: probabilistic_expert([0, 1], [0.5, 2], 2), "every row"),
        (lambda: random_annotator([[0, 0], [1, 1]]), "row 0 has none"),
        (lambda: random_annotator([[0.5, 0.5]]), "integers"),
        (lambda: with_missing_answers([0], 2), "rate"),
        (lambda: within_capacity([0], [1.0], -1, 10), "capacity"),
    ],
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()

"""Synthetic experts: right on their own classes, uniform elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.experts import SETUPS, parse_coverage, synthetic_answers


@pytest.mark.parametrize("n_classes", [10, 100])
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_every_expert_is_always_right_on_its_own_classes(setup, n_classes, make_images):
    data = make_images(n_classes, per_class=5, n_test=3)
    answers = synthetic_answers(data, setup, 7)
    owners = setup.owners(n_classes)
    for found, labels in ((answers.train, data.train_labels), (answers.test, data.test_labels)):
        assert found.shape == (len(labels), setup.n_experts)
        own = found[np.arange(len(labels)), owners[labels]]
        np.testing.assert_array_equal(own, labels)


@pytest.mark.parametrize("n_classes", [10, 40])
def test_elsewhere_answers_are_uniform_over_all_classes(n_classes, make_images):
    data = make_images(n_classes, per_class=2000, n_test=1)
    answers = synthetic_answers(data, SETUPS["severe"], 0).train
    elsewhere = SETUPS["severe"].owners(n_classes)[data.train_labels] == 0
    guesses, labels = answers[elsewhere, 1], data.train_labels[elsewhere]
    error = 5 * np.sqrt(1 / n_classes / len(guesses))
    share = np.bincount(guesses, minlength=n_classes) / len(guesses)
    assert np.abs(share - 1 / n_classes).max() < error
    assert abs((guesses == labels).mean() - 1 / n_classes) < error


def test_answers_depend_on_the_seed_alone(images):
    first, again, other = (synthetic_answers(images, SETUPS["II"], seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.train, again.train)
    np.testing.assert_array_equal(first.test, again.test)
    assert (first.train != other.train).any()
    assert (first.test != other.test).any()


def test_guesses_are_independent_across_experts_seeds_and_parts(make_images):
    data = make_images(per_class=600, n_test=600)
    # The last two experts guess on the first eight classes.
    setup = SETUPS["III"]
    guessed = (data.train_labels < 8) & (data.test_labels < 8)
    one, two = (synthetic_answers(data, setup, seed) for seed in (0, 1))
    pairs = [
        (one.train[guessed, 3], one.train[guessed, 4]),
        (one.train[guessed, 4], one.test[guessed, 4]),
        (one.train[guessed, 4], two.train[guessed, 4]),
    ]
    for first, second in pairs:
        error = 5 * np.sqrt(0.09 / len(first))
        assert abs((first == second).mean() - 0.1) < error


def test_an_expert_with_the_same_classes_in_two_setups_is_the_same(images):
    first = synthetic_answers(images, SETUPS["I"], 0)
    second = synthetic_answers(images, parse_coverage("0.5,0.2,0.2,0.1"), 0)
    np.testing.assert_array_equal(first.train[:, 2], second.train[:, 3])
    assert (first.train[:, 0] != second.train[:, 0]).any()


def test_a_router_may_train_on_every_row_and_prices_are_the_coverage(images):
    answers = synthetic_answers(images, SETUPS["I"], 0)
    assert answers.kind == "synthetic"
    np.testing.assert_array_equal(answers.router_rows, np.arange(300))
    np.testing.assert_array_equal(answers.prices, [0.7, 0.2, 0.1])
    assert answers.names == ("classes 0-6", "classes 7-8", "class 9")


def test_a_negative_seed_is_refused(images):
    with pytest.raises(InvalidInputError, match="seed must be a non-negative integer; got -1"):
        synthetic_answers(images, SETUPS["I"], -1)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_guesses_are_right_on_the_share_of_rows_that_is_asked_for(share, make_images):
    data = make_images(10, per_class=2000, n_test=1)
    answers = synthetic_answers(data, SETUPS["I"], 0, share).train
    right = (answers == data.train_labels[:, None]).sum(axis=1)
    assert (right >= 1).all()
    error = 5 * np.sqrt(share * (1 - share) / len(right))
    assert abs((right > 1).mean() - share) <= error

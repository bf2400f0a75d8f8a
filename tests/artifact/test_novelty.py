"""Scores of inputs against those of held-out ones."""

import numpy as np
import pytest

from mild.artifact.novelty import LEVELS, Novelty
from mild.features import HashingFeatures


@pytest.fixture
def novelty():
    """Held-out scores are uniform on [0, 1]; two centres in the plane."""
    centres = np.array([[0.0, 0.0], [10.0, 0.0]])
    return Novelty(centres, np.array([2.0, 0.5]), LEVELS, np.array([[0.2, 0.4, 0.6]]))


def test_the_score_is_the_sum_of_distance_and_unseen_share(novelty):
    X = np.array([[0.0, 1.0], [10.0, 0.0], [13.0, 4.0]])
    found = novelty.scores(X, np.array([0.0, 0.2, 0.1]))
    np.testing.assert_allclose(found, [0.5, 0.4, 2.7])
    many = novelty.scores(np.tile(X, (12_000, 1)), np.zeros(36_000))
    np.testing.assert_allclose(many[-3:], [0.5, 0.0, 2.5])


def test_beyond_the_99th_percentile_an_input_is_novel(novelty):
    scores = np.array([0.0, 0.9, 0.945, 0.99, 0.991, 7.0])
    np.testing.assert_allclose(novelty.shares(scores), [0, 0.9, 0.945, 0.99, 0.991, 1.0])
    assert novelty.is_novel(scores).tolist() == [False] * 4 + [True] * 2


def test_held_out_inputs_that_are_all_alike_make_every_other_one_novel(novelty):
    flat = Novelty(novelty.centres, novelty.scales, np.zeros(201), novelty.means)
    assert flat.is_novel(np.array([0.0, 0.1])).tolist() == [False, True]


def test_without_an_expert_its_mean_is_gone(novelty):
    np.testing.assert_array_equal(novelty.with_experts(np.array([0, 2])).means, [[0.2, 0.6]])


def test_unseen_shares_count_the_terms_that_no_training_text_has():
    texts = ["red green", "green blue", "blue red"]
    features = HashingFeatures(n_components=2).fit(texts)
    known, half, none, empty = features.unseen_shares(["red green", "red zzz", "zzz yyy", ""])
    assert (known, none, empty) == (0.0, 1.0, 1.0)
    assert 0 < half < 1
    # "yellow" is known only where it was in the texts that were seen.
    first, second = features.held_out_shares([*texts, "yellow"], ["yellow", "violet"])
    assert (first, second) == (0.0, 1.0)
    assert features.unseen_shares(["yellow"])[0] == 1.0

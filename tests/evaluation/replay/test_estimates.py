"""Estimates against a world in which the truth is known."""

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.evaluation.replay.estimates import (
    Episodes,
    doubly_robust,
    expected_costs,
    inverse_propensity,
    logged_mean,
    self_normalised,
)

N_EXPERTS, WIDTH = 3, 6
LOGS = 500


class World:
    """Queries, an old router that explored, a new router, and costs that no linear model has right."""

    def __init__(self, explore, pinned=0.0, draws=2000):
        rng = np.random.default_rng(7)
        self.old = rng.normal(size=(WIDTH, N_EXPERTS))
        self.new = self.old + rng.normal(size=(WIDTH, N_EXPERTS))
        self.slopes = 0.2 * rng.normal(size=(WIDTH, N_EXPERTS))
        self.explore, self.pinned, self.draws = explore, pinned, draws

    def log(self, seed, draws=None):
        """Episodes, the model's expectations, and the true mean cost of the new router on these rows.

        With a number of draws, there are so many and no model.
        """
        rng = np.random.default_rng(seed)
        count = draws or self.draws
        lengths = np.where(rng.random(count) < self.pinned, rng.integers(2, 6, count), 1)
        episode = np.repeat(np.arange(count), lengths)
        first = np.cumsum(lengths) - lengths
        X = rng.normal(size=(episode.size, WIDTH))
        best = (X[first] @ self.old).argmax(axis=1)
        wanted = (X[first] @ self.new).argmax(axis=1)
        chances = np.full((count, N_EXPERTS), self.explore / N_EXPERTS)
        chances[np.arange(count), best] += 1 - self.explore
        drawn = (rng.random(count)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
        means = np.exp(X @ self.slopes) * [0.5, 1.0, 2.0]
        rows = np.arange(episode.size)
        costs = means[rows, drawn[episode]] * rng.gamma(2, 0.5, episode.size)
        episodes = Episodes(
            drawn,
            chances[np.arange(count), drawn],
            np.eye(N_EXPERTS)[wanted],
            lengths.astype(float),
            np.bincount(episode, costs),
        )
        truth = float(means[rows, wanted[episode]].mean())
        if draws is not None:
            return episodes, None, truth
        model = expected_costs(X, drawn[episode], costs, episode, N_EXPERTS)
        expected = np.column_stack([np.bincount(episode, column) for column in model.T])
        return episodes, expected, truth

    def truth(self):
        return float(np.mean([self.log(10**6 + seed, 20_000)[2] for seed in range(60)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [World(explore=0.3), World(explore=0.3, pinned=0.2), World(explore=0.1, draws=5000)],
    ids=["alone", "sessions", "little exploration"],
)
def test_intervals_cover_and_the_estimates_are_not_biased(world):
    truth = world.truth()
    means, covered = [], []
    for seed in range(LOGS):
        episodes, expected, _ = world.log(seed)
        found = [
            inverse_propensity(episodes),
            self_normalised(episodes),
            doubly_robust(episodes, expected),
        ]
        means.append([estimate.mean for estimate in found])
        covered.append([estimate.low <= truth <= estimate.high for estimate in found])
    coverage = np.mean(covered, axis=0)
    assert ((coverage >= 0.93) & (coverage <= 0.97)).all(), coverage
    spread = np.std(means, axis=0)
    bias = (np.mean(means, axis=0) - truth) / (spread / np.sqrt(LOGS))
    # Inverse propensity and doubly robust have no bias at all; the other one fades with the log's size.
    assert np.abs(bias[[0, 2]]).max() < 3.5, bias
    assert spread[2] < 0.8 * spread[0]
    assert spread[2] < spread[1]


def test_the_difference_is_judged_on_the_same_draws():
    world = World(explore=0.3)
    episodes, expected, _ = world.log(3)
    new, logged = doubly_robust(episodes, expected), logged_mean(episodes)
    gap = new.minus(logged)
    assert gap.mean == new.mean - logged.mean
    # The draws are shared: the difference is surer than two separate logs would make it.
    assert gap.standard_error < np.hypot(new.standard_error, logged.standard_error)


def test_the_logging_policy_itself_is_estimated_by_what_was_paid():
    rng = np.random.default_rng(0)
    chances = np.full((500, 2), 0.5)
    drawn = rng.integers(0, 2, 500)
    episodes = Episodes(drawn, chances[:, 0], chances, np.ones(500), rng.random(500))
    assert np.allclose(episodes.weights, 1)
    paid = logged_mean(episodes)
    for estimate in (inverse_propensity(episodes), self_normalised(episodes)):
        assert estimate.mean == pytest.approx(paid.mean)
        assert estimate.standard_error == pytest.approx(paid.standard_error)


def test_doubly_robust_with_a_perfect_model_has_no_noise_from_the_draws():
    rng = np.random.default_rng(0)
    costs = np.array([1.0, 3.0])
    drawn = (rng.random(400) < 0.1).astype(int)
    episodes = Episodes(
        drawn, np.where(drawn, 0.1, 0.9), np.array([[0.0, 1.0]] * 400), np.ones(400), costs[drawn]
    )
    perfect = np.tile(costs, (400, 1))
    exact = doubly_robust(episodes, perfect)
    assert (exact.mean, exact.low, exact.high) == pytest.approx((3.0, 3.0, 3.0))
    assert inverse_propensity(episodes).standard_error > 0.1


def test_doubly_robust_does_not_need_a_good_model():
    world = World(explore=1.0)
    truth = world.truth()
    found = []
    for seed in range(60):
        episodes, expected, _ = world.log(seed)
        found.append(doubly_robust(episodes, np.full_like(expected, 5.0)).mean)
    assert abs(np.mean(found) - truth) < 3.5 * np.std(found) / np.sqrt(60)


def test_draws_of_an_expert_that_is_gone_have_no_weight():
    episodes = Episodes(
        np.array([0, -1, 0]),
        np.full(3, 0.5),
        np.ones((3, 1)),
        np.ones(3),
        np.array([1.0, 9.0, 2.0]),
    )
    assert episodes.weights.tolist() == [2.0, 0.0, 2.0]
    assert inverse_propensity(episodes).mean == 2.0
    assert doubly_robust(episodes, np.zeros((3, 1))).mean == 2.0


def test_no_draws_and_one_draw_are_not_called_certain():
    none = Episodes(np.empty(0, int), np.empty(0), np.empty((0, 2)), np.empty(0), np.empty(0))
    assert np.isnan(inverse_propensity(none).mean)
    one = Episodes(np.array([0]), np.array([0.5]), np.array([[1.0]]), np.ones(1), np.ones(1))
    assert inverse_propensity(one).high == np.inf


def test_expectations_of_another_shape_are_refused():
    one = Episodes(np.array([0]), np.array([0.5]), np.array([[1.0]]), np.ones(1), np.ones(1))
    with pytest.raises(InvalidInputError, match="expected must have the shape of target"):
        doubly_robust(one, np.ones((1, 2)))

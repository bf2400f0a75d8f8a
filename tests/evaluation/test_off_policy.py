"""Estimates against a world in which the truth is known."""

from functools import cache

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.evaluation import (
    LoggedAnswers,
    doubly_robust,
    inverse_propensity,
    self_normalised,
)

N_EXPERTS, WIDTH = 3, 6
LOGS = 500


class World:
    """Queries, an old router that explored, a new router, and costs that no linear model has right."""

    def __init__(self, explore, pinned=0.0, draws=2000):
        self.explore, self.pinned, self.draws = explore, pinned, draws

    def log(self, seed):
        """Answers, their costs, the new router's choices and what the model expects."""
        rng = np.random.default_rng(seed)
        n_draws = self.draws
        X, episode, first = draw_queries(rng, n_draws, self.pinned)
        best = (X[first] @ OLD_SLOPES).argmax(axis=1)
        wanted = (X[first] @ NEW_SLOPES).argmax(axis=1)
        chances = np.full((n_draws, N_EXPERTS), self.explore / N_EXPERTS)
        chances[np.arange(n_draws), best] += 1 - self.explore
        drawn = (rng.random(n_draws)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
        propensity = chances[np.arange(n_draws), drawn]
        costs = mean_costs(X, drawn[episode]) * rng.gamma(2, 0.5, episode.size)
        ones = np.ones(episode.size)
        answers = LoggedAnswers(drawn[episode], propensity[episode], ones, ones, episode)
        target = np.eye(N_EXPERTS)[wanted[episode]]
        return answers, costs, target, linear_model()(X)

    def truth(self):
        """The mean cost of the new router."""
        return true_cost(self.pinned)


WORLD_RNG = np.random.default_rng(7)
OLD_SLOPES = WORLD_RNG.normal(size=(WIDTH, N_EXPERTS))
NEW_SLOPES = OLD_SLOPES + WORLD_RNG.normal(size=(WIDTH, N_EXPERTS))
COST_SLOPES = 0.2 * WORLD_RNG.normal(size=(WIDTH, N_EXPERTS))
COST_FACTORS = np.array([0.5, 1.0, 2.0])


def draw_queries(rng, n_draws, pinned):
    """Queries, the draw that each belongs to, and the first query of each draw."""
    lengths = np.where(rng.random(n_draws) < pinned, rng.integers(2, 6, n_draws), 1)
    episode = np.repeat(np.arange(n_draws), lengths)
    first = np.cumsum(lengths) - lengths
    X = rng.normal(size=(episode.size, WIDTH))
    return X, episode, first


def mean_costs(X, experts):
    """The mean cost of each query, given the expert that answers it."""
    rows = np.arange(len(X))
    return np.exp((X @ COST_SLOPES)[rows, experts]) * COST_FACTORS[experts]


@cache
def linear_model():
    """Expected costs of other queries, by least squares for each expert."""
    X = np.random.default_rng(1).normal(size=(3000, WIDTH + 1))
    X[:, 0] = 1
    costs = [mean_costs(X[:, 1:], np.full(len(X), expert)) for expert in range(N_EXPERTS)]
    slopes, *_ = np.linalg.lstsq(X, np.column_stack(costs))
    return lambda Z: slopes[0] + Z @ slopes[1:]


@cache
def true_cost(pinned):
    """The mean cost of the new router, which does not depend on how the old one explored."""
    means = []
    for seed in range(60):
        rng = np.random.default_rng(10**6 + seed)
        X, episode, first = draw_queries(rng, 20_000, pinned)
        wanted = (X[first] @ NEW_SLOPES).argmax(axis=1)
        means.append(mean_costs(X, wanted[episode]).mean())
    return float(np.mean(means))


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
        answers, costs, target, expected = world.log(seed)
        estimates = [
            inverse_propensity(answers, costs, target),
            self_normalised(answers, costs, target),
            doubly_robust(answers, costs, target, expected),
        ]
        intervals = [estimate.interval for estimate in estimates]
        means.append([interval.estimate for interval in intervals])
        covered.append([interval.low <= truth <= interval.high for interval in intervals])
    coverage = np.mean(covered, axis=0)
    assert ((coverage >= 0.93) & (coverage <= 0.97)).all(), coverage
    spread = np.std(means, axis=0)
    bias = (np.mean(means, axis=0) - truth) / (spread / np.sqrt(LOGS))
    # Inverse propensity and doubly robust have no bias at all; the other one fades with the log's size.
    assert np.abs(bias[[0, 2]]).max() < 3.5, bias
    assert spread[2] < 0.8 * spread[0]
    assert spread[2] < spread[1]


# Mean cost of three experts on two kinds of queries, and what the old and the new router choose.
KIND_COSTS = np.array([[0.3, 0.2, 0.6], [0.5, 0.7, 0.2]])
OLD, NEW = np.array([0, 0]), np.array([1, 2])


def sampled_log(seed, answers_per_request=1, model=KIND_COSTS, n=1500):
    """Answers of which some kinds of queries were graded more often than others, and their costs.

    Choices of the old and of the new router, and the model's expectations, follow.
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, n)
    chances = np.full((n, 3), 0.1)
    chances[np.arange(n), OLD[kind]] += 0.7
    expert = (rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    propensity = chances[np.arange(n), expert]
    request = np.arange(n)
    if answers_per_request == 2:
        # The next expert is asked at the same time: each is asked in two of the draws.
        expert = np.concatenate([expert, (expert + 1) % 3])
        request = np.tile(request, 2)
        propensity = chances[request, expert] + chances[request, (expert - 1) % 3]
    rate = np.where(kind == 0, 0.3, 1.0)
    graded = (rng.random(n) < rate)[request]
    expert, propensity, request = expert[graded], propensity[graded], request[graded]
    weight = 1 / rate[request]
    answers = LoggedAnswers(expert, propensity, weight, weight / answers_per_request, request)
    kind = kind[request]
    costs = (rng.random(len(expert)) < KIND_COSTS[kind, expert]).astype(float)
    return answers, costs, np.eye(3)[OLD[kind]], np.eye(3)[NEW[kind]], np.asarray(model)[kind]


@pytest.mark.parametrize("answers_per_request", [1, 2])
@pytest.mark.parametrize("model", [KIND_COSTS, [[0.9, 0.1, 0.5], [0.0, 0.3, 0.9]]])
def test_samples_and_several_answers_to_a_request_do_not_bias(model, answers_per_request):
    """The difference of two routers, also with a model that is wrong."""
    truth = np.mean(KIND_COSTS[[0, 1], NEW] - KIND_COSTS[[0, 1], OLD])
    robust, weighted, covered = [], [], []
    for seed in range(200):
        log = sampled_log(seed, answers_per_request, model)
        answers, costs, old, new, expected = log
        new_cost = doubly_robust(answers, costs, new, expected, 0.9)
        gap = new_cost.minus(doubly_robust(answers, costs, old, expected, 0.9)).interval
        robust.append(gap.estimate)
        covered.append(gap.low <= truth <= gap.high)
        new_cost = self_normalised(answers, costs, new)
        weighted.append(new_cost.minus(self_normalised(answers, costs, old)).interval.estimate)
    assert abs(np.mean(robust) - truth) < 3.5 * np.std(robust) / np.sqrt(200)
    # 0.9, within four standard errors.
    assert 0.815 <= np.mean(covered) <= 0.985
    # This one is biased a little in small logs.
    assert abs(np.mean(weighted) - truth) < 4 * np.std(weighted) / np.sqrt(200) + 0.005


def test_three_answers_by_hand():
    """Two requests: one was sampled at a rate of 1/2, the other has answers of both experts."""
    answers = LoggedAnswers(
        expert=np.array([0, 0, 1]),
        propensity=np.array([0.5, 1.0, 0.25]),
        weight=np.array([2.0, 1.0, 1.0]),
        share=np.array([2.0, 0.5, 0.5]),
        episode=np.array([7, 8, 8]),
    )
    costs = np.array([1.0, 3.0, 2.0])
    target = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    expected = np.array([[0.5, 4.0], [2.0, 1.5], [2.0, 1.5]])
    # Weights times probability ratios are 4, 0 and 4, for 3 requests.
    assert inverse_propensity(answers, costs, target).interval.estimate == pytest.approx(12 / 3)
    assert self_normalised(answers, costs, target).interval.estimate == pytest.approx(12 / 8)
    # 2 * 0.5 + 4 * 0.5 for the first request, 0.5 * 1.5 + 0.5 * 1.5 + 4 * 0.5 for the second.
    robust = doubly_robust(answers, costs, target, expected)
    mean = (3 + 3.5) / 3
    assert robust.interval.estimate == pytest.approx(mean)
    # Two episodes of 2 and 1 requests; the mean is 1.5 per episode.
    parts = np.array([3 - 2 * mean, 3.5 - mean]) / 1.5
    assert robust.parts == pytest.approx(parts)
    assert robust.interval.standard_error == pytest.approx(np.sqrt(np.mean(parts**2)))


def test_a_session_counts_once():
    """Ten requests of one draw are as uncertain as one."""
    answers, costs, _, target, expected = sampled_log(0)
    alone = doubly_robust(answers, costs, target, expected).interval
    order = np.lexsort((answers.expert, expected[:, 0]))
    fields = {name: getattr(answers, name)[order] for name in answers.__dataclass_fields__}
    fields["episode"] = np.arange(len(costs)) // 10
    sessions = LoggedAnswers(**fields)
    together = doubly_robust(sessions, costs[order], target[order], expected[order]).interval
    assert together.estimate == pytest.approx(alone.estimate)
    assert together.standard_error > alone.standard_error


def test_the_difference_is_judged_on_the_same_draws():
    answers, costs, target, expected = World(explore=0.3).log(3)
    new = doubly_robust(answers, costs, target, expected)
    other = inverse_propensity(answers, costs, np.roll(target, 1, axis=1))
    gap = new.minus(other).interval
    assert gap.estimate == new.interval.estimate - other.interval.estimate
    same = new.minus(new).interval
    assert (same.estimate, same.low, same.high) == (0, 0, 0)


def test_the_logging_policy_itself_is_estimated_by_what_was_paid():
    rng = np.random.default_rng(0)
    target = np.full((500, 2), 0.5)
    answers = LoggedAnswers.one_per_request(rng.integers(0, 2, 500), target[:, 0])
    costs = rng.random(500)
    assert np.allclose(answers.ratios(target), 1)
    for estimator in (inverse_propensity, self_normalised):
        assert estimator(answers, costs, target).interval.estimate == pytest.approx(costs.mean())


def test_doubly_robust_with_a_perfect_model_has_no_noise_from_the_draws():
    rng = np.random.default_rng(0)
    expert_costs = np.array([1.0, 3.0])
    drawn = (rng.random(400) < 0.1).astype(int)
    answers = LoggedAnswers.one_per_request(drawn, np.where(drawn, 0.1, 0.9))
    costs, target = expert_costs[drawn], np.array([[0.0, 1.0]] * 400)
    exact = doubly_robust(answers, costs, target, np.tile(expert_costs, (400, 1))).interval
    assert (exact.estimate, exact.low, exact.high) == pytest.approx((3.0, 3.0, 3.0))
    assert inverse_propensity(answers, costs, target).interval.standard_error > 0.1


def test_doubly_robust_does_not_need_a_good_model():
    world = World(explore=1.0)
    truth = world.truth()
    means = []
    for seed in range(60):
        answers, costs, target, expected = world.log(seed)
        poor = np.full_like(expected, 5.0)
        means.append(doubly_robust(answers, costs, target, poor).interval.estimate)
    assert abs(np.mean(means) - truth) < 3.5 * np.std(means) / np.sqrt(60)


def test_answers_of_an_expert_that_is_gone_have_no_weight():
    answers = LoggedAnswers.one_per_request(np.array([0, -1, 0]), np.full(3, 0.5))
    costs, target = np.array([1.0, 9.0, 2.0]), np.ones((3, 1))
    assert answers.ratios(target).tolist() == [2.0, 0.0, 2.0]
    assert inverse_propensity(answers, costs, target).interval.estimate == 2.0
    assert doubly_robust(answers, costs, target, np.zeros((3, 1))).interval.estimate == 2.0


def test_no_answers_and_one_answer_are_not_called_certain():
    none = LoggedAnswers.one_per_request(np.empty(0, int), np.empty(0))
    assert np.isnan(inverse_propensity(none, np.empty(0), np.empty((0, 2))).interval.estimate)
    one = LoggedAnswers.one_per_request(np.array([0]), np.array([0.5]))
    assert inverse_propensity(one, np.ones(1), np.ones((1, 1))).interval.high == np.inf


def test_expectations_of_another_shape_are_refused():
    one = LoggedAnswers.one_per_request(np.array([0]), np.array([0.5]))
    with pytest.raises(InvalidInputError, match="expected must have the shape of target"):
        doubly_robust(one, np.ones(1), np.ones((1, 1)), np.ones((1, 2)))

"""The confidence cascade: its order, thresholds, prices and bad parameters."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from experiments.score_cascade import (
    ScoreCascadePolicy,
    ScoreCascadeRouter,
    cascade_thresholds,
)
from mild.errors import InvalidInputError


def problem(n=200, seed=0):
    """Two confidence columns that tell where a cheap expert errs; the last expert is always right."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 4))
    errors = np.column_stack([X[:, 0] < 0.5, X[:, 1] < 0.3, np.zeros(n, bool)])
    return X, errors + np.array([0.05, 0.2, 0.6])


def walk(confidence, order, thresholds):
    for place, expert in enumerate(order[:-1]):
        if confidence[expert] >= thresholds[place]:
            return expert
    return order[-1]


def test_follows_the_order_and_stops_at_the_first_trusted_expert():
    X, costs = problem()
    router = ScoreCascadeRouter(order=[1, 0, 2], confidence_columns=[0, 1, 2]).fit(X, costs)
    expected = [walk(x, [1, 0, 2], router.thresholds_) for x in X]
    assert_array_equal(router.predict(X), expected)
    assert_array_equal(router.decision_function(X).argmax(axis=1), expected)


def test_finds_the_thresholds_that_the_data_were_made_with():
    X, costs = problem(n=2000)
    router = ScoreCascadeRouter(
        order=[0, 1, 2], confidence_columns=[0, 1, 2], n_thresholds=100
    ).fit(X, costs)
    assert_allclose(router.thresholds_, [0.5, 0.3], atol=0.02)
    assert router.score(X, costs) > -0.2


def test_learned_confidence_beats_the_best_constant():
    X, costs = problem(n=600)
    router = ScoreCascadeRouter().fit(X[:400], costs[:400])
    assert router.score(X[400:], costs[400:]) > -costs[400:].mean(axis=0).min() + 0.1


def test_the_default_order_is_from_weak_to_strong():
    X, costs = problem()
    assert_array_equal(ScoreCascadeRouter().fit(X, costs).order_, np.argsort(-costs.mean(axis=0)))
    tied = np.ones((200, 3))
    assert ScoreCascadeRouter().fit(X, tied).order_[-1] == 0


def test_with_prices_the_order_is_from_cheap_to_dear():
    X, costs = problem()
    router = ScoreCascadeRouter(prices=[0.3, 0.1, 0.2]).fit(X, costs)
    assert_array_equal(router.order_, [1, 2, 0])
    assert_array_equal(ScoreCascadeRouter(order=["expert_2", 0, 1]).fit(X, costs).order_, [2, 0, 1])


def test_experts_asked_on_the_way_are_paid_for():
    X, costs = problem()
    prices = np.array([0.05, 0.2, 0.6])
    router = ScoreCascadeRouter(prices=prices, confidence_columns=[0, 1, 2]).fit(X, costs)
    chosen = router.predict(X)
    paid = np.array([0.0, 0.05, 0.25])[chosen]
    total = costs[np.arange(len(X)), chosen] + paid
    assert router.score(X, costs) == pytest.approx(-total.mean())
    free = ScoreCascadeRouter(prices=prices, confidence_columns=[0, 1, 2], pay_for_asked=False)
    free.fit(X, costs)
    alone = costs[np.arange(len(X)), free.predict(X)].mean()
    assert free.score(X, costs) == pytest.approx(-alone)


def test_what_lies_behind_a_dear_expert_is_not_worth_going_to():
    X, costs = problem()
    options = {"order": [1, 0, 2], "prices": [0.0, 5.0, 0.0], "confidence_columns": [0, 1, 2]}
    assert_array_equal(ScoreCascadeRouter(**options).fit(X, costs).predict(X), 1)
    free = ScoreCascadeRouter(**options, pay_for_asked=False).fit(X, costs)
    assert (free.predict(X) != 1).any()


def test_without_an_expert_forgets_its_price():
    X, costs = problem()
    router = ScoreCascadeRouter(prices=[0.05, 0.2, 0.6], confidence_columns=[0, 1, 2]).fit(X, costs)
    left = router.without(1)
    chosen = left.predict(X)
    total = costs[:, [0, 2]][np.arange(len(X)), chosen] + np.array([0.0, 0.05])[chosen]
    assert left.score(X, costs[:, [0, 2]]) == pytest.approx(-total.mean())
    assert_array_equal(router.prices_, [0.05, 0.2, 0.6])


def test_missing_costs_do_not_make_an_expert_attractive():
    X, costs = problem()
    thin = costs.copy()
    thin[20:, 0] = np.nan
    router = ScoreCascadeRouter(order=[0, 1, 2], confidence_columns=[0, 1, 2]).fit(X, thin)
    assert np.isfinite(router.thresholds_).all()
    assert router.score(X, costs) > -0.7


def mean_cost(confidence, costs, thresholds):
    p = costs.shape[1]
    chosen = np.array([walk(row, range(p), thresholds) for row in confidence])
    return costs[np.arange(len(costs)), chosen].mean()


@pytest.mark.parametrize("seed", range(4))
def test_no_single_threshold_can_be_improved(seed):
    rng = np.random.default_rng(seed)
    confidence, costs = rng.uniform(size=(40, 4)), rng.uniform(size=(40, 4))
    found = cascade_thresholds(confidence, costs, np.full(40, 1 / 40), 40)
    best = mean_cost(confidence, costs, found)
    for place in range(3):
        for cut in [-1.0, *confidence[:, place], 2.0]:
            other = found.copy()
            other[place] = cut
            assert mean_cost(confidence, costs, other) >= best - 1e-12


def test_two_experts_get_the_best_threshold_of_all():
    rng = np.random.default_rng(0)
    confidence, costs = rng.uniform(size=(50, 2)), rng.uniform(size=(50, 2))
    found = cascade_thresholds(confidence, costs, np.full(50, 1 / 50), 50)
    every = [mean_cost(confidence, costs, [cut]) for cut in [-1.0, *confidence[:, 0], 2.0]]
    assert mean_cost(confidence, costs, found) == pytest.approx(min(every))


def test_thresholds_lie_between_training_rows():
    X, costs = problem()
    router = ScoreCascadeRouter(confidence_columns=[0, 1, 2]).fit(X, costs)
    for place, expert in enumerate(router.order_[:-1]):
        assert np.abs(X[:, expert] - router.thresholds_[place]).min() > 1e-9


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_sparse_confidence_columns_work_in_every_order(order):
    X, costs = problem()
    options = {"order": list(order), "confidence_columns": [0, 1, 3]}
    dense = ScoreCascadeRouter(**options).fit(X, costs)
    thin = ScoreCascadeRouter(**options).fit(sparse.csr_array(X), costs)
    assert_array_equal(thin.predict(sparse.csr_array(X)), dense.predict(X))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("order", [0, 1]),
        ("order", [0, 1, 1]),
        ("prices", [1, 2]),
        ("prices", [1, 2, -1]),
        ("prices", ["a", "b", "c"]),
        ("confidence_columns", [0, 1]),
        ("confidence_columns", [0, 1, 4]),
        ("confidence_columns", [0.0, 1, 2]),
        ("n_thresholds", 0),
        ("alpha", -1),
    ],
)
def test_a_bad_parameter_is_refused_by_name(name, value):
    X, costs = problem()
    with pytest.raises(InvalidInputError) as caught:
        ScoreCascadeRouter(**{name: value}).fit(X, costs)
    assert caught.value.code == f"invalid_{name}"


def test_an_unknown_expert_in_the_order_is_named():
    X, costs = problem()
    with pytest.raises(InvalidInputError, match="expert must be one of"):
        ScoreCascadeRouter(order=[0, 1, "expert_7"]).fit(X, costs)


def test_the_order_and_the_thresholds_stay_when_an_expert_goes():
    rng = np.random.default_rng(0)
    policy = ScoreCascadePolicy(
        rng.normal(size=(3, 4)), rng.normal(size=3), [2, 0, 1], np.array([0.7, 0.4]), None, 4
    )
    X = rng.normal(size=(300, 4))
    confidence = policy.confidence(X)
    assert_array_equal(policy.without(0).predict(X), np.where(confidence[:, 2] >= 0.7, 1, 0))
    assert_array_equal(policy.without(2).predict(X), np.where(confidence[:, 0] >= 0.4, 0, 1))


def test_the_score_singles_out_the_choice_also_for_huge_confidences():
    empty = np.zeros((0, 4)), np.zeros(0)
    policy = ScoreCascadePolicy(*empty, [1, 2, 0], np.array([0.5, 0.1]), [3, 0, 1], 4)
    X = np.random.default_rng(1).normal(size=(60, 4)) * 1e20
    assert_array_equal(policy.decision_function(X).argmax(axis=1), policy.predict(X))

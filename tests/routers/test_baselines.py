"""The best constant expert, chance, and perfect choice."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mild.errors import InvalidInputError, UnsupportedError
from mild.routers.baselines import ConstantRouter, OracleRouter, RandomRouter, mean_costs

X = np.zeros((3, 2))
COSTS = np.array([[0.0, 1.0, 0.6], [0.5, 0.0, 0.3], [1.0, 0.2, 0.3]])
SOME = np.array([[0.5, 0.5, 0.7], [np.nan, 0.4, 0.3], [0.1, 0.2, 0.3]])
RIGHT = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
FOUR = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: ConstantRouter(3), "invalid_expert"),
        (lambda: ConstantRouter(-1), "invalid_expert"),
        (lambda: ConstantRouter("expert_9"), "invalid_expert"),
        (lambda: RandomRouter([1, 1]), "invalid_shares"),
        (lambda: RandomRouter([1, -1, 1]), "invalid_shares"),
        (lambda: RandomRouter([0, 0, 0]), "invalid_shares"),
        (lambda: RandomRouter([1, np.nan, 1]), "invalid_shares"),
        (lambda: RandomRouter(["a", "b", "c"]), "invalid_shares"),
        (lambda: RandomRouter("unifrom"), "invalid_shares"),
    ],
)
def test_bad_options_are_refused(make, code):
    with pytest.raises(InvalidInputError) as caught:
        make().fit(X, COSTS)
    assert caught.value.code == code


# --- constant --------------------------------------------------------------------------------------


def test_takes_the_least_mean_cost_over_the_rows_that_asked_every_expert():
    costs = np.array([[0.9, 1.0], [np.nan, 0.2], [0.9, 0.9]])
    router = ConstantRouter().fit(X, costs)
    assert_allclose(router.mean_costs_, [0.9, 0.7])
    # The second expert is cheaper only by an easy row of its own.
    assert_array_equal(router.predict(X), 0)


def test_without_such_rows_each_is_judged_by_its_own():
    costs = np.array([[0.9, np.nan], [np.nan, 0.2], [0.9, np.nan]])
    assert ConstantRouter().fit(X, costs).expert_ == 1


def test_weights_count():
    assert ConstantRouter().fit(X, COSTS).expert_ == 1
    assert ConstantRouter().fit(X, COSTS, [10.0, 1.0, 1.0]).expert_ == 0


def test_ties_go_to_the_lowest_index():
    router = ConstantRouter().fit(X, np.ones((3, 3)))
    assert router.expert_ == 0
    assert_array_equal(router.decision_function(X).argmax(axis=1), 0)


@pytest.mark.parametrize("expert", [2, "expert_2"])
def test_a_named_expert_gets_everything(expert):
    router = ConstantRouter(expert).fit(X, COSTS)
    assert_array_equal(router.predict(X), 2)
    assert_array_equal(router.decision_function(X).argmax(axis=1), 2)


def test_without_the_named_expert_the_best_of_the_others_follows():
    router = ConstantRouter(2).fit(X, COSTS)
    assert router.without(0).expert_ == 1
    assert router.without(2).expert_ == 1
    assert_array_equal(router.without(0).predict(X), 1)


def test_an_expert_seen_only_with_weight_zero_is_not_chosen():
    costs = np.array([[0.0, 0.5], [np.nan, 0.5]])
    assert_array_equal(mean_costs(costs, np.array([0.0, 1.0])).argmin(), 1)
    assert ConstantRouter().fit(X[:2], costs, [0.0, 1.0]).expert_ == 1


# --- oracle ----------------------------------------------------------------------------------------


@pytest.fixture
def oracle():
    return OracleRouter().fit(X, SOME)


def test_takes_the_cheapest_asked_expert_ties_to_the_lowest_index(oracle):
    assert_array_equal(oracle.predict(X, SOME), [0, 2, 0])
    assert_array_equal(oracle.predict(X[:1], [[np.nan, 0.2, 0.1]]), [2])
    assert_array_equal(oracle.without(0).predict(X, SOME[:, 1:]), [0, 1, 0])


def test_scores_the_row_minima(oracle):
    assert oracle.score(X, SOME) == pytest.approx(-0.3)
    assert oracle.score(X, SOME, [1, 0, 1]) == pytest.approx(-0.3)
    assert oracle.score(X, SOME, [1, 0, 0]) == pytest.approx(-0.5)


def test_without_costs_it_is_the_best_constant_of_the_training_data(oracle):
    assert_array_equal(oracle.predict(X), 0)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3)])
def test_refuses_costs_of_another_shape(oracle, shape):
    for use in (oracle.predict, oracle.score):
        with pytest.raises(InvalidInputError) as caught:
            use(X, np.ones(shape))
        assert caught.value.code == "invalid_costs"


# --- random ----------------------------------------------------------------------------------------


def drawn_shares(router, n=40_000):
    chosen = router.predict(np.zeros((n, 2)))
    return np.bincount(chosen, minlength=router.n_experts_) / n


@pytest.mark.parametrize(
    ("shares", "expected"),
    [("uniform", [1 / 3] * 3), ("best", [0.5, 0.25, 0.25]), ([6, 0, 2], [0.75, 0, 0.25])],
)
def test_draws_with_the_asked_shares(shares, expected):
    router = RandomRouter(shares, random_state=0).fit(FOUR, RIGHT)
    assert_allclose(router.shares_, expected)
    assert_allclose(router.predict_proba(FOUR), np.tile(expected, (4, 1)))
    assert_allclose(drawn_shares(router), expected, atol=0.01)


def test_best_shares_are_weighted():
    router = RandomRouter("best").fit(FOUR, RIGHT, [1, 1, 6, 0])
    assert_allclose(router.shares_, [0.25, 0.75, 0])


def test_a_seed_repeats_and_none_does_not():
    many = np.zeros((200, 2))
    seeded = RandomRouter(random_state=3).fit(FOUR, RIGHT)
    assert_array_equal(seeded.predict(many), seeded.predict(many))
    free = RandomRouter().fit(FOUR, RIGHT)
    assert (free.predict(many) != free.predict(many)).any()


def test_an_expert_without_share_is_never_drawn():
    router = RandomRouter([0, 1, 0], random_state=0).fit(FOUR, RIGHT)
    assert_array_equal(router.predict(np.zeros((500, 2))), 1)
    assert np.isfinite(router.decision_function(FOUR)).all()
    assert_allclose(drawn_shares(router.without(1)), [0.5, 0.5], atol=0.01)


def test_without_keeps_the_proportions_of_the_others():
    router = RandomRouter([1, 2, 3], random_state=0).fit(FOUR, RIGHT)
    assert_allclose(router.without(1).shares_, [0.25, 0.75])


def test_chance_is_not_saved():
    with pytest.raises(UnsupportedError):
        RandomRouter().fit(FOUR, RIGHT).policy_.state()

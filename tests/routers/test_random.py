import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mild.errors import InvalidInputError, OptionError, UnsupportedError
from mild.routers.baselines import RandomRouter

X = np.zeros((4, 2))
COSTS = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])


def drawn_shares(router, n=40_000):
    chosen = router.predict(np.zeros((n, 2)))
    return np.bincount(chosen, minlength=router.n_experts_) / n


@pytest.mark.parametrize(
    ("shares", "expected"),
    [("uniform", [1 / 3] * 3), ("best", [0.5, 0.25, 0.25]), ([6, 0, 2], [0.75, 0, 0.25])],
)
def test_draws_with_the_asked_shares(shares, expected):
    router = RandomRouter(shares, random_state=0).fit(X, COSTS)
    assert_allclose(router.shares_, expected)
    assert_allclose(router.predict_proba(X), np.tile(expected, (4, 1)))
    assert_allclose(drawn_shares(router), expected, atol=0.01)


def test_best_shares_are_weighted():
    router = RandomRouter("best").fit(X, COSTS, [1, 1, 6, 0])
    assert_allclose(router.shares_, [0.25, 0.75, 0])


def test_a_seed_repeats_and_none_does_not():
    many = np.zeros((200, 2))
    seeded = RandomRouter(random_state=3).fit(X, COSTS)
    assert_array_equal(seeded.predict(many), seeded.predict(many))
    free = RandomRouter().fit(X, COSTS)
    assert (free.predict(many) != free.predict(many)).any()


def test_an_expert_without_share_is_never_drawn():
    router = RandomRouter([0, 1, 0], random_state=0).fit(X, COSTS)
    assert_array_equal(router.predict(np.zeros((500, 2))), 1)
    assert np.isfinite(router.decision_function(X)).all()
    assert_allclose(drawn_shares(router.without(1)), [0.5, 0.5], atol=0.01)


def test_without_keeps_the_proportions_of_the_others():
    router = RandomRouter([1, 2, 3], random_state=0).fit(X, COSTS)
    assert_allclose(router.without(1).shares_, [0.25, 0.75])


@pytest.mark.parametrize("shares", [[1, 1], [1, -1, 1], [0, 0, 0], [1, np.nan, 1], ["a", "b", "c"]])
def test_refuses_bad_shares(shares):
    with pytest.raises(InvalidInputError, match="shares must be"):
        RandomRouter(shares).fit(X, COSTS)


def test_refuses_an_unknown_name_with_a_hint():
    with pytest.raises(OptionError, match="Did you mean 'uniform'"):
        RandomRouter("unifrom").fit(X, COSTS)


def test_is_not_saved_and_says_why():
    policy = RandomRouter().fit(X, COSTS).policy_
    with pytest.raises(UnsupportedError, match="not saved"):
        policy.state()

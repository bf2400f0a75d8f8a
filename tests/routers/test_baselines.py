"""The best constant expert."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mild.errors import InvalidInputError
from mild.routers.baselines import ConstantRouter, mean_costs

X = np.zeros((3, 2))
COSTS = np.array([[0.0, 1.0, 0.6], [0.5, 0.0, 0.3], [1.0, 0.2, 0.3]])


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: ConstantRouter(3), "invalid_expert"),
        (lambda: ConstantRouter(-1), "invalid_expert"),
        (lambda: ConstantRouter("expert_9"), "invalid_expert"),
    ],
)
def test_bad_options_are_refused(make, code):
    with pytest.raises(InvalidInputError) as caught:
        make().fit(X, COSTS)
    assert caught.value.code == code


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

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mild.errors import InvalidInputError
from mild.routers.baselines import OracleRouter

X = np.zeros((3, 2))
COSTS = np.array([[0.5, 0.5, 0.7], [np.nan, 0.4, 0.3], [0.1, 0.2, 0.3]])


@pytest.fixture
def oracle():
    return OracleRouter().fit(X, COSTS)


def test_takes_the_cheapest_asked_expert_ties_to_the_lowest_index(oracle):
    assert_array_equal(oracle.predict(X, COSTS), [0, 2, 0])


def test_scores_the_row_minima(oracle):
    assert oracle.score(X, COSTS) == pytest.approx(-0.3)
    assert oracle.score(X, COSTS, [1, 0, 1]) == pytest.approx(-0.3)
    assert oracle.score(X, COSTS, [1, 0, 0]) == pytest.approx(-0.5)


def test_without_costs_it_is_the_best_constant_of_the_training_data(oracle):
    assert_array_equal(oracle.predict(X), 0)


def test_a_fold_may_lack_an_expert(oracle):
    assert_array_equal(oracle.predict(X[:1], [[np.nan, 0.2, 0.1]]), [2])


def test_without_an_expert_it_takes_costs_of_the_others(oracle):
    left = oracle.without(0)
    assert_array_equal(left.predict(X, COSTS[:, 1:]), [0, 1, 0])


@pytest.mark.parametrize("shape", [(3, 2), (2, 3)])
def test_refuses_costs_of_another_shape(oracle, shape):
    message = r"costs must have shape \(n_samples, n_experts\) = \(3, 3\)"
    with pytest.raises(InvalidInputError, match=message):
        oracle.predict(X, np.ones(shape))
    with pytest.raises(InvalidInputError, match=message):
        oracle.score(X, np.ones(shape))

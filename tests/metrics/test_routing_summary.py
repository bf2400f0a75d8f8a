"""The summary agrees with its parts and is ready for JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mild.metrics as metrics
from mild.core.costs import cheapest
from mild.metrics import summary
from mild.metrics.routing import shuffled_control

NAN = float("nan")


def problem(seed):
    rng = np.random.default_rng(seed)
    n, p = rng.integers(1, 30), rng.integers(1, 5)
    return rng.random((n, p)), rng.integers(0, p, n), rng.integers(1, 4, n)


@given(st.integers(0, 2**32 - 1))
def test_every_field_is_the_function_of_its_name(seed):
    costs, chosen, weights = problem(seed)
    result = summary(costs, chosen, weights)
    assert result.n_samples == result.n_known == len(costs)
    assert result.loss == metrics.deferral_loss(costs, chosen, weights)
    shares = metrics.expert_shares(chosen, costs.shape[1], weights)
    np.testing.assert_array_equal(result.shares, shares)
    np.testing.assert_array_equal(result.oracle_shares, metrics.oracle_shares(costs, weights))
    np.testing.assert_array_equal(result.recall, metrics.expert_recall(costs, chosen, weights))
    assert result.balanced_recall == metrics.balanced_recall(costs, chosen, weights)
    best = metrics.best_constant(costs, weights)
    assert (result.constant_expert, result.constant_loss) == best
    assert result.oracle_loss == metrics.oracle_loss(costs, weights)
    assert result.headroom == result.constant_loss - result.oracle_loss
    assert result.shuffled_control == shuffled_control(costs, chosen, weights)


@given(st.integers(0, 2**32 - 1))
def test_the_oracle_captures_all_headroom_the_best_constant_none(seed):
    costs, _, weights = problem(seed)
    oracle = summary(costs, cheapest(costs), weights)
    constant = summary(costs, np.full(len(costs), oracle.constant_expert), weights)
    if oracle.headroom > 1e-9:
        assert oracle.headroom_captured == pytest.approx(1)
        assert constant.headroom_captured == pytest.approx(0, abs=1e-6)
    assert constant.shuffled_control == pytest.approx(constant.loss)


def test_what_is_not_defined_is_none():
    told = summary([[0.0, 1.0], [0.0, 1.0]], [0, 1]).as_dict()
    assert told["recall"] == [0.5, None]
    assert told["headroom"] == 0
    assert told["headroom_captured"] is None
    assert told["n_samples"] == 2
    assert json.loads(json.dumps(told, allow_nan=False)) == told


@pytest.mark.parametrize("n", [3, 10, 101, 1000])
def test_rounding_is_not_headroom(n):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        first, weights = rng.random(n), rng.random(n)
        costs = np.column_stack([first, first + 1, first + 2])
        assert np.isnan(summary(costs, np.ones(n, int), weights).headroom_captured)


def test_everything_is_compared_on_the_same_rows_by_hand():
    costs = [[0, 1], [1, 0], [1, 1], [0, NAN], [NAN, 0], [0, 1]]
    result = summary(costs, [0, 1, 0, 0, 1, 1])
    assert (result.n_samples, result.n_known) == (6, 4)
    assert (result.loss, result.constant_expert, result.constant_loss) == (0.5, 0, 0.5)
    assert (result.oracle_loss, result.headroom, result.headroom_captured) == (0.25, 0.25, 0)
    assert result.shuffled_control == 0.625
    assert result.shares.tolist() == [0.5, 0.5]
    assert result.oracle_shares.tolist() == [0.75, 0.25]


def test_means_over_different_rows_give_no_share_of_the_headroom():
    costs = [[0, 1, NAN], [1, 0, NAN], [NAN, 1, 0], [NAN, 0, 1], [0, NAN, 1], [1, 0, NAN]]
    result = summary(costs, [0, 1, 2, 0, 0, 0], missing="skip")
    assert (result.n_samples, result.n_known) == (6, 5)
    # 2 errors in 5 rows against 2 in 4 and 2 in 3; the router errs once in its 5.
    assert (result.constant_expert, result.constant_loss, result.loss) == (1, 0.4, 0.2)
    assert result.oracle_loss == 0
    assert result.as_dict()["headroom_captured"] is None


def test_every_public_name_exists():
    assert sorted(metrics.__all__) == metrics.__all__
    for name in metrics.__all__:
        assert callable(getattr(metrics, name))

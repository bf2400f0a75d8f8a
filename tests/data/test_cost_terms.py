"""Costs in the user's words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.data import CostTerms, read_outcomes
from mild.errors import InvalidInputError


def make(**columns):
    base = {
        "prompt": ["a", "b"],
        "score__Q-1B": [1.0, 0.25],
        "score__Q-7B": [1.0, None],
        "cost__Q-1B": [0.001, 0.002],
        "cost__Q-7B": [0.01, None],
        "latency_ms__Q-1B": [100.0, 200.0],
        "latency_ms__Q-7B": [1000.0, None],
    }
    return read_outcomes(pa.table(base | columns))


def test_a_wrong_answer_costs_one_and_an_unasked_expert_nan():
    np.testing.assert_array_equal(make().costs(), [[0, 0], [0.75, np.nan]])


weights = st.one_of(st.none(), st.floats(0, 1e6))


@given(weights, weights, st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_cost_is_error_plus_beta_plus_dollars_plus_seconds(price, latency, small, large):
    costs = make().costs(
        beta={"1B": small, "7B": large}, price_weight=price, latency_weight=latency
    )
    dollars = np.array([[0.001, 0.01], [0.002, np.nan]])
    seconds = np.array([[0.1, 1.0], [0.2, np.nan]])
    expected = np.array([[0, 0], [0.75, np.nan]]) + np.array([small, large])
    expected = expected + (price or 0) * dollars + (latency or 0) * seconds
    np.testing.assert_allclose(costs, expected, rtol=1e-12)


def test_experts_without_a_beta_cost_nothing():
    np.testing.assert_array_equal(CostTerms({"7b": 0.5}).betas(make()), [0, 0.5])
    np.testing.assert_array_equal(CostTerms(None).betas(make()), [0, 0])


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"beta": {"13B": 1}}, "invalid_beta", "'13B' is not one of the experts Q-1B, Q-7B"),
        ({"beta": {"Q": 1}}, "invalid_beta", "'Q' must match one expert; it matches Q-1B, Q-7B"),
        ({"beta": {"7B": 1, "Q-7B": 2}}, "invalid_beta", "both mean 'Q-7B'"),
        ({"beta": {"7B": -1}}, "invalid_beta", "got 7B=-1"),
        ({"beta": {"7B": float("nan")}}, "invalid_beta", "finite"),
        ({"beta": {"7B": "a"}}, "invalid_beta", "must be a number"),
        ({"beta": [1, 2]}, "invalid_beta", "must give experts a cost"),
        ({"price_weight": -1.0}, "invalid_price_weight", "got -1.0"),
        ({"price_weight": "a"}, "invalid_price_weight", "must be a number"),
        ({"price_weight": [1]}, "invalid_price_weight", "must be a number"),
        ({"latency_weight": float("inf")}, "invalid_latency_weight", "finite"),
    ],
)
def test_invalid_terms_are_refused_before_a_table_is_needed_where_possible(options, code, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        make().costs(**options)
    assert caught.value.code == code
    if words in ("got 7B=-1", "finite", "got -1.0"):
        with pytest.raises(InvalidInputError) as caught:
            CostTerms(**options)
        assert caught.value.code == code


def test_an_unknown_price_matters_only_where_prices_count():
    table = make(**{"cost__Q-1B": [None, 0.002]})
    assert np.isnan(table.prices[0, 0])
    np.testing.assert_array_equal(table.costs(price_weight=0), table.costs())
    unknown = np.isnan(table.costs(price_weight=1))
    assert unknown.tolist() == [[True, False], [False, True]]
    bare = make(**{"cost__Q-1B": [None, None]})
    with pytest.raises(InvalidInputError, match="'Q-1B' has none") as caught:
        bare.costs(price_weight=1)
    assert caught.value.code == "invalid_price_weight"


def test_a_table_without_prices_or_latencies_cannot_weigh_them():
    table = read_outcomes(pa.table({"prompt": ["a"], "correct__x": [1]}))
    with pytest.raises(
        InvalidInputError, match="price_weight needs prices, but the table has none"
    ):
        table.costs(price_weight=1)
    with pytest.raises(InvalidInputError, match="latency_weight needs latencies"):
        table.costs(latency_weight=1)


def test_the_cost_is_spelled_out():
    assert CostTerms().formula(make()) == "error"
    words = CostTerms(beta={"7b": 1}, price_weight=50, latency_weight=0.1).formula(make())
    assert words == "error + what asking costs (Q-1B 0, Q-7B 1) + 50 × dollars + 0.1 × seconds"

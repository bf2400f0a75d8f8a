"""The frontier over the price weight, and its efficient points."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.errors import InvalidInputError
from mild.metrics import FrontierPoint, expert_shares, frontier, pareto

NAN = float("nan")
SEEDS = st.integers(0, 2**32 - 1)
WEIGHTS = [0.0, 0.1, 0.5, 1.0, 3.0, 1e6]


def problem(seed):
    rng = np.random.default_rng(seed)
    n, p = rng.integers(1, 20), rng.integers(1, 5)
    return rng.integers(0, 4, (n, p)) / 4, rng.integers(0, 4, (n, p)) / 2


@given(SEEDS)
def test_every_point_matches_a_plain_loop_with_ties_to_the_highest_index(seed):
    errors, prices = problem(seed)
    guess = np.random.default_rng(seed + 1).integers(0, 4, errors.shape) / 4
    for weight, point in zip(
        WEIGHTS, frontier(guess, prices, errors, prices, WEIGHTS), strict=True
    ):
        chosen = []
        for i in range(len(errors)):
            best = 0
            for k in range(errors.shape[1]):
                mine = guess[i, k] + weight * prices[i, k]
                if mine <= guess[i, best] + weight * prices[i, best]:
                    best = k
            chosen.append(best)
        rows = range(len(errors))
        assert point.weight == weight
        assert point.error == pytest.approx(np.mean([errors[i, chosen[i]] for i in rows]))
        assert point.price == pytest.approx(np.mean([prices[i, chosen[i]] for i in rows]))
        np.testing.assert_allclose(point.shares, expert_shares(chosen, errors.shape[1]))


@given(SEEDS)
def test_with_perfect_estimates_price_falls_and_error_rises_with_the_weight(seed):
    errors, prices = problem(seed)
    points = frontier(errors, prices, errors, prices, WEIGHTS)
    # At weight 0 a tie in error may be broken towards the dearer expert.
    for before, after in itertools.pairwise(points[1:]):
        assert after.price <= before.price + 1e-12
        assert after.error >= before.error - 1e-12
    assert points[0].error == pytest.approx(errors.min(axis=1).mean())
    assert points[-1].price == pytest.approx(prices.min(axis=1).mean())


@given(SEEDS)
def test_prices_per_expert_equal_the_same_prices_in_every_row(seed):
    errors, prices = problem(seed)
    flat = prices[0]
    full = np.broadcast_to(flat, errors.shape)
    for one, other in zip(
        frontier(errors, flat, errors, flat, WEIGHTS),
        frontier(errors, full, errors, full, WEIGHTS),
        strict=True,
    ):
        assert (one.error, one.price) == (other.error, other.price)
        np.testing.assert_array_equal(one.shares, other.shares)


def test_what_was_never_asked_is_refused_or_skipped():
    guess, happened = [[0.0, 1.0], [0.0, 1.0]], [[NAN, 0.0], [0.5, 0.0]]
    with pytest.raises(InvalidInputError, match=r"1 of 2 row\(s\)"):
        frontier(guess, [4.0, 1.0], happened, [4.0, 1.0], [0])
    (point,) = frontier(guess, [4.0, 1.0], happened, [4.0, 1.0], [0], missing="skip")
    assert (point.error, point.price) == (0.5, 4.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_pareto_keeps_exactly_the_points_that_nothing_dominates(pairs):
    points = [FrontierPoint(0.0, float(e), float(c), np.ones(1)) for e, c in pairs]
    kept = [(point.error, point.price) for point in pareto(points)]
    efficient = {
        (e, c)
        for e, c in pairs
        if not any(f <= e and d <= c and (f, d) != (e, c) for f, d in pairs)
    }
    assert set(kept) == efficient
    assert len(kept) == len(efficient)
    assert [price for _, price in kept] == sorted(price for _, price in kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expected_errors": [[NAN, 0.0]]}, "expected_errors must be finite; got nan"),
        ({"expected_errors": np.empty((0, 2))}, "at least one row"),
        ({"expected_prices": [1.0]}, r"expected_prices .* \(1, 2\); got \(1,\)"),
        ({"expected_prices": [NAN, 1.0]}, "expected_prices must be finite"),
        ({"errors": [[0.0, 1.0], [0.0, 1.0]]}, r"errors .* got \(2, 2\)"),
        ({"errors": [[np.inf, 1.0]]}, "errors must be finite, or NaN"),
        ({"prices": [[1.0, 2.0, 3.0]]}, "prices must have shape"),
        ({"weights": [-1.0]}, "weights must be non-negative"),
        ({"weights": [NAN]}, "weights must be finite"),
    ],
)
def test_inputs_that_break_a_rule_are_refused(change, message):
    good = {
        "expected_errors": [[0.0, 1.0]],
        "expected_prices": [1.0, 2.0],
        "errors": [[0.0, 1.0]],
        "prices": [1.0, 2.0],
        "weights": [0.0],
    }
    assert len(frontier(**good)) == 1
    with pytest.raises(InvalidInputError, match=message):
        frontier(**(good | change))

"""The border: what arrays must be, and the sentence each mistake gets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mild.core.arrays import (
    check_costs,
    check_labels,
    check_margins,
    check_rewards,
    check_scores,
    float_matrix,
    float_vector,
)
from mild.errors import InvalidInputError


def test_float32_stays_float32_and_everything_else_becomes_float64() -> None:
    assert float_matrix("X", np.zeros((1, 2), np.float32)).dtype == np.float32
    for values in ([[1, 2]], np.zeros((1, 2), np.float16), np.zeros((1, 2), np.int8), [[True]]):
        assert float_matrix("X", values).dtype == np.float64


def test_a_valid_array_is_not_copied() -> None:
    for dtype in (np.float32, np.float64):
        array = np.ones((2, 2), dtype)
        assert check_costs(array) is array
        assert check_scores(array) is array


def test_costs_may_be_nan_where_an_expert_was_never_asked() -> None:
    costs = np.array([[0.0, np.nan], [np.nan, 1.0]])
    np.testing.assert_array_equal(check_costs(costs), costs)


def test_no_rows_are_allowed() -> None:
    assert check_costs(np.zeros((0, 3))).shape == (0, 3)
    assert check_scores(np.zeros((0, 3))).shape == (0, 3)


def test_margins_default_to_ones_and_a_number_applies_to_all() -> None:
    np.testing.assert_array_equal(check_margins(None, 3), [1, 1, 1])
    np.testing.assert_array_equal(check_margins(0.5, 2), [0.5, 0.5])


def test_a_float_vector_has_one_float64_number_per_expert() -> None:
    vector = float_vector("prices", [0, 2], 2)
    np.testing.assert_array_equal(vector, [0.0, 2.0])
    assert vector.dtype == np.float64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: float_vector("prices", [1], 2), r"prices must be 2 finite, .*numbers; got \[1\]"),
        (lambda: float_vector("prices", [1, -1], 2), r"must be 2 finite, non-negative numbers"),
        (lambda: float_vector("prices", [1, np.nan], 2), r"must be 2 finite, non-negative"),
        (lambda: float_vector("prices", ["a", 1], 2), r"prices must be numbers; got \['a', 1\]"),
        (lambda: check_costs(np.zeros((128, 3)), 64), r"= \(64, 3\); got \(128, 3\)"),
        (lambda: check_costs([[1.0], [2.0, 3.0]]), r"costs must hold numbers"),
        (lambda: check_costs(np.zeros((2, 2, 2))), r"got 3 dimensions, shape \(2, 2, 2\)"),
        (
            lambda: check_scores([[0.0, np.nan]]),
            r"scores must be finite; got scores\[0, 1\] = nan",
        ),
        (lambda: check_scores([[math.inf]]), r"scores must be finite; got scores\[0, 0\] = inf"),
        (lambda: check_scores([["high"]]), r"scores must hold numbers"),
        (lambda: check_rewards([[1.0]], (2, 1)), r"= \(2, 1\); got \(1, 1\)"),
        (lambda: check_rewards([[-1.0]], (1, 1)), r"non-negative; got rewards\[0, 0\] = -1"),
        (
            lambda: check_rewards([[np.nan]], (1, 1)),
            r"rewards must be finite and non-negative; got",
        ),
        (
            lambda: check_margins([1.0], 2),
            r"margins must have shape \(n_experts,\) = \(2,\); got \(1,\)",
        ),
        (lambda: check_margins([1.0, 0.0], 2), r"positive and finite; got 0 for expert 1"),
        (lambda: check_margins([-3.0, 1.0], 2), r"positive and finite; got -3 for expert 0"),
        (lambda: check_margins([np.nan, 1.0], 2), r"positive and finite; got nan for expert 0"),
        (lambda: check_margins([math.inf, 1.0], 2), r"positive and finite; got inf for expert 0"),
        (lambda: check_margins(["wide", 1.0], 2), r"margins must be numbers; got \['wide', 1.0\]"),
        (lambda: check_labels([0, 3], (2, 3)), r"labels must lie in \[0, 3\); got 3"),
        (lambda: check_labels([0, -1], (2, 3)), r"labels must lie in \[0, 3\); got -1"),
        (lambda: check_labels([0.0, 1.0], (2, 3)), r"labels must be integers; got dtype float64"),
        (
            lambda: check_labels([0], (2, 3)),
            r"labels must have shape \(n_samples,\) = \(2,\); got \(1,\)",
        ),
        (lambda: check_labels([9], (1, 3), "chosen"), r"chosen must lie in \[0, 3\); got 9"),
    ],
)
def test_bad_input_is_refused_with_the_reason(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()  # type: ignore[operator]

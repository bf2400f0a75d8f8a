"""Costs, the reward forms and their identities."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from mild.core.costs import (
    ALL_REWARDS,
    cheapest,
    cheapest_expected,
    cheapest_known,
    cost_matrix,
    costs_from_correctness,
    expert_ranks,
    reward_distribution,
    rewards,
    weighted_costs,
)
from mild.core.decisions import argmax_last
from mild.errors import InvalidInputError

PROPERTY = settings(derandomize=True, deadline=None, max_examples=60, database=None)


def random_costs(rng: np.random.Generator, n: int, p: int, missing: float = 0.0) -> np.ndarray:
    costs = rng.choice([0.0, 0.25, 1.0, 1.7], (n, p)) + rng.choice([0.0, 0.1], p)
    silent = rng.random((n, p)) < missing
    silent[np.arange(n), rng.integers(0, p, n)] = False
    return np.where(silent, np.nan, costs)


def deferral_loss_from_rewards(costs: np.ndarray, not_chosen: np.ndarray, kind: str) -> np.ndarray:
    """The right-hand side of the identity of each reward form, constants included."""
    p = costs.shape[1]
    scale = 2.0
    weighted = (rewards(costs, kind, scale) * not_chosen).sum(axis=1)
    if kind == "others":
        return weighted - (p - 2) * costs.sum(axis=1)
    if kind == "complement":
        return scale * (weighted + costs.sum(axis=1) / scale - (p - 1))
    level = costs.max(axis=1)
    if kind == "baseline":
        level = (level + costs.sum(axis=1)) / 2
    return weighted - (p - 1) * level + costs.sum(axis=1)


def not_chosen_by(scores: np.ndarray) -> np.ndarray:
    return np.arange(scores.shape[1]) != argmax_last(scores)[:, None]


def margin_not_positive(scores: np.ndarray) -> np.ndarray:
    """The printed indicator ``1[f_k - max of the others <= 0]``."""
    result = np.empty(scores.shape, bool)
    for k in range(scores.shape[1]):
        rest = np.delete(scores, k, axis=1)
        result[:, k] = scores[:, k] <= rest.max(axis=1)
    return result


@pytest.mark.parametrize("kind", ALL_REWARDS)
@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_rewards_of_experts_not_chosen_add_up_to_the_deferral_loss(kind: str, p: int) -> None:
    rng = np.random.default_rng(p)
    costs = random_costs(rng, 200, p)
    scores = rng.integers(0, 3, (200, p)).astype(float)  # many ties
    chosen = costs[np.arange(200), argmax_last(scores)]
    got = deferral_loss_from_rewards(costs, not_chosen_by(scores), kind)
    np.testing.assert_allclose(got, chosen, atol=1e-12)


@pytest.mark.parametrize("kind", ALL_REWARDS)
def test_printed_identity_holds_without_ties_and_fails_on_ties(kind: str) -> None:
    rng = np.random.default_rng(0)
    costs = random_costs(rng, 100, 4) + 0.05
    scores = rng.normal(size=(100, 4))
    chosen = costs[np.arange(100), argmax_last(scores)]
    printed = deferral_loss_from_rewards(costs, margin_not_positive(scores), kind)
    np.testing.assert_allclose(printed, chosen, atol=1e-12)

    tied = np.zeros((100, 4))
    chosen = costs[:, 3]
    printed = deferral_loss_from_rewards(costs, margin_not_positive(tied), kind)
    # On a tie the chosen expert is counted as well: its reward is added once too often.
    excess = rewards(costs, kind, 2.0)[:, 3] * (2.0 if kind == "complement" else 1.0)
    np.testing.assert_allclose(printed - chosen, excess, atol=1e-12)
    assert (excess > 0).sum() > 50


@pytest.mark.parametrize("kind", ALL_REWARDS)
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_rewards_match_the_transcription(kind: str, missing: float) -> None:
    costs = random_costs(np.random.default_rng(1), 60, 5, missing)
    expected = [oracles.rewards(row, kind, 2.0) for row in costs]
    np.testing.assert_allclose(rewards(costs, kind, 2.0), expected, atol=1e-14)


@pytest.mark.parametrize("kind", ALL_REWARDS)
def test_experts_never_asked_get_no_reward_and_change_nothing_else(kind: str) -> None:
    costs = np.array([[0.3, np.nan, 1.0, 0.0], [1.0, 0.2, np.nan, np.nan]])
    got = rewards(costs, kind, 1.0)
    assert (got[np.isnan(costs)] == 0).all()
    for row, values in zip(costs, got, strict=True):
        asked = ~np.isnan(row)
        np.testing.assert_array_equal(values[asked], rewards(row[asked][None], kind, 1.0)[0])


@pytest.mark.parametrize("kind", ALL_REWARDS)
def test_the_cheapest_expert_has_the_largest_reward(kind: str) -> None:
    costs = np.random.default_rng(2).random((300, 6))
    np.testing.assert_array_equal(rewards(costs, kind).argmax(axis=1), costs.argmin(axis=1))


def test_contrast_is_the_smallest_non_negative_baseline() -> None:
    got = rewards(random_costs(np.random.default_rng(3), 100, 4), "contrast")
    assert (got >= 0).all()
    np.testing.assert_array_equal(got.min(axis=1), 0)


def test_contrast_gives_no_weight_to_a_row_on_which_all_experts_cost_the_same() -> None:
    np.testing.assert_array_equal(rewards([[0.7, 0.7, 0.7]], "contrast"), np.zeros((1, 3)))


@pytest.mark.parametrize(("strength", "kind"), [(0, "contrast"), (1, "others")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_baseline_joins_contrast_and_others(strength: int, kind: str, dtype: type) -> None:
    costs = np.random.default_rng(9).gamma(1.0, 1.0, (200, 5)).astype(dtype)
    costs[np.arange(200), np.arange(200) % 5] = np.nan
    got = rewards(costs, "baseline", strength=strength)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, rewards(costs, kind))


@PROPERTY
@given(st.floats(0, 20), st.floats(0, 0.6))
def test_every_baseline_is_consistent(strength: float, missing: float) -> None:
    """Rewards are non-negative, and differ between experts as the costs do, whatever the strength."""
    costs = random_costs(np.random.default_rng(10), 50, 4, missing)
    got = rewards(costs, "baseline", strength=strength)
    assert (got >= 0).all()
    expected = [oracles.rewards(row, "baseline", strength=strength) for row in costs]
    np.testing.assert_allclose(got, expected, atol=1e-12)
    level = np.where(np.isnan(costs), np.nan, got + costs)
    np.testing.assert_allclose(np.nanmax(level, axis=1), np.nanmin(level, axis=1), atol=1e-12)


def test_complement_with_one_scale_does_not_depend_on_the_batch() -> None:
    costs = np.random.default_rng(4).random((20, 3))
    whole = rewards(costs, "complement", cost_scale=1.5)
    parts = np.vstack(
        [rewards(costs[:7], "complement", 1.5), rewards(costs[7:], "complement", 1.5)]
    )
    np.testing.assert_array_equal(whole, parts)
    without_scale = rewards(costs[:7], "complement")
    assert not np.allclose(whole[:7], without_scale)
    assert without_scale.min() == 0


@pytest.mark.parametrize("kind", ALL_REWARDS)
def test_rewards_keep_float32_and_all_zero_costs_stay_free_of_nan(kind: str) -> None:
    got = rewards(np.zeros((2, 3), np.float32), kind)
    assert got.dtype == np.float32
    assert np.isfinite(got).all()
    assert np.isfinite(reward_distribution(got)).all()


def test_reward_distribution_sums_to_one_and_leaves_zero_rows_zero() -> None:
    weights = np.array([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [1e308, 1e308, 1e308], [5e-324, 0, 0]])
    got = reward_distribution(weights)
    np.testing.assert_allclose(got.sum(axis=1), [1, 0, 1, 1])
    np.testing.assert_allclose(got[0], [0.25, 0.75, 0])


def test_relative_costs_can_be_read_from_the_others_distribution() -> None:
    costs = np.random.default_rng(5).random((10, 4))
    p = reward_distribution(rewards(costs, "others"))
    np.testing.assert_allclose(1 - 3 * p, costs / costs.sum(axis=1, keepdims=True), atol=1e-14)


def test_cost_matrix_is_error_plus_beta() -> None:
    rng = np.random.default_rng(6)
    predictions, labels = rng.integers(0, 4, (30, 3)), rng.integers(0, 4, 30)
    betas = [0.3, 0.0, 1.2]
    got = cost_matrix(predictions, labels, betas)
    for i in range(30):
        for k in range(3):
            assert got[i, k] == (1.0 if predictions[i, k] != labels[i] else 0.0) + betas[k]


def test_cost_matrix_takes_text_labels() -> None:
    got = cost_matrix([["cat", "dog"]], ["dog"])
    np.testing.assert_array_equal(got, [[1.0, 0.0]])


def test_correct_answers_cost_nothing_and_unknown_ones_stay_unknown() -> None:
    got = costs_from_correctness([[1, 0, np.nan]], betas=[0.1, 0.2, 0.3])
    np.testing.assert_allclose(got, [[0.1, 1.2, np.nan]])


def test_weighted_costs_are_the_weighted_sum_of_their_parts() -> None:
    rng = np.random.default_rng(7)
    error, price = rng.random((5, 3)), rng.random(3)
    got = weighted_costs({"error": error, "price": price}, {"price": 4.0})
    np.testing.assert_allclose(got, error + 4 * price)


def test_cheapest_takes_the_lowest_index_on_ties_and_the_decision_the_highest() -> None:
    costs = np.array([[1.0, 0.5, 0.5], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(cheapest(costs), [1, 0])
    np.testing.assert_array_equal(argmax_last(-costs), [2, 2])
    many = random_costs(np.random.default_rng(8), 300, 5, 0.3)
    expected = [oracles.argmin_lowest_index(row) for row in many]
    np.testing.assert_array_equal(cheapest(many), expected)


def test_ties_of_cost_go_to_price_and_rank_in_turn() -> None:
    nan = np.nan
    costs = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [nan, 2.0, 2.0]])
    prices = np.array([[3.0, 1.0, 1.0], [nan, 5.0, 0.0], [0.0, nan, nan]])
    assert cheapest_known(costs).tolist() == [0, 0, 1]
    assert cheapest_known(costs, prices=prices).tolist() == [1, 1, 1]
    assert cheapest_known(costs, prices=prices, ranks=[0, 2, 1]).tolist() == [2, 1, 2]
    assert cheapest_known(costs, ranks=[2, 1, 0]).tolist() == [2, 1, 2]
    assert cheapest_known(costs, prices=[1, 1, 0], ranks=[2, 1, 0]).tolist() == [2, 1, 2]
    near = np.array([[0.3, 0.1 + 0.2 - 1e-15]])
    assert cheapest_known(near, tolerance=1e-12).tolist() == [0]
    assert cheapest_known(near).tolist() == [int(near[0, 1] < near[0, 0])]


def test_experts_are_ranked_by_score_then_price_then_index() -> None:
    scores = np.array([0.5, 0.7, 0.7, np.nan, 0.7 + 1e-16, 0.9])
    prices = np.array([0.0, 2.0, 1.0, 0.0, 2.0, 9.0])
    assert expert_ranks(scores, prices).tolist() == [4, 2, 1, 5, 3, 0]
    assert expert_ranks(scores).tolist() == [4, 1, 2, 5, 3, 0]
    assert expert_ranks(np.array([0.5, 0.5]), np.array([np.nan, 1.0])).tolist() == [1, 0]


def test_expected_costs_that_tie_go_to_the_lowest_rank() -> None:
    costs = np.array([[0.2, 0.2 + 1e-16, 0.3], [0.2, 0.2, 0.2], [0.5, 0.4, 0.3]])
    assert cheapest_expected(costs).tolist() == [1, 2, 2]
    assert cheapest_expected(costs, np.array([0, 1, 2])).tolist() == [0, 0, 2]
    assert cheapest_expected(costs, np.array([2, 1, 0])).tolist() == [1, 2, 2]


cost_tables = st.integers(2, 5).flatmap(
    lambda p: st.lists(
        st.lists(st.floats(0, 10).map(lambda v: round(v, 3)), min_size=p, max_size=p),
        min_size=1,
        max_size=6,
    )
)


@PROPERTY
@given(cost_tables, st.randoms(use_true_random=False), st.sampled_from(ALL_REWARDS))
def test_permuting_experts_permutes_rewards(table: list, random: object, kind: str) -> None:
    costs = np.array(table)
    order = list(range(costs.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    got = rewards(costs[:, order], kind)
    np.testing.assert_allclose(got, rewards(costs, kind)[:, order], atol=1e-12)


@PROPERTY
@given(cost_tables, st.data())
def test_a_dominated_expert_is_never_chosen_by_the_oracle(table: list, data: st.DataObject) -> None:
    costs = np.array(table)
    better, worse = data.draw(st.permutations(range(costs.shape[1])))[:2]
    costs[:, worse] = costs[:, better] + 0.5
    assert worse not in cheapest(costs)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: rewards([[0.0, -1.0]]), "costs"),
        (lambda: rewards([[0.0, 1.0]], "contrasts"), "kind"),
        (lambda: rewards([[0.0, 1.0]], "baseline", strength=-0.1), "strength"),
        (lambda: rewards([[0.0, 1.0]], "baseline", strength=math.nan), "strength"),
        (lambda: rewards([[0.0, 2.0]], "complement", cost_scale=1.0), "cost_scale"),
        (lambda: rewards([[0.0, 0.0]], "complement", cost_scale=0.0), "cost_scale"),
        (lambda: cost_matrix([1, 2], [1, 2]), "predictions"),
        (lambda: cost_matrix([[1, 2]], [1, 2]), "labels"),
        (lambda: cost_matrix([[1]], [1], [1, 2]), "betas"),
        (lambda: costs_from_correctness([[0.5, 1.5]]), "correct"),
        (lambda: weighted_costs({"a": [[1.0]]}, {"b": 1}), "weights"),
        (lambda: weighted_costs({"a": [[1.0]]}, {"a": -1}), "weights"),
        (lambda: weighted_costs({}, {}), "parts"),
        (lambda: weighted_costs({"a": [["x"]]}, {}), "parts"),
        (lambda: weighted_costs({"a": np.ones((2, 3)), "b": np.ones((2, 4))}, {}), "parts"),
        (lambda: reward_distribution([[1.0, -1.0]]), "rewards"),
    ],
)
def test_bad_input_is_refused(call: Callable, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert caught.value.code == f"invalid_{code}"

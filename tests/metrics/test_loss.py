"""The deferral loss and its references, as properties over random cost matrices; common rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mild.core.costs import cheapest
from mild.errors import InvalidInputError
from mild.metrics import (
    balanced_deferral_loss,
    best_constant,
    chosen_costs,
    common_rows,
    constant_losses,
    deferral_loss,
    oracle_loss,
)
from mild.metrics.routing import common_constant, shuffled_control

NAN = float("nan")


@st.composite
def routings(draw, missing=False):
    """Costs, choices and whole-number weights of one small problem."""
    n = draw(st.integers(1, 12))
    p = draw(st.integers(1, 5))
    costs = draw(arrays(np.float64, (n, p), elements=st.floats(0, 10)))
    chosen = draw(arrays(np.int64, n, elements=st.integers(0, p - 1)))
    weights = draw(arrays(np.int64, n, elements=st.integers(0, 3)))
    weights[draw(st.integers(0, n - 1))] += 1
    if missing:
        asked = draw(arrays(np.bool_, (n, p)))
        asked[np.arange(n), chosen] = True
        costs = np.where(asked, costs, NAN)
    return costs, chosen, weights


@given(routings(missing=True))
def test_loss_is_the_weighted_mean_of_the_chosen_entries(routing):
    costs, chosen, weights = routing
    total = sum(w * costs[i, k] for i, (k, w) in enumerate(zip(chosen, weights, strict=True)))
    assert deferral_loss(costs, chosen, weights) == pytest.approx(total / weights.sum())


@given(routings(missing=True))
def test_doubled_weights_are_duplicated_rows(routing):
    costs, chosen, weights = routing
    many, sent = np.repeat(costs, weights, axis=0), np.repeat(chosen, weights)
    near = {"rel": 1e-9, "abs": 1e-12}
    assert deferral_loss(costs, chosen, weights) == pytest.approx(deferral_loss(many, sent), **near)
    assert oracle_loss(costs, weights) == pytest.approx(oracle_loss(many), **near)
    assert best_constant(costs, weights).cost == pytest.approx(best_constant(many).cost, **near)
    assert shuffled_control(costs, chosen, weights) == pytest.approx(
        shuffled_control(many, sent), **near
    )
    np.testing.assert_allclose(constant_losses(costs, weights), constant_losses(many), atol=1e-12)


@given(routings())
def test_oracle_best_constant_and_every_constant_are_ordered(routing):
    costs, chosen, weights = routing
    n, p = costs.shape
    oracle, best = oracle_loss(costs, weights), best_constant(costs, weights)
    constants = [deferral_loss(costs, np.full(n, k), weights) for k in range(p)]
    np.testing.assert_allclose(constants, constant_losses(costs, weights), atol=1e-12)
    assert best.cost == pytest.approx(constants[best.expert])
    assert oracle <= deferral_loss(costs, chosen, weights) + 1e-9
    assert oracle <= best.cost + 1e-9
    assert all(best.cost <= constant + 1e-9 for constant in constants)


@given(routings(), st.randoms(use_true_random=False))
def test_permuting_experts_permutes_the_constants_and_keeps_the_losses(routing, random):
    costs, chosen, weights = routing
    order = list(range(costs.shape[1]))
    random.shuffle(order)
    renamed = np.argsort(order)[chosen]
    moved = costs[:, order]
    assert deferral_loss(moved, renamed, weights) == deferral_loss(costs, chosen, weights)
    assert oracle_loss(moved, weights) == oracle_loss(costs, weights)
    np.testing.assert_allclose(
        constant_losses(moved, weights), constant_losses(costs, weights)[order], atol=1e-12
    )
    assert shuffled_control(moved, renamed, weights) == pytest.approx(
        shuffled_control(costs, chosen, weights)
    )


def test_chosen_costs_keep_nan_and_float32_is_averaged_in_float64():
    np.testing.assert_array_equal(chosen_costs([[1.0, NAN], [2.0, 3.0]], [1, 1]), [NAN, 3.0])
    costs = np.full((100_000, 1), 0.1, dtype=np.float32)
    assert deferral_loss(costs, np.zeros(100_000, int)) == pytest.approx(float(np.float32(0.1)))


@given(routings())
def test_the_balanced_loss_is_a_mean_over_the_experts_that_are_cheapest(routing):
    costs, chosen, weights = routing
    paid, best = chosen_costs(costs, chosen), cheapest(costs)
    means = [
        np.average(paid[best == k], weights=weights[best == k])
        for k in np.unique(best)
        if weights[best == k].any()
    ]
    assert balanced_deferral_loss(costs, chosen, weights) == pytest.approx(np.mean(means))


def test_the_balanced_loss_leaves_out_what_is_not_known():
    costs = [[0.0, 1.0], [0.0, np.nan], [1.0, 0.25], [np.nan, 0.5]]
    assert balanced_deferral_loss(costs, [1, 1, 1, 1]) == pytest.approx((1 + 0.375) / 2)
    assert np.isnan(balanced_deferral_loss([[0.0, np.nan]], [1]))


def test_a_choice_never_asked_is_refused_or_skipped():
    costs, chosen = [[1.0, NAN], [2.0, 4.0], [3.0, 6.0]], [1, 1, 0]
    with pytest.raises(InvalidInputError, match=r"1 of 3 rows"):
        deferral_loss(costs, chosen)
    assert deferral_loss(costs, chosen, missing="skip") == 3.5
    assert deferral_loss(costs, chosen, [5, 3, 1], missing="skip") == 3.75
    with pytest.raises(InvalidInputError, match="positive in at least one row"):
        deferral_loss(costs, chosen, [1, 0, 0], missing="skip")


def test_constants_average_over_asked_rows_and_pass_over_silent_experts():
    costs = [[NAN, 3.0, NAN], [NAN, 1.0, 1.5], [NAN, NAN, 1.5]]
    np.testing.assert_array_equal(constant_losses(costs), [NAN, 2.0, 1.5])
    assert best_constant(costs) == (2, 1.5)
    assert np.isnan(shuffled_control(costs, [0, 1, 2]))
    assert shuffled_control(costs, [1, 2, 2]) == pytest.approx((2 + 1.5 + 1.5) / 3)


def test_best_constant_ties_go_to_the_lowest_index():
    assert best_constant([[2.0, 1.0, 1.0]]).expert == 1


def test_shuffled_control_is_the_mean_over_many_shuffles():
    rng = np.random.default_rng(0)
    costs, chosen = rng.random((30, 3)), rng.choice(3, 30, p=[0.6, 0.3, 0.1])
    losses = [deferral_loss(costs, rng.permutation(chosen)) for _ in range(3000)]
    error = np.std(losses) / np.sqrt(len(losses))
    assert abs(np.mean(losses) - shuffled_control(costs, chosen)) < 4 * error


@pytest.mark.parametrize("chosen", [[0], [0, 2], [0, -1], [0.0, 1.0]])
def test_choices_that_break_a_rule_are_refused(chosen):
    for measure in (chosen_costs, deferral_loss, shuffled_control):
        with pytest.raises(InvalidInputError, match="chosen"):
            measure([[1.0, 2.0], [3.0, 4.0]], chosen)


def holes(n, complete):
    costs = np.zeros((n, 2))
    costs[complete:, 1] = NAN
    return costs


def test_rows_with_a_hole_are_left_out_and_counted():
    found = common_rows([[0, 1], [1, 0], [1, 1], [0, NAN], [NAN, 0], [0, 1]])
    assert found.rows.tolist() == [True, True, True, False, False, True]
    assert (found.complete, found.left_out, found.asked) == (True, 2, 4)
    assert found.sentence == "2 of 6 rows are left out because not every expert was asked."


@pytest.mark.parametrize(
    ("n", "complete", "kept"),
    [(4, 4, True), (1000, 30, True), (1000, 29, False), (10, 5, True), (10, 4, False)],
)
def test_thirty_rows_or_half_of_them_are_enough(n, complete, kept):
    found = common_rows(holes(n, complete))
    assert (found.complete, found.asked) == (kept, complete)
    assert found.left_out == (n - complete if kept else 0)
    assert (found.sentence is None) == (complete == n)


def test_an_expert_that_was_asked_nowhere_is_not_compared():
    found = common_rows([[0, 1, NAN], [1, 0, NAN], [1, NAN, NAN]])
    assert found.rows.tolist() == [True, True, False]
    # What went to it cannot be judged.
    assert common_rows([[0, 1, NAN], [1, 0, NAN]], [0, 2]).rows.tolist() == [True, False]


def test_an_expert_of_easy_rows_alone_is_not_the_constant():
    costs = np.array([[0, 0.8], [0, 1], [1, 0], [NAN, 0], [NAN, 0], [NAN, 0]])
    assert best_constant(costs).expert == 1
    assert common_constant(costs) == 0
    assert common_constant(costs, [0, 0, 1, 1, 1, 1]) == 1
    # Weight on other rows alone: each by its own rows.
    assert common_constant(costs, [0, 0, 0, 1, 1, 1]) == 1

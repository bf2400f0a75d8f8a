"""MILD and TDEF: values, gradients, invariances and extremes, property by property."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from mild.core.costs import rewards as make_rewards
from mild.core.losses import mild_loss, tdef_loss
from mild.core.surrogates import parse_surrogate
from mild.errors import InvalidInputError

PROPERTY = settings(derandomize=True, deadline=None, max_examples=60, database=None)
SURROGATES = list(oracles.FORMS)
SMOOTH = [name for name in SURROGATES if name != "hinge"]
CONVEX = [name for name in SURROGATES if name != 1.7]

every_surrogate = pytest.mark.parametrize("surrogate", SURROGATES)


def draw(seed: int, n: int, p: int, shared: bool = False) -> tuple[np.ndarray, ...]:
    """Scores, rewards with zeros, and margins."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, p)) * 2
    rewards = rng.random((n, p)) * (rng.random((n, p)) < 0.8)
    margins = rng.choice([0.5, 1.3], p) if shared else rng.uniform(0.3, 2, p)
    return scores, rewards, margins


@every_surrogate
@pytest.mark.parametrize("p", [1, 2, 3, 6])
@pytest.mark.parametrize("shared", [False, True])
def test_values_match_the_transcription(surrogate: object, p: int, shared: bool) -> None:
    scores, rewards, margins = draw(p, 20, p, shared)
    expected = [
        oracles.mild_loss(f, w, margins, surrogate) for f, w in zip(scores, rewards, strict=True)
    ]
    got = mild_loss(scores, rewards, margins, surrogate)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("surrogate", SMOOTH)
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_match_the_transcription(surrogate: object, shared: bool) -> None:
    scores, rewards, margins = draw(7, 20, 5, shared)
    expected = [
        oracles.mild_gradient(f, w, margins, surrogate)
        for f, w in zip(scores, rewards, strict=True)
    ]
    got = mild_loss(scores, rewards, margins, surrogate, return_gradient=True)[1]
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


@every_surrogate
@pytest.mark.parametrize("p", [1, 2, 5])
def test_gradients_match_finite_differences_of_the_transcription(surrogate: object, p: int) -> None:
    scores, rewards, margins = draw(11, 6, p)
    values, gradient = mild_loss(scores, rewards, margins, surrogate, return_gradient=True)
    np.testing.assert_array_equal(values, mild_loss(scores, rewards, margins, surrogate))
    step = 1e-5
    for i in range(len(scores)):
        for j in range(p):
            ahead, behind = scores[i].copy(), scores[i].copy()
            ahead[j] += step
            behind[j] -= step
            rise = oracles.mild_loss(ahead, rewards[i], margins, surrogate)
            rise -= oracles.mild_loss(behind, rewards[i], margins, surrogate)
            assert gradient[i, j] == pytest.approx(rise / (2 * step), rel=1e-5, abs=1e-6)


def test_equal_margins_make_it_cross_entropy_of_scaled_scores_times_the_row_reward() -> None:
    scores, rewards, _ = draw(3, 30, 4)
    rho = 0.4
    total = rewards.sum(axis=1)
    expected = []
    for f, w in zip(scores / rho, rewards, strict=True):
        expected.append(sum(w[k] * oracles.cross_entropy(f, k) for k in range(4)))
    values, gradient = mild_loss(scores, rewards, rho, return_gradient=True)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    # The gradient: row reward times (softmax(f / rho) - reward distribution) / rho.
    softmax = np.exp(scores / rho) / np.exp(scores / rho).sum(axis=1, keepdims=True)
    expected_gradient = (total[:, None] * softmax - rewards) / rho
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-12)


@every_surrogate
def test_a_zero_reward_adds_nothing_and_a_zero_row_costs_nothing(surrogate: object) -> None:
    scores, rewards, margins = draw(5, 10, 4)
    rewards[:] = 0
    rewards[:, 2] = 1.0
    values = mild_loss(scores, rewards, margins, surrogate)
    expected = [oracles.expert_losses(f, margins, surrogate)[2] for f in scores]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    values, gradient = mild_loss(scores, 0 * rewards, margins, surrogate, return_gradient=True)
    np.testing.assert_array_equal(values, 0)
    np.testing.assert_array_equal(gradient, 0)


@every_surrogate
def test_losses_are_linear_in_the_rewards_and_never_negative(surrogate: object) -> None:
    scores, rewards, margins = draw(6, 40, 5)
    values = mild_loss(scores, rewards, margins, surrogate)
    assert (values >= 0).all()
    np.testing.assert_allclose(mild_loss(scores, 3 * rewards, margins, surrogate), 3 * values)
    parts = [mild_loss(scores, rewards * (np.arange(5) == k), margins, surrogate) for k in range(5)]
    np.testing.assert_allclose(sum(parts), values)


@every_surrogate
def test_one_expert_costs_nothing(surrogate: object) -> None:
    values, gradient = mild_loss([[5.0]], [[2.0]], [0.3], surrogate, return_gradient=True)
    assert values == 0
    assert gradient == 0


@pytest.mark.parametrize("surrogate", CONVEX)
def test_convex_surrogates_lie_below_their_chords(surrogate: object) -> None:
    a, rewards, margins = draw(8, 500, 4)
    b = draw(9, 500, 4)[0]
    assert parse_surrogate(surrogate).convex
    middle = mild_loss((a + b) / 2, rewards, margins, surrogate)
    chord = mild_loss(a, rewards, margins, surrogate) + mild_loss(b, rewards, margins, surrogate)
    assert (middle <= chord / 2 + 1e-9).all()


def test_tau_above_one_is_not_convex() -> None:
    a, rewards, margins = draw(8, 500, 4)
    b = draw(9, 500, 4)[0]
    chord = mild_loss(a, rewards, margins, 1.7) + mild_loss(b, rewards, margins, 1.7)
    assert (mild_loss((a + b) / 2, rewards, margins, 1.7) > chord / 2 + 1e-6).any()


def test_pairwise_and_comp_sum_agree_on_two_experts_and_differ_on_three() -> None:
    scores, rewards, margins = draw(10, 20, 2)
    np.testing.assert_allclose(
        mild_loss(scores, rewards, margins, "pairwise_logistic"),
        mild_loss(scores, rewards, margins, "logistic"),
    )
    scores, rewards, margins = draw(10, 20, 3)
    gap = mild_loss(scores, rewards, margins, "pairwise_logistic") - mild_loss(
        scores, rewards, margins, "logistic"
    )
    assert (gap[rewards.sum(axis=1) > 0] > 0).all()


def test_tau_near_one_approaches_the_logistic() -> None:
    scores, rewards, margins = draw(12, 20, 4)
    near, near_gradient = mild_loss(scores, rewards, margins, 1 - 1e-9, return_gradient=True)
    at, at_gradient = mild_loss(scores, rewards, margins, return_gradient=True)
    np.testing.assert_allclose(near, at, rtol=1e-6)
    np.testing.assert_allclose(near_gradient, at_gradient, atol=1e-6)


def test_tdef_is_mild_with_complement_rewards_and_margins_of_one() -> None:
    rng = np.random.default_rng(13)
    scores, costs = rng.normal(size=(20, 3)), rng.random((20, 3))
    expected = [
        oracles.mild_loss(f, [1 - c / 1.5 for c in row], [1, 1, 1])
        for f, row in zip(scores, costs, strict=True)
    ]
    np.testing.assert_allclose(tdef_loss(scores, costs, cost_scale=1.5), expected)
    values, gradient = tdef_loss(scores, costs, cost_scale=1.5, return_gradient=True)
    same = mild_loss(scores, make_rewards(costs, "complement", 1.5), return_gradient=True)
    np.testing.assert_array_equal(values, same[0])
    np.testing.assert_array_equal(gradient, same[1])


@every_surrogate
def test_experts_never_asked_take_no_part_in_their_row(surrogate: object) -> None:
    scores, rewards, margins = draw(14, 30, 5)
    asked = np.random.default_rng(0).random((30, 5)) < 0.6
    values, gradient = mild_loss(
        scores, rewards, margins, surrogate, return_gradient=True, asked=asked
    )
    for i, who in enumerate(asked):
        if not who.any():
            assert values[i] == 0
            continue
        few, few_gradient = mild_loss(
            scores[i : i + 1, who], rewards[i : i + 1, who], margins[who], surrogate,
            return_gradient=True,
        )  # fmt: skip
        assert values[i] == pytest.approx(few[0], rel=1e-12, abs=1e-15)
        np.testing.assert_allclose(gradient[i, who], few_gradient[0], rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(gradient[~asked], 0)


def test_tdef_leaves_out_experts_whose_cost_is_unknown() -> None:
    scores = np.array([[0.3, 9.0, -1.0], [0.0, 0.1, 0.2]])
    costs = np.array([[0.2, np.nan, 0.7], [0.1, 0.5, 1.0]])
    got = tdef_loss(scores, costs, cost_scale=1.0)
    assert got[0] == pytest.approx(oracles.mild_loss([0.3, -1.0], [0.8, 0.3], [1, 1]))


rows = st.integers(2, 5).flatmap(
    lambda p: st.tuples(
        st.lists(st.floats(-20, 20), min_size=p, max_size=p),
        st.lists(st.floats(0, 5), min_size=p, max_size=p),
        st.lists(st.floats(0.2, 3), min_size=p, max_size=p),
        st.permutations(range(p)),
    )
)


@PROPERTY
@given(rows, st.sampled_from(SURROGATES))
def test_permuting_experts_permutes_the_gradient_and_keeps_the_value(
    row: tuple, surrogate: object
) -> None:
    scores, rewards, margins = (np.array(part) for part in row[:3])
    order = list(row[3])
    value, gradient = mild_loss([scores], [rewards], margins, surrogate, return_gradient=True)
    moved, moved_gradient = mild_loss(
        [scores[order]], [rewards[order]], margins[order], surrogate, return_gradient=True
    )
    np.testing.assert_allclose(moved, value, rtol=1e-9, atol=1e-12)
    if surrogate != "hinge" or len(set(row[0])) == len(row[0]):  # a subgradient breaks ties
        scale = np.abs(gradient).max() + 1e-300
        np.testing.assert_allclose(moved_gradient / scale, gradient[:, order] / scale, atol=1e-9)


@PROPERTY
@given(rows, st.integers(-50, 50), st.sampled_from(SURROGATES))
def test_adding_a_constant_to_a_row_of_scores_changes_nothing(
    row: tuple, constant: int, surrogate: object
) -> None:
    # Scores on a binary grid: the sum with a whole number is exact.
    scores = np.round(np.array(row[0]) * 1024) / 1024
    rewards, margins = np.array(row[1]), np.array(row[2])
    value, gradient = mild_loss([scores], [rewards], margins, surrogate, return_gradient=True)
    same, same_gradient = mild_loss(
        [scores + constant], [rewards], margins, surrogate, return_gradient=True
    )
    np.testing.assert_array_equal(same, value)
    np.testing.assert_array_equal(same_gradient, gradient)
    scale = max(np.abs(gradient).max(), (rewards / margins).max(), 1e-300)
    assert abs((gradient / scale).sum()) < 1e-12


@PROPERTY
@given(rows, st.sampled_from([0.25, 2.0, 8.0]), st.sampled_from(SURROGATES))
def test_the_scale_of_scores_and_margins_together_is_redundant(
    row: tuple, factor: float, surrogate: object
) -> None:
    scores, rewards, margins = (np.array(part) for part in row[:3])
    value = mild_loss([scores], [rewards], margins, surrogate)
    scaled = mild_loss([factor * scores], [rewards], factor * margins, surrogate)
    np.testing.assert_allclose(scaled, value, rtol=1e-12, atol=1e-14)


@every_surrogate
@pytest.mark.parametrize("p", [1, 2, 3, 10])
def test_scores_three_hundred_margins_apart_give_the_true_value(surrogate: object, p: int) -> None:
    rng = np.random.default_rng(p)
    scores = rng.choice([-15.0, 0.0, 15.0], (24, p)) + rng.normal(size=(24, p))
    rewards = rng.choice([0.0, 0.3, 1.0], (24, p))
    margins = rng.choice([0.1, 0.7, 1.9], p)
    values, gradient = mild_loss(scores, rewards, margins, surrogate, return_gradient=True)
    expected = [
        oracles.mild_loss(f, w, margins, surrogate) for f, w in zip(scores, rewards, strict=True)
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-11, atol=1e-11)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("surrogate", SMOOTH)
def test_scores_three_hundred_margins_apart_give_the_true_gradient(surrogate: object) -> None:
    rng = np.random.default_rng(1)
    scores = rng.choice([-15.0, 0.0, 15.0], (24, 5)) + rng.normal(size=(24, 5))
    rewards = rng.choice([0.0, 0.3, 1.0], (24, 5))
    margins = rng.choice([0.1, 0.7, 1.9], 5)
    gradient = mild_loss(scores, rewards, margins, surrogate, return_gradient=True)[1]
    # Scores over margins are exponents: their rounding is the relative error of a power.
    tolerance = 1e-11
    for row, f, w in zip(gradient, scores, rewards, strict=True):
        up, down = oracles.mild_gradient_parts(f.tolist(), w.tolist(), margins, surrogate)
        for got, a, b in zip(row.tolist(), up, down, strict=True):
            assert got == pytest.approx(a - b, rel=tolerance, abs=tolerance * (1 + min(a, b)))


@every_surrogate
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_that_overflow_are_large_but_finite(surrogate: object, dtype: type) -> None:
    scores = np.array([[-1e5, 0.0, 1e5]], dtype)
    # Expert 0 has all the reward and the lowest score: its score must rise, the best one's fall.
    rewards = np.array([[1.0, 0.0, 0.0]], dtype)
    values, gradient = mild_loss(scores, rewards, [0.1, 1.0, 1.0], surrogate, True)
    assert np.isfinite(values).all()
    assert np.isfinite(gradient).all()
    if surrogate != 1.7:
        assert values[0] > 1e5
        assert gradient[0, 0] < 0 < gradient[0, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("surrogate", ["logistic", "hinge", 0.5])
def test_a_thousand_experts_match_the_transcription(surrogate: object, dtype: type) -> None:
    rng = np.random.default_rng(2)
    scores = (rng.normal(size=(1, 1000)) * 3).astype(dtype)
    rewards = rng.random((1, 1000)).astype(dtype)
    margins = rng.uniform(0.5, 2, 1000)
    expected = oracles.mild_loss(scores[0].tolist(), rewards[0].tolist(), margins, surrogate)
    values, gradient = mild_loss(scores, rewards, margins, surrogate, return_gradient=True)
    assert values[0] == pytest.approx(expected, rel=1e-11 if dtype is np.float64 else 1e-4)
    tolerance = 1e-10 if dtype is np.float64 else 1e-3
    assert abs(gradient.sum()) < tolerance * np.abs(gradient).sum()


@every_surrogate
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e3, 1e20])
def test_a_thousand_experts_with_extreme_scores_give_no_nan(
    surrogate: object, dtype: type, size: float
) -> None:
    rng = np.random.default_rng(3)
    scores = (rng.choice([-1.0, 0.0, 1.0], (2, 1000)) * size).astype(dtype)
    rewards = rng.choice([0.0, 1.0], (2, 1000))
    rewards[1] = 0
    margins = rng.choice([0.1, 0.7, 1.9], 1000)
    values, gradient = mild_loss(scores, rewards, margins, surrogate, return_gradient=True)
    assert not np.isnan(values).any()
    assert not np.isnan(gradient).any()
    assert values[1] == 0
    np.testing.assert_array_equal(gradient[1], 0)


@every_surrogate
def test_no_array_of_pairs_is_made(surrogate: object) -> None:
    n, p = 40, 200
    scores, rewards, margins = draw(15, n, p)
    mild_loss(scores[:1], rewards[:1], margins, surrogate, return_gradient=True)
    tracemalloc.start()
    mild_loss(scores, rewards, margins, surrogate, return_gradient=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * p * p * 8 / 8


def test_experts_sharing_a_margin_share_one_exponential(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    plain = np.exp

    def counting(*args: object, **options: object) -> object:
        calls.append(1)
        return plain(*args, **options)  # type: ignore[call-overload]

    scores, rewards, _ = draw(16, 5, 6)
    monkeypatch.setattr(np, "exp", counting)
    mild_loss(scores, rewards, [1.0, 1.0, 2.0, 2.0, 2.0, 1.0], return_gradient=True)
    assert len(calls) == 2


def test_float32_is_kept_and_inputs_are_left_alone() -> None:
    scores, rewards, margins = draw(17, 5, 3)
    scores, rewards = scores.astype(np.float32), rewards.astype(np.float32)
    before = scores.copy(), rewards.copy()
    values, gradient = mild_loss(scores, rewards, margins, return_gradient=True)
    assert values.dtype == gradient.dtype == np.float32
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(rewards, before[1])


def test_no_rows_give_no_losses() -> None:
    values, gradient = mild_loss(np.zeros((0, 3)), np.zeros((0, 3)), return_gradient=True)
    assert values.shape == (0,)
    assert gradient.shape == (0, 3)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"scores": [[0.0, np.nan]]}, "scores"),
        ({"rewards": [[1.0]]}, "rewards"),
        ({"margins": [1.0]}, "margins"),
        ({"asked": [[True]]}, "asked"),
        ({"surrogate": "exponental"}, "surrogate"),
    ],
)
def test_bad_input_is_refused(options: dict, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        mild_loss(**{"scores": [[0.0, 1.0]], "rewards": [[1.0, 1.0]], **options})
    assert caught.value.code == f"invalid_{code}"

"""The logistic loss of many margins from powers of a anchors."""

from __future__ import annotations

import numpy as np
import pytest

import mild.core.losses as deferral
import oracles
from mild.core.losses import mild_loss
from mild.core.margins import find_anchors, margin_groups
from mild.core.surrogates import parse_surrogate


def draw(n: int, p: int, shared: bool, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    margins = np.exp(rng.uniform(0, np.log(5), p)) * 0.4
    if shared:
        margins[: p // 4] = rng.choice(margins[p // 4 :], p // 4)
    scores = rng.normal(size=(n, p)) * 2
    rewards = rng.random((n, p)) * (rng.random((n, p)) < 0.8)
    assert find_anchors(margin_groups(margins), np.float64) is not None
    return scores, rewards, margins


@pytest.mark.parametrize("shared", [False, True])
def test_values_and_gradients_match_the_transcription(shared: bool) -> None:
    scores, rewards, margins = draw(8, 60, shared)
    values, gradient = mild_loss(scores, rewards, margins, return_gradient=True)
    rows = list(zip(scores, rewards, strict=True))
    expected = [oracles.mild_loss(f, w, margins) for f, w in rows]
    slopes = [oracles.mild_gradient(f, w, margins, "logistic") for f, w in rows]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(values, mild_loss(scores, rewards, margins))


def test_gradients_are_the_slopes_of_the_values() -> None:
    scores, rewards, margins = draw(3, 50, False)
    _, gradient = mild_loss(scores, rewards, margins, return_gradient=True)
    for j in range(0, 50, 7):
        step = np.zeros(50)
        step[j] = 1e-5
        rise = mild_loss(scores + step, rewards, margins)
        rise = rise - mild_loss(scores - step, rewards, margins)
        np.testing.assert_allclose(gradient[:, j], rise / 2e-5, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spread", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("p", [40, 200])
def test_single_precision_is_as_accurate_as_powers_of_every_margin(p: int, spread: float) -> None:
    scores, rewards, margins = draw(50, p, False, seed=1)
    scores = (scores * spread).astype(np.float32)
    groups = margin_groups(margins)
    anchors = find_anchors(groups, np.float32)
    assert anchors is not None
    shifted = (scores - scores.max(axis=1, keepdims=True)).T
    weights = (rewards / rewards.sum(axis=1, keepdims=True)).T

    def errors(single: bool) -> tuple[float, float]:
        slope, exact_slope = np.zeros_like(shifted), np.zeros(shifted.shape)
        exact = deferral._logistic(shifted.astype(np.float64), weights, groups, exact_slope)
        of = weights.astype(np.float32)
        if single:
            got = deferral._anchored_logistic(shifted.copy(), of, groups, anchors, slope)
        else:
            got = deferral._logistic(shifted.copy(), of, groups, slope)
        assert got.dtype == np.float32
        return np.abs(got / exact - 1).max(), np.abs(slope - exact_slope).max()

    by_few, by_all = errors(True), errors(False)
    assert by_few[0] <= 3 * by_all[0] + 1e-6
    assert by_few[1] <= 3 * by_all[1] + 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e3, 1e20, 1e37])
def test_extreme_scores_give_no_nan_and_nothing_negative(size: float, dtype: type) -> None:
    scores, rewards, margins = draw(40, 60, True, seed=2)
    scores = (np.sign(scores) * size).astype(dtype)
    with np.errstate(over="ignore"):
        values, gradient = mild_loss(scores, rewards, margins, return_gradient=True)
    assert (values >= 0).all()
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-3)


def test_experts_that_were_not_asked_take_no_part() -> None:
    scores, rewards, margins = draw(6, 60, False, seed=3)
    asked = np.random.default_rng(4).random(scores.shape) < 0.6
    values, gradient = mild_loss(scores, rewards, margins, return_gradient=True, asked=asked)
    assert (gradient[~asked] == 0).all()
    for i, known in enumerate(asked):
        row = oracles.mild_loss(scores[i, known], rewards[i, known], margins[known])
        assert values[i] == pytest.approx(row, rel=1e-11)


def test_rows_are_taken_in_parts_and_do_not_influence_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, rewards, margins = draw(70, 60, False, seed=5)
    values, gradient = mild_loss(scores, rewards, margins, return_gradient=True)
    monkeypatch.setattr(deferral, "MAX_POWERS", 1)
    apart, slopes = mild_loss(scores, rewards, margins, return_gradient=True)
    np.testing.assert_allclose(apart, values, rtol=1e-13)
    np.testing.assert_allclose(slopes, gradient, rtol=0, atol=1e-13)


def test_with_few_margins_the_powers_of_all_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("anchors were used")

    monkeypatch.setattr(deferral, "_anchored_logistic", refuse)
    rng = np.random.default_rng(6)
    mild_loss(rng.normal(size=(4, 8)), rng.random((4, 8)), np.linspace(0.5, 1, 8))
    groups = margin_groups(np.linspace(0.5, 1, 50))
    with pytest.raises(AssertionError, match="anchors were used"):
        deferral.accumulate_loss(
            rng.normal(size=(50, 4)), rng.random((50, 4)), groups, parse_surrogate("logistic")
        )

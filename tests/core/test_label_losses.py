"""Label-based baselines, property by property over all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import oracles
from mild.core.losses import (
    class_dependent_temperature_loss,
    class_weights,
    cross_entropy_loss,
    floored_counts,
    ldam_loss,
    ldam_margins,
    logit_adjusted_loss,
    resampling_weights,
    temperatures,
)
from mild.errors import InvalidInputError
from tolerances import rounding

COUNTS = [50, 0, 3, 12]
WEIGHTS = [0.5, 1.0, 4.0, 0.0]
LOSSES: dict[str, tuple[Callable, Callable]] = {
    "ce": (cross_entropy_loss, oracles.cross_entropy),
    "cwce": (
        lambda f, y, **o: cross_entropy_loss(f, y, WEIGHTS, **o),
        lambda f, y: WEIGHTS[y] * oracles.cross_entropy(f, y),
    ),
    "ldam": (
        lambda f, y, **o: ldam_loss(f, y, COUNTS, **o),
        lambda f, y: oracles.ldam(f, y, COUNTS, 0.5, 30.0),
    ),
    "ldam, mild": (
        lambda f, y, **o: ldam_loss(f, y, COUNTS, max_margin=0.2, scale=2.0, **o),
        lambda f, y: oracles.ldam(f, y, COUNTS, 0.2, 2.0),
    ),
    "logit adjustment": (
        lambda f, y, **o: logit_adjusted_loss(f, y, COUNTS, strength=1.5, **o),
        lambda f, y: oracles.logit_adjusted(f, y, COUNTS, 1.5),
    ),
    "temperatures": (
        lambda f, y, **o: class_dependent_temperature_loss(f, y, COUNTS, gamma=0.4, **o),
        lambda f, y: oracles.class_dependent_temperature(f, y, COUNTS, 0.4),
    ),
}
every_loss = pytest.mark.parametrize("name", LOSSES)


def draw(n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 4)), rng.integers(0, 4, n)


@every_loss
def test_values_match_the_transcription(name: str) -> None:
    loss, oracle = LOSSES[name]
    scores, labels = draw()
    expected = [oracle(f, y) for f, y in zip(scores.tolist(), labels.tolist(), strict=True)]
    np.testing.assert_allclose(loss(scores, labels), expected, rtol=1e-12, atol=1e-13)


@every_loss
def test_gradients_match_finite_differences_of_the_transcription(name: str) -> None:
    loss, oracle = LOSSES[name]
    scores, labels = draw(8)
    values, gradient = loss(scores, labels, return_gradient=True)
    np.testing.assert_array_equal(values, loss(scores, labels))
    step = 1e-6
    for i, y in enumerate(labels.tolist()):
        for j in range(4):
            ahead, behind = scores[i].tolist(), scores[i].tolist()
            ahead[j] += step
            behind[j] -= step
            slope = (oracle(ahead, y) - oracle(behind, y)) / (2 * step)
            assert gradient[i, j] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e3, 1e20])
def test_extreme_scores_give_the_true_value(name: str, dtype: type, size: float) -> None:
    loss, oracle = LOSSES[name]
    rng = np.random.default_rng(1)
    scores = (rng.choice([-1.0, 0.0, 1.0], (40, 4)) * size).astype(dtype)
    labels = rng.integers(0, 4, 40)
    values, gradient = loss(scores, labels, return_gradient=True)
    assert values.dtype == gradient.dtype == dtype
    expected = [oracle(f, y) for f, y in zip(scores.tolist(), labels.tolist(), strict=True)]
    # At 1e3 in float32 an LDAM margin of 0.2 times its scale of 10 is lost to rounding of the score.
    near = rounding(dtype, 10 * min(size, 1e3), steps=4)
    np.testing.assert_allclose(values, expected, **near)
    assert np.isfinite(gradient).all()


@every_loss
def test_adding_a_constant_to_a_row_of_scores_changes_nothing(name: str) -> None:
    loss = LOSSES[name][0]
    scores, labels = draw()
    if name == "temperatures":
        # Temperatures differ by expert: a constant shifts f_k / T_k unevenly. The rule does not hold.
        assert not np.allclose(loss(scores + 3, labels), loss(scores, labels))
    else:
        np.testing.assert_allclose(loss(scores + 3, labels), loss(scores, labels), atol=1e-12)


def test_permuting_experts_permutes_gradients() -> None:
    scores, labels = draw()
    order = np.array([2, 0, 3, 1])
    inverse = np.argsort(order)
    counts = np.array(COUNTS)
    for loss in (ldam_loss, logit_adjusted_loss, class_dependent_temperature_loss):
        value, gradient = loss(scores, labels, counts, return_gradient=True)
        moved, moved_gradient = loss(
            scores[:, order], inverse[labels], counts[order], return_gradient=True
        )
        np.testing.assert_allclose(moved, value, atol=1e-12)
        np.testing.assert_allclose(moved_gradient, gradient[:, order], atol=1e-12)


def test_one_expert_costs_nothing() -> None:
    for loss in (
        lambda **o: cross_entropy_loss([[2.0]], [0], **o),
        lambda **o: ldam_loss([[2.0]], [0], [5], **o),
        lambda **o: logit_adjusted_loss([[2.0]], [0], [5], **o),
        lambda **o: class_dependent_temperature_loss([[2.0]], [0], [5], **o),
    ):
        values, gradient = loss(return_gradient=True)
        assert values == 0
        assert gradient == 0


def test_class_weights_average_to_one_over_samples_and_absent_experts_get_none() -> None:
    counts = np.array([30, 0, 10])
    weights = class_weights(counts)
    assert weights[1] == 0
    assert (weights * counts).sum() / counts.sum() == pytest.approx(1)
    assert weights[2] / weights[0] == pytest.approx(3)


def test_ldam_margins_fall_with_the_fourth_root_of_the_count() -> None:
    margins = ldam_margins([16, 1, 81, 0])
    np.testing.assert_allclose(margins, [0.25, 0.5, 0.5 / 3, 0.5])


@pytest.mark.parametrize("factor", [1e-6, 0.01, 100.0])
def test_the_scale_of_the_counts_changes_nothing(factor: float) -> None:
    scores, labels = draw()
    counts = np.array([50.0, 1.0, 3.0, 12.0])
    np.testing.assert_allclose(ldam_margins(factor * counts), ldam_margins(counts))
    np.testing.assert_allclose(temperatures(factor * counts), temperatures(counts))
    for loss in (ldam_loss, logit_adjusted_loss, class_dependent_temperature_loss):
        # A loss near 0 is what is left of scores, which LDAM multiplies by 30.
        near = rounding(np.float64, 30 * np.abs(scores).max())
        np.testing.assert_allclose(
            loss(scores, labels, factor * counts), loss(scores, labels, counts), **near
        )


def test_an_absent_expert_counts_as_one_sample_or_as_the_smallest_count_below_one() -> None:
    np.testing.assert_array_equal(floored_counts([3, 0, 7]), [3, 1, 7])
    np.testing.assert_array_equal(floored_counts([0.3, 0, 0.2]), [0.3, 0.2, 0.2])


def test_logit_adjustment_with_equal_counts_is_cross_entropy() -> None:
    scores, labels = draw()
    np.testing.assert_allclose(
        logit_adjusted_loss(scores, labels, [7, 7, 7, 7]), cross_entropy_loss(scores, labels)
    )


def test_oversampling_gives_every_label_the_largest_count_and_keeps_every_row() -> None:
    labels = np.array([0] * 20 + [1] * 3 + [3] * 7)
    weights = resampling_weights(labels, 4, "over", np.random.default_rng(0))
    assert (weights >= 1).all()
    np.testing.assert_array_equal(np.bincount(labels, weights, minlength=4), [20, 20, 0, 20])


def test_undersampling_gives_every_label_the_smallest_count_and_repeats_no_row() -> None:
    labels = np.array([0] * 20 + [1] * 3 + [3] * 7)
    weights = resampling_weights(labels, 4, "under", np.random.default_rng(0))
    assert set(weights.tolist()) == {0.0, 1.0}
    np.testing.assert_array_equal(np.bincount(labels, weights, minlength=4), [3, 3, 0, 3])


def test_resampling_is_decided_by_its_generator() -> None:
    labels = np.random.default_rng(2).integers(0, 3, 50)
    first = resampling_weights(labels, 3, "over", np.random.default_rng(5))
    again = resampling_weights(labels, 3, "over", np.random.default_rng(5))
    other = resampling_weights(labels, 3, "over", np.random.default_rng(6))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: cross_entropy_loss([[0.0, 1.0]], [2]), "labels"),
        (lambda: cross_entropy_loss([[0.0]], [0], [-1.0]), "weights"),
        (lambda: ldam_loss([[0.0, 1.0]], [0], [1]), "counts"),
        (lambda: ldam_loss([[0.0]], [0], [1], max_margin=0), "input"),
        (lambda: logit_adjusted_loss([[0.0, 1.0]], [0], [1, 2, 3]), "counts"),
        (lambda: class_dependent_temperature_loss([[0.0]], [0], [0]), "counts"),
        (lambda: class_weights([[1.0]]), "counts"),
        (lambda: resampling_weights([0], 1, "overs", np.random.default_rng(0)), "sampling"),
    ],
)
def test_bad_input_is_refused(call: Callable, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert caught.value.code == f"invalid_{code}"

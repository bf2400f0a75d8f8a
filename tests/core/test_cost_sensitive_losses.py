"""Cost-sensitive margin losses: what they are, what they bound, and what orders them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import oracles
from mild.core.losses import (
    cost_sensitive_loss,
    cost_sensitive_zero_one,
    log_sum_loss,
    rho_margin_loss,
)
from mild.core.surrogates import parse_surrogate
from mild.errors import InvalidInputError, OptionError
from tolerances import rounding

SURROGATES = ["logistic", "exponential", 0.5, 1.7, "hinge"]
every_surrogate = pytest.mark.parametrize("surrogate", SURROGATES)


def draw(
    seed: int, n: int, p: int, spread: float = 2.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels, pair costs with zeros, margins."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, p, n)
    costs = rng.random((n, p)) * (rng.random((n, p)) < 0.8)
    costs[np.arange(n), labels] = 0
    return rng.normal(size=(n, p)) * spread, labels, costs, rng.uniform(0.3, 2, p)


def rows(*arrays: np.ndarray) -> zip:
    return zip(*(array.tolist() for array in arrays), strict=True)


@every_surrogate
@pytest.mark.parametrize("reduction", ["max", "sum"])
@pytest.mark.parametrize("p", [1, 2, 5])
def test_values_match_the_transcription(surrogate: object, reduction: str, p: int) -> None:
    f, y, c, rho = draw(p, 40, p)
    combine = max if reduction == "max" else sum
    expected = [
        combine(oracles.cost_sensitive_terms(*row, rho, surrogate)) for row in rows(f, y, c)
    ]
    got = cost_sensitive_loss(f, y, c, rho, surrogate, reduction)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_margin_and_log_sum_losses_match_the_transcription(p: int) -> None:
    f, y, c, rho = draw(p, 40, p)
    np.testing.assert_allclose(
        rho_margin_loss(f, y, c, rho), [oracles.rho_margin(*row, rho) for row in rows(f, y, c)]
    )
    np.testing.assert_allclose(
        log_sum_loss(f, y, c, rho),
        [oracles.log_sum(*row, rho) for row in rows(f, y, c)],
        rtol=1e-12,
        atol=1e-14,
    )


def transcriptions() -> dict[str, tuple[Callable, Callable]]:
    table: dict[str, tuple[Callable, Callable]] = {"log-sum": (log_sum_loss, oracles.log_sum)}
    for surrogate in SURROGATES:
        for reduction, combine in (("max", max), ("sum", sum)):
            table[f"{surrogate} {reduction}"] = (
                lambda *a, s=surrogate, r=reduction, **o: cost_sensitive_loss(*a, s, r, **o),
                lambda *a, s=surrogate, c=combine: c(oracles.cost_sensitive_terms(*a, s)),
            )
    return table


@pytest.mark.parametrize("name", transcriptions())
def test_gradients_match_finite_differences_of_the_transcription(name: str) -> None:
    loss, oracle = transcriptions()[name]
    f, y, c, rho = draw(3, 10, 4)
    values, gradient = loss(f, y, c, rho, return_gradient=True)
    np.testing.assert_array_equal(values, loss(f, y, c, rho))
    step = 1e-6
    for i in range(len(f)):
        for j in range(4):
            ahead, behind = f[i].tolist(), f[i].tolist()
            ahead[j] += step
            behind[j] -= step
            rise = oracle(ahead, y[i], c[i].tolist(), rho) - oracle(
                behind, y[i], c[i].tolist(), rho
            )
            assert gradient[i, j] == pytest.approx(rise / (2 * step), rel=1e-5, abs=1e-6)


def test_the_margin_loss_bounds_the_zero_one_loss() -> None:
    f, y, c, rho = draw(4, 2000, 5)
    zero_one = cost_sensitive_zero_one(f, y, c)
    np.testing.assert_array_equal(
        zero_one, [cost[oracles.argmax_highest_index(s)] for s, cost in rows(f, c)]
    )
    bound = rho_margin_loss(f, y, c, rho)
    assert (zero_one <= bound).all()
    assert (zero_one < bound).any()


@every_surrogate
def test_surrogates_bound_the_margin_loss_after_division_by_their_unit(surrogate: object) -> None:
    f, y, c, rho = draw(5, 4000, 5, spread=1.0)
    margin = rho_margin_loss(f, y, c, rho)
    unit = parse_surrogate(surrogate).unit
    for reduction in ("max", "sum"):
        loss = cost_sensitive_loss(f, y, c, rho, surrogate, reduction)
        assert (margin <= loss / unit * (1 + 1e-12)).all()


@pytest.mark.parametrize("surrogate", ["logistic", 0.5, 1.7])
def test_surrogates_do_not_bound_the_margin_loss_before_that_division(surrogate: object) -> None:
    tie, label, cost = [[0.0, 0.0]], [0], [[0.0, 1.0]]
    unit = parse_surrogate(surrogate).unit
    value = cost_sensitive_loss(tie, label, cost, None, surrogate)
    np.testing.assert_allclose(value, unit)
    assert value < rho_margin_loss(tie, label, cost) == 1


def test_log_sum_bounds_the_max_logistic_form() -> None:
    f, y, c, rho = draw(6, 2000, 5)
    assert (log_sum_loss(f, y, c, rho) >= cost_sensitive_loss(f, y, c, rho) - 1e-12).all()


def test_at_margin_one_the_hinge_form_is_slack_rescaled_structsvm() -> None:
    f, y, c, _ = draw(7, 500, 5)
    expected = [oracles.slack_rescaled_structsvm(*row) for row in rows(f, y, c)]
    np.testing.assert_allclose(cost_sensitive_loss(f, y, c, None, "hinge"), expected, atol=1e-14)


def test_the_hinge_form_is_not_ordered_against_margin_rescaled_structsvm() -> None:
    below = ([0.0, 2.0], 0, [0.0, 0.5])
    above = ([0.0, -0.4], 0, [0.0, 0.5])
    for row, sign in ((below, -1), (above, 1)):
        ours = cost_sensitive_loss([row[0]], [row[1]], [row[2]], None, "hinge")[0]
        assert sign * (ours - oracles.margin_rescaled_structsvm(*row)) > 0.1


def test_max_logistic_lies_below_the_crf_loss_and_the_log_sum_form_does_not() -> None:
    rng = np.random.default_rng(0)
    draws = below = above = 0
    for p in (2, 3, 4, 5, 8):
        f, y, c, _ = draw(int(rng.integers(1000)), 4000, p, spread=1.5)
        crf = np.array([oracles.crf_loss(*row) for row in rows(f, y, c)])
        draws += len(f)
        below += int((cost_sensitive_loss(f, y, c) > crf + 1e-12).sum())
        above += int((log_sum_loss(f, y, c) > crf + 1e-12).sum())
    assert draws == 20_000
    assert below == 0
    assert above > 100


def test_the_crf_ordering_needs_costs_of_at_most_one() -> None:
    row = ([0.0, 5.0], 0, [0.0, 3.0])
    ours = cost_sensitive_loss([row[0]], [row[1]], [row[2]])[0]
    assert ours > oracles.crf_loss(*row) + 1


@every_surrogate
@pytest.mark.parametrize("p", [1, 2, 4])
def test_scores_many_margins_apart_give_the_true_value(surrogate: object, p: int) -> None:
    rng = np.random.default_rng(8)
    _, y, c, rho = draw(8, 30, p)
    f = rng.choice([-1.0, 0.0, 1.0], (30, p)) * 50
    for reduction, combine in (("max", max), ("sum", sum)):
        values, gradient = cost_sensitive_loss(
            f, y, c, rho, surrogate, reduction, return_gradient=True
        )
        assert np.isfinite(gradient).all()
        for value, row in zip(values, rows(f, y, c), strict=True):
            expected = combine(oracles.cost_sensitive_terms(*row, rho, surrogate))
            assert value == pytest.approx(expected, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_many_margins_apart_leave_margin_and_log_sum_losses_exact(dtype: type) -> None:
    rng = np.random.default_rng(9)
    _, y, c, rho = draw(9, 40, 4)
    f = (rng.choice([-1.0, 0.0, 1.0], (40, 4)) * 50).astype(dtype)
    values, gradient = log_sum_loss(f, y, c, rho, return_gradient=True)
    expected = [oracles.log_sum(*row, rho) for row in rows(f, y, c)]
    np.testing.assert_allclose(values, expected, **rounding(dtype))
    assert np.isfinite(gradient).all()
    expected = [oracles.rho_margin(*row, rho) for row in rows(f, y, c)]
    np.testing.assert_allclose(rho_margin_loss(f, y, c, rho), expected, **rounding(dtype))


def test_shift_and_joint_permutation_change_nothing() -> None:
    f, y, c, rho = draw(10, 60, 4)
    order = np.array([3, 1, 0, 2])
    place = np.argsort(order)
    for loss in (
        rho_margin_loss,
        log_sum_loss,
        cost_sensitive_loss,
        lambda *a: cost_sensitive_loss(*a, "hinge", "sum"),
    ):
        value = loss(f, y, c, rho)
        np.testing.assert_allclose(loss(f + 4, y, c, rho), value, atol=1e-12)
        moved = loss(f[:, order], place[y], c[:, order], rho[order])
        np.testing.assert_allclose(moved, value, atol=1e-12)


def test_only_the_labels_margin_matters() -> None:
    f, _, c, rho = draw(11, 10, 4)
    y = np.zeros(10, int)
    c[:, 0] = 0
    other = rho * [1.0, 5.0, 5.0, 5.0]
    np.testing.assert_array_equal(
        cost_sensitive_loss(f, y, c, rho), cost_sensitive_loss(f, y, c, other)
    )


def test_no_array_of_pairs_is_made() -> None:
    n, p = 40, 300
    f, y, c, rho = draw(12, n, p)
    cost_sensitive_loss(f, y, c, rho, return_gradient=True)
    tracemalloc.start()
    cost_sensitive_loss(f, y, c, rho, return_gradient=True)
    log_sum_loss(f, y, c, rho, return_gradient=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * p * p * 8 / 8


@pytest.mark.parametrize(
    ("labels", "costs", "code"),
    [
        ([0], [[0.0]], "costs"),
        ([0], [[0.5, 1.0]], "costs"),
        ([0], [[0.0, -1.0]], "costs"),
        ([0], [[0.0, np.nan]], "costs"),
        ([5], [[0.0, 1.0]], "labels"),
    ],
)
def test_bad_input_is_refused(labels: list, costs: list, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        log_sum_loss([[0.0, 1.0]], labels, costs)
    assert caught.value.code == f"invalid_{code}"


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(OptionError, match="reduction must be one of 'max', 'sum'; got 'mean'"):
        cost_sensitive_loss([[0.0, 1.0]], [0], [[0.0, 1.0]], reduction="mean")

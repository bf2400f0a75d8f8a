from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from mild.core.losses import mild_loss
from mild.core.surrogates import parse_surrogate
from mild.routers.objective import BLOCK, LinearObjective, RowLoss, single_blas_thread

SURROGATES = ["logistic", "exponential", 0.5, "hinge", "pairwise_logistic", "pairwise_exponential"]
P, D = 3, 4
MARGINS = np.array([0.5, 1.0, 1.0])


def row_loss(n, surrogate="logistic", missing=False, transformed=False, seed=0):
    rng = np.random.default_rng(seed)
    rewards = rng.uniform(size=(P, n)) / n
    asked = None
    if missing:
        asked = rng.uniform(size=(P, n)) < 0.7
        asked[0, ~asked.any(axis=0)] = True
        rewards *= asked
    extra = {}
    if transformed:
        extra = {
            "scale": np.array([2.0, 0.5, 1.0]),
            "offset": np.array([0.1, -0.3, 0.0]),
            "label_offset": np.array([-0.2, 0.3, 0.1]),
        }
        rewards[1:] = 0
    return RowLoss(rewards, asked, MARGINS, parse_surrogate(surrogate), **extra)


def inputs(n, seed=1):
    return np.random.default_rng(seed).normal(size=(n, D))


def weights(seed=2):
    return np.random.default_rng(seed).normal(size=(P, D + 1))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("missing", "transformed"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_gradient_is_the_slope_of_the_value(surrogate, missing, transformed, fit_intercept):
    loss = row_loss(30, surrogate, missing, transformed)
    objective = LinearObjective(inputs(30), loss, 0.1, fit_intercept)
    W = weights()
    _, gradient = objective(W)
    for k in range(P):
        for j in range(D + 1):
            ahead, behind = W.copy(), W.copy()
            ahead[k, j] += 1e-6
            behind[k, j] -= 1e-6
            slope = (objective(ahead)[0] - objective(behind)[0]) / 2e-6
            if j == D and not fit_intercept:
                slope = 0.0
            assert gradient[k, j] == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_value_is_the_loss_plus_the_penalty_on_weights_alone(surrogate):
    X, W = inputs(25), weights()
    loss = row_loss(25, surrogate)
    value, _ = LinearObjective(X, loss, 0.3)(W)
    scores = X @ W[:, :-1].T + W[:, -1]
    expected = mild_loss(scores, loss.rewards.T, MARGINS, surrogate).sum()
    assert value == pytest.approx(expected + 0.3 * np.square(W[:, :-1]).sum())


def test_an_expert_that_was_not_asked_takes_no_part_in_its_row():
    loss = row_loss(40, missing=True)
    X, W = inputs(40), weights()
    value, _ = LinearObjective(X, loss, 0.0)(W)
    scores = X @ W[:, :-1].T + W[:, -1]
    expected = 0.0
    for i in range(40):
        asked = loss.asked[:, i]
        expected += mild_loss(
            scores[i : i + 1, asked], loss.rewards[asked, i][None], MARGINS[asked]
        )
    assert value == pytest.approx(float(expected[0]))


def test_scores_are_scaled_and_shifted_before_the_loss():
    loss = row_loss(40, transformed=True)
    X, W = inputs(40), weights()
    value, _ = LinearObjective(X, loss, 0.0)(W)
    scores = (X @ W[:, :-1].T + W[:, -1]) * loss.scale + loss.offset
    scores += np.where(loss.rewards.T > 0, loss.label_offset, 0)
    assert value == pytest.approx(mild_loss(scores, loss.rewards.T, MARGINS).sum())


@pytest.mark.parametrize("n", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_blocks_and_threads_change_nothing(n, threads):
    X, W, loss = inputs(n), weights(), row_loss(n)
    value, gradient = LinearObjective(X, loss, 0.1, threads=threads)(W)
    scores = X @ W[:, :-1].T + W[:, -1]
    values, slope = mild_loss(scores, loss.rewards.T, MARGINS, return_gradient=True)
    assert value == pytest.approx(values.sum() + 0.1 * np.square(W[:, :-1]).sum())
    expected = np.column_stack([slope.T @ X + 0.2 * W[:, :-1], slope.sum(axis=0)])
    assert_allclose(gradient, expected, atol=1e-12)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_give_what_dense_rows_give(container):
    X, W, loss = inputs(50), weights(), row_loss(50)
    X[np.abs(X) < 0.5] = 0
    value, gradient = LinearObjective(X, loss, 0.1)(W)
    thin_value, thin_gradient = LinearObjective(container(X), loss, 0.1)(W)
    assert thin_value == pytest.approx(value)
    assert_allclose(thin_gradient, gradient, atol=1e-14)


def test_take_keeps_the_chosen_rows():
    loss = row_loss(40, missing=True, transformed=True)
    rows = np.array([3, 7, 20])
    part = loss.take(rows, 2.0)
    X, W = inputs(40), weights()
    alone = [LinearObjective(X[i : i + 1], loss.take(np.array([i]), 2.0), 0.0)(W)[0] for i in rows]
    assert LinearObjective(X[rows], part, 0.0)(W)[0] == pytest.approx(sum(alone))


def test_evaluations_are_counted():
    objective = LinearObjective(inputs(5), row_loss(5), 0.1)
    objective(weights())
    objective(weights())
    assert objective.evaluations == 2


def test_blas_limits_are_restored_also_after_an_error():
    with single_blas_thread() as before:
        pass
    with pytest.raises(KeyError), single_blas_thread():
        raise KeyError
    with single_blas_thread() as after:
        assert_array_equal(after, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("missing", "transformed"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("surrogate", ["logistic", "exponential", 0.5, "pairwise_logistic"])
def test_curvature_is_the_second_derivative_between_scores(surrogate, missing, transformed, dtype):
    loss = row_loss(40, surrogate, missing, transformed)
    loss = replace(loss, rewards=loss.rewards.astype(dtype))
    scores = np.random.default_rng(3).normal(size=(P, 40))
    before = scores.copy()
    got = loss.curvature(scores)
    assert_array_equal(scores, before)

    def value(moves):
        return loss.evaluate(scores + moves[:, None], slice(None))[0]

    if dtype == np.float32:
        exact = replace(loss, rewards=loss.rewards.astype(np.float64)).curvature(scores)
        assert_allclose(got, exact)
        return
    step = 1e-3 * np.eye(P)
    for j in range(P):
        for k in range(P):
            rise = value(step[j] + step[k]) - value(step[j] - step[k])
            fall = value(step[k] - step[j]) - value(-step[j] - step[k])
            assert got[j, k] == pytest.approx((rise - fall) / 4e-6, rel=2e-3, abs=2e-4)
    assert_array_equal(got, got.T)

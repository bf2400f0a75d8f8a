from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize as scipy_minimize

from mild.core.surrogates import parse_surrogate
from mild.routers.objective import LinearObjective, RowLoss
from mild.routers.solver import (
    DENSE_LIMIT,
    Preconditioner,
    minimise,
    sample_rows,
    second_moments,
)


def problem(n=200, d=5, p=3, surrogate="logistic", dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * np.logspace(-1, 1, d) + 0.5).astype(dtype)
    rewards = np.exp(X[:, :p] + rng.normal(size=(n, p))).astype(dtype).T
    rewards /= rewards.sum()
    margins = np.linspace(0.5, 1.5, p)
    loss = RowLoss(rewards, None, margins, parse_surrogate(surrogate))
    return LinearObjective(X, loss, 1e-3)


def preconditioner(objective, curvature=0.3):
    return Preconditioner(
        second_moments(objective.X, np.ones(objective.X.shape[0])), curvature, objective.alpha
    )


def reference(objective):
    def flat(w):
        value, gradient = objective(w.reshape(objective.shape))
        return value, gradient.ravel()

    options = {"maxiter": 50_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-10}
    start = np.zeros(objective.shape).ravel()
    return scipy_minimize(flat, start, jac=True, method="L-BFGS-B", options=options)


@pytest.mark.parametrize("moments", ["dense", "diagonal"])
def test_turned_variables_go_there_and_back(moments):
    objective = problem()
    full = second_moments(objective.X, np.ones(200))
    turn = Preconditioner(full if moments == "dense" else np.diag(full).copy(), 0.3, 0.01)
    W = np.random.default_rng(1).normal(size=objective.shape)
    assert_allclose(turn.to_weights(turn.to_variables(W)), W)
    # Chain rule: the slope along any change of variables is the same in both.
    G, change = np.random.default_rng(2).normal(size=(2, *objective.shape))
    along_weights = (G * turn.to_weights(change)).sum()
    assert (turn.gradient_in_variables(G) * change).sum() == pytest.approx(along_weights)


def between(p, seed=3):
    """A curvature between scores: positive, but none for moving all scores together."""
    A = np.random.default_rng(seed).normal(size=(2 * p, p))
    A -= A.mean(axis=1, keepdims=True)
    return A.T @ A


@pytest.mark.parametrize("moments", ["dense", "diagonal"])
def test_variables_turned_between_experts_go_there_and_back(moments):
    objective = problem(p=4)
    full = second_moments(objective.X, np.ones(200))
    turn = Preconditioner(full if moments == "dense" else np.diag(full).copy(), between(4), 0.01)
    W = np.random.default_rng(1).normal(size=objective.shape)
    assert_allclose(turn.to_weights(turn.to_variables(W)), W)
    G, change = np.random.default_rng(2).normal(size=(2, *objective.shape))
    along_weights = (G * turn.to_weights(change)).sum()
    assert (turn.gradient_in_variables(G) * change).sum() == pytest.approx(along_weights)


def test_a_curvature_between_scores_makes_the_bowl_of_their_product_round():
    objective = problem(p=4)
    moments = second_moments(objective.X, np.ones(200))
    curvature = between(4)
    turn = Preconditioner(moments, curvature, 1e-9)
    # Scores of two changes of the weights, curved by K and averaged over the rows.
    rng = np.random.default_rng(4)
    W = rng.normal(size=(2, *objective.shape))
    W -= W.mean(axis=1, keepdims=True)
    bent = np.trace(W[0].T @ curvature @ W[1] @ moments)
    assert (turn.to_variables(W[0]) * turn.to_variables(W[1])).sum() == pytest.approx(
        bent, rel=1e-4
    )


def test_equal_curvatures_between_scores_are_the_plain_preconditioner():
    objective = problem(p=4)
    moments = second_moments(objective.X, np.ones(200))
    plain = Preconditioner(moments, 0.3, 0.01)
    turn = Preconditioner(moments, 0.3 * (np.eye(4) - 1 / 4), 0.01)
    W = np.random.default_rng(1).normal(size=objective.shape)
    assert_allclose(turn.to_variables(W), plain.to_variables(W))
    assert_allclose(turn.gradient_in_variables(W), plain.gradient_in_variables(W))


@pytest.mark.parametrize("curvature", [np.zeros((3, 3)), np.diag([1e12, 0.0, 0.0])])
def test_directions_without_curvature_do_no_harm(curvature):
    turn = Preconditioner(second_moments(problem().X, np.ones(200)), curvature, 0.0)
    assert np.isfinite(turn.to_weights(np.ones((3, 6)))).all()


def test_the_factor_squares_to_curvature_and_penalty_without_one_on_the_intercept():
    objective = problem()
    moments = second_moments(objective.X, np.ones(200))
    turn = Preconditioner(moments, 0.3, 0.05)
    factor = turn.to_variables(np.eye(6))
    expected = 0.3 * moments + np.diag([0.1] * 5 + [0.0])
    assert_allclose(factor @ factor.T, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_offsets_of_the_features_change_neither_the_optimum_nor_the_work(offset):
    objective = problem()
    plain = minimise(objective, preconditioner(objective), np.zeros(objective.shape), 1e-10, 500)
    moved = replace(objective, X=objective.X + offset)
    found = minimise(moved, preconditioner(moved), np.zeros(objective.shape), 1e-10, 500)
    assert found.value == pytest.approx(plain.value, rel=1e-8)
    assert found.n_iter <= 2 * plain.n_iter


def test_collinear_and_empty_features_do_no_harm():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X = np.column_stack([X, X[:, 0], np.zeros(50)])
    turn = Preconditioner(second_moments(X, np.ones(50)), 0.25, 0.0)
    assert np.isfinite(turn.to_weights(np.ones((2, 6)))).all()


@pytest.mark.parametrize("surrogate", ["logistic", "exponential", 0.5, "pairwise_logistic"])
@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_ends_within_the_tolerance_of_the_optimum(surrogate, tol):
    objective = problem(surrogate=surrogate)
    best = reference(objective).fun
    solution = minimise(objective, preconditioner(objective), np.zeros(objective.shape), tol, 500)
    assert solution.converged
    assert solution.value == pytest.approx(objective(solution.W)[0])
    # The estimate takes the curvature at the start for that at the end: a factor is left.
    assert best - 1e-9 <= solution.value <= best + 20 * tol * abs(best) + 1e-9


def test_a_diagonal_preconditioner_ends_at_the_same_optimum():
    objective = problem()
    full = minimise(objective, preconditioner(objective), np.zeros(objective.shape), 1e-11, 500)
    diagonal = Preconditioner(np.diag(second_moments(objective.X, np.ones(200))).copy(), 0.3, 1e-3)
    thin = minimise(objective, diagonal, np.zeros(objective.shape), 1e-11, 2000)
    assert thin.value == pytest.approx(full.value, rel=1e-8)
    assert full.n_iter <= thin.n_iter


def test_the_scale_of_the_features_does_not_change_the_number_of_iterations():
    counts = []
    for factor in (1e-3, 1.0, 1e3):
        objective = problem()
        scaled = LinearObjective(objective.X * factor, objective.loss, 1e-3 * factor**2)
        solution = minimise(scaled, preconditioner(scaled), np.zeros(scaled.shape), 1e-8, 500)
        counts.append(solution.n_iter)
    assert max(counts) - min(counts) <= 2


def test_a_start_at_the_optimum_takes_no_iteration():
    objective = problem()
    turn = preconditioner(objective)
    first = minimise(objective, turn, np.zeros(objective.shape), 1e-9, 500)
    again = minimise(objective, turn, first.W, 1e-8, 500)
    assert again.n_iter == 0
    assert_allclose(again.W, first.W)


def test_max_iter_ends_the_search_without_convergence():
    objective = problem()
    solution = minimise(objective, preconditioner(objective), np.zeros(objective.shape), 1e-12, 2)
    assert solution.n_iter == 2
    assert not solution.converged
    assert solution.value < objective(np.zeros(objective.shape))[0]


def test_float32_ends_near_the_optimum_of_float64():
    exact = problem()
    small = problem(dtype=np.float32)
    best = minimise(exact, preconditioner(exact), np.zeros(exact.shape), 1e-10, 500)
    solution = minimise(small, preconditioner(small), np.zeros(small.shape), 1e-7, 500)
    assert solution.converged
    assert solution.value == pytest.approx(best.value, rel=1e-5)


def test_the_hinge_comes_close_to_its_optimum():
    objective = problem(surrogate="hinge")
    start = minimise(problem(), preconditioner(objective), np.zeros(objective.shape), 1e-3, 50).W
    solution = minimise(objective, preconditioner(objective), start, 1e-8, 3000)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1, 1):
        for _ in range(20):
            moved = solution.W + size * rng.normal(size=solution.W.shape)
            assert objective(moved)[0] > solution.value - 1e-4


def test_sampled_rows_are_sorted_distinct_and_always_the_same():
    rows = sample_rows(1000, 100)
    assert len(rows) == len(set(rows)) == 100
    assert (np.diff(rows) > 0).all()
    assert_array_equal(rows, sample_rows(1000, 100))
    assert_array_equal(sample_rows(50, 100), np.arange(50))


@pytest.mark.parametrize("n", [10, 1024, 2500])
def test_second_moments_are_weighted_means_of_outer_products(n):
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(n, 3)), rng.uniform(size=n)
    extended = np.column_stack([X, np.ones(n)])
    expected = extended.T @ (extended * weight[:, None]) / weight.sum()
    assert_allclose(second_moments(X, weight), expected)
    assert_allclose(second_moments(sparse.csr_array(X), weight), np.diag(expected))


def test_very_wide_inputs_get_the_diagonal_only():
    X = np.random.default_rng(0).normal(size=(5, DENSE_LIMIT + 1))
    assert_allclose(second_moments(X, np.ones(5)), np.append(np.square(X).mean(axis=0), 1.0))

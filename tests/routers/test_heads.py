import warnings
from dataclasses import replace

import numpy as np
import pytest
import sklearn.exceptions
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from mild.errors import ConvergenceWarning
from mild.routers import cost_models
from mild.routers.base import unwarned
from mild.routers.cost_models import (
    LogisticLoss,
    PricedRouter,
    fit_heads,
    known_weights,
    logistic_heads,
    same_features,
)


def problem(n=80, d=4, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    soft = 1 / (1 + np.exp(-(X @ rng.normal(size=(d, p)) + 0.5)))
    return X, soft, (rng.uniform(size=(n, p)) < soft).astype(float)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_hard_targets_give_the_solution_of_scikit_learn(container):
    X, _, hard = problem()
    alpha = 0.05
    heads = logistic_heads(container(X), hard, np.ones(hard.shape), alpha, tol=1e-14)
    for k in range(3):
        # Its objective is sum loss + ||w||^2 / (2 C), ours mean loss + alpha ||w||^2.
        peer = LogisticRegression(C=1 / (2 * alpha * len(X)), tol=1e-10, max_iter=1000)
        peer.fit(X, hard[:, k])
        assert_allclose(heads.coef[k], peer.coef_[0], atol=1e-5)
        assert_allclose(heads.intercept[k], peer.intercept_[0], atol=1e-5)


def test_soft_targets_weights_and_missing_targets_meet_the_optimality_conditions():
    X, soft, _ = problem()
    weight = np.random.default_rng(1).uniform(0, 2, len(X))
    soft[::4, 1] = np.nan
    known = known_weights("targets", soft, weight)
    heads = logistic_heads(X, soft, known, 0.02, tol=1e-14)
    for k in range(3):
        rows = known[:, k] > 0
        share = known[rows, k] / known[rows, k].sum()
        residual = share * (sigmoid(X[rows] @ heads.coef[k] + heads.intercept[k]) - soft[rows, k])
        assert_allclose(residual @ X[rows] + 2 * 0.02 * heads.coef[k], 0, atol=1e-7)
        assert_allclose(residual.sum(), 0, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_a_head_with_one_label_ends_near_it(label, dtype):
    X, _, hard = problem()
    hard[:, 1] = label
    heads = logistic_heads(X.astype(dtype), hard, np.ones(hard.shape), 1e-3)
    assert heads.coef.dtype == dtype
    assert_allclose(sigmoid(X @ heads.coef[1] + heads.intercept[1]), label, atol=1e-2)
    assert_allclose(
        heads.coef[[0, 2]],
        logistic_heads(X, hard[:, [0, 2]], np.ones((80, 2)), 1e-3).coef,
        atol=1e-2,
    )


def test_the_gradient_is_the_slope_of_the_value_also_far_out():
    rng = np.random.default_rng(0)
    rewards, penalties = rng.uniform(size=(2, 3, 5))
    loss = LogisticLoss(rewards, penalties)
    scores = rng.normal(size=(3, 5)) * 3
    _, gradient = loss.evaluate(scores.copy(), slice(0, 5))
    for k in range(3):
        for i in range(5):
            ahead, behind = scores.copy(), scores.copy()
            ahead[k, i] += 1e-6
            behind[k, i] -= 1e-6
            rise = loss.evaluate(ahead, slice(0, 5))[0] - loss.evaluate(behind, slice(0, 5))[0]
            assert gradient[k, i] == pytest.approx(rise / 2e-6, abs=1e-6)
    value, gradient = loss.evaluate(np.full((3, 5), 1e4), slice(0, 5))
    assert value == pytest.approx(1e4 * penalties.sum())
    assert_allclose(gradient, penalties)


def test_stopping_early_is_reported():
    X, soft, _ = problem()
    with pytest.warns(ConvergenceWarning, match="after 1 iterations"):
        logistic_heads(X, soft, np.ones(soft.shape), 1e-6, max_iter=1, tol=1e-12)


def test_candidates_that_do_not_converge_are_not_warned_about(monkeypatch):
    """Nobody can act on the strengths that are tried for heads; a router of one's own warns."""
    solve = cost_models.minimise
    monkeypatch.setattr(
        cost_models, "minimise", lambda *given: replace(solve(*given), converged=False)
    )
    X, _, hard = problem()
    prices = np.ones(hard.shape)
    folds = [(np.arange(40, 80), np.arange(40)), (np.arange(40), np.arange(40, 80))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_heads(X, hard, prices, same_features(X, folds))
    assert not caught
    with pytest.warns(ConvergenceWarning):
        PricedRouter().fit(X, hard, prices=prices)


@pytest.mark.parametrize("category", [ConvergenceWarning, sklearn.exceptions.ConvergenceWarning])
def test_only_warnings_of_convergence_are_held_back(category):
    @unwarned
    def double(x, y=0):
        warnings.warn("stopped", category, stacklevel=1)
        warnings.warn("something else", RuntimeWarning, stacklevel=1)
        return 2 * x + y

    with pytest.warns(RuntimeWarning, match="something else") as caught:
        assert double(3, y=1) == 7
    assert len(caught) == 1

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

import oracles
from mild.core.margins import theory_margins
from mild.errors import ConvergenceWarning, InvalidInputError
from mild.routers.classifier import CostSensitiveClassifier


def problem(n=60, d=3, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=(d, p)) + 0.5 * rng.normal(size=(n, p))).argmax(axis=1)
    costs = rng.uniform(0.2, 2, size=(n, p))
    costs[np.arange(n), y] = 0
    return X, y, costs


def slow_objective(model, X, y, costs):
    """The equation, one sample at a time."""
    scores = X @ model.coef_.T + model.intercept_
    total = 0.0
    for f, label, row in zip(scores.tolist(), y.tolist(), costs.tolist(), strict=True):
        if model.reduction == "log_sum":
            total += oracles.log_sum(f, label, row, model.margins_)
        else:
            reduce = max if model.reduction == "max" else sum
            total += reduce(
                oracles.cost_sensitive_terms(f, label, row, model.margins_, model.surrogate)
            )
    return total / len(y) + model.alpha * np.square(model.coef_).sum()


FORMS = [
    ("logistic", "max"),
    ("logistic", "sum"),
    ("logistic", "log_sum"),
    ("hinge", "max"),
    ("hinge", "sum"),
    ("exponential", "max"),
    (0.5, "sum"),
]


@pytest.mark.parametrize(("surrogate", "form"), FORMS)
def test_the_value_reached_is_that_of_the_equation(surrogate, form):
    X, y, costs = problem()
    model = CostSensitiveClassifier(surrogate, reduction=form, alpha=0.05).fit(X, y, costs)
    assert model.objective_ == pytest.approx(slow_objective(model, X, y, costs))


@pytest.mark.parametrize(("surrogate", "form"), FORMS)
def test_no_direction_leads_down_from_the_solution(surrogate, form):
    X, y, costs = problem()
    model = CostSensitiveClassifier(surrogate, reduction=form, alpha=0.05, tol=1e-10, max_iter=3000)
    model.fit(X, y, costs)
    best = model.objective_
    coef, intercept = model.coef_.copy(), model.intercept_.copy()
    rng = np.random.default_rng(1)
    for size in (1e-2, 1e-1, 1.0):
        for _ in range(20):
            model.coef_ = coef + size * rng.normal(size=coef.shape)
            model.intercept_ = intercept + size * rng.normal(size=intercept.shape)
            assert slow_objective(model, X, y, costs) > best - 1e-4


def test_the_kinked_form_comes_close_to_a_smoothed_solution():
    X, y, costs = problem()
    model = CostSensitiveClassifier("hinge", alpha=0.05, max_iter=3000).fit(X, y, costs)
    rows = np.arange(len(y))

    def smoothed(w, width):
        W = w.reshape(3, 4)
        f = X @ W[:, :-1].T + W[:, -1]
        gaps = (f - f[rows, y][:, None]) / model.margins_[y][:, None]
        terms = costs * width * np.logaddexp(0, (1 + gaps) / width)
        top = terms.max(axis=1)
        value = top + width * np.log(np.exp((terms - top[:, None]) / width).sum(axis=1))
        return value.mean() + 0.05 * np.square(W[:, :-1]).sum()

    w = np.zeros(12)
    for width in (0.1, 0.01, 0.003):
        w = minimize(smoothed, w, args=(width,), method="L-BFGS-B").x
    model_w = np.column_stack([model.coef_, model.intercept_]).ravel()
    assert smoothed(model_w, 1e-6) <= smoothed(w, 1e-6) * 1.002


def test_two_classes_with_unit_costs_and_equal_margins_are_logistic_regression():
    X, y, _ = problem(p=2)
    alpha = 0.03
    model = CostSensitiveClassifier(margins="uniform", reduction="sum", alpha=alpha, tol=1e-13)
    model.fit(X, y)
    # Two weight vectors: alpha (|w_0|^2 + |w_1|^2) = alpha / 2 |w_1 - w_0|^2 at the optimum.
    peer = LogisticRegression(C=1 / (alpha * len(X)), tol=1e-10).fit(X, y)
    assert_allclose(model.coef_[1] - model.coef_[0], peer.coef_[0], atol=1e-4)
    assert_allclose(model.decision_function(X), peer.decision_function(X), atol=1e-3)


def test_labels_of_any_type_come_back():
    X, y, _ = problem()
    names = np.array(["zebra", "ant", "cat"])
    model = CostSensitiveClassifier().fit(X, names[y])
    assert model.classes_.tolist() == ["ant", "cat", "zebra"]
    assert set(model.predict(X)) <= set(names)
    assert model.score(X, names[y]) > 0.7


def test_a_cost_matrix_is_the_same_as_its_rows_per_sample():
    X, y, _ = problem()
    matrix = np.array([[0.0, 1.0, 5.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    by_matrix = CostSensitiveClassifier(reduction="sum").fit(X, y, matrix)
    by_rows = CostSensitiveClassifier(reduction="sum").fit(X, y, matrix[y])
    assert_array_equal(by_matrix.coef_, by_rows.coef_)


def test_no_costs_are_zero_one_costs():
    X, y, _ = problem()
    plain = CostSensitiveClassifier().fit(X, y)
    ones = CostSensitiveClassifier().fit(X, y, 1 - np.eye(3))
    assert_array_equal(plain.coef_, ones.coef_)


def test_costs_move_decisions_away_from_dear_mistakes():
    X, y, _ = problem(n=300)
    matrix = 1 - np.eye(3)
    matrix[0, 1] = matrix[2, 1] = 20.0
    plain = CostSensitiveClassifier().fit(X, y).predict(X)
    careful = CostSensitiveClassifier().fit(X, y, matrix).predict(X)
    assert ((careful == 1) & (y != 1)).sum() < ((plain == 1) & (y != 1)).sum()


def test_margins_follow_theory_counts_or_the_user():
    X, y, _ = problem()
    theory = CostSensitiveClassifier().fit(X, y).margins_
    assert_allclose(theory, theory_margins(np.bincount(y)))
    assert_allclose(CostSensitiveClassifier(margins="uniform").fit(X, y).margins_, 1)
    assert_allclose(CostSensitiveClassifier(margins=[1, 2, 3]).fit(X, y).margins_, [1, 2, 3])


def test_ties_go_to_the_last_class():
    X, y, _ = problem()
    model = CostSensitiveClassifier().fit(X, y)
    model.coef_[:] = 0
    model.intercept_[:] = 0
    assert_array_equal(model.predict(X), 2)


@pytest.mark.parametrize("form", ["sum", "log_sum"])
def test_sparse_and_float32_inputs(form):
    X, y, costs = problem()
    X[np.abs(X) < 0.4] = 0
    dense = CostSensitiveClassifier(reduction=form, tol=1e-12, max_iter=2000).fit(X, y, costs)
    thin = CostSensitiveClassifier(reduction=form, tol=1e-12, max_iter=2000)
    thin.fit(sparse.csr_array(X), y, costs)
    assert_allclose(
        thin.decision_function(sparse.csr_array(X)), dense.decision_function(X), atol=1e-3
    )
    small = CostSensitiveClassifier(reduction=form).fit(X.astype(np.float32), y, costs)
    assert small.coef_.dtype == np.float32
    assert small.decision_function(X.astype(np.float32)).dtype == np.float32


def test_costs_per_sample_pass_through_a_grid_search():
    X, y, costs = problem(n=90)
    search = GridSearchCV(CostSensitiveClassifier(), {"alpha": [1e-3, 1e-1]}, cv=3)
    search.fit(X, y, costs=costs)
    assert search.best_params_["alpha"] in (1e-3, 1e-1)
    assert cross_val_score(CostSensitiveClassifier(), X, y, cv=3).min() > 0.5


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (np.ones((60, 2)), r"costs must have shape \(n_samples, n_classes\) = \(60, 3\)"),
        (np.ones((3, 3)), "0 on the diagonal"),
        (np.ones((60, 3)), "0 where k' is the label"),
        (np.full((60, 3), np.nan), "finite and non-negative"),
    ],
)
def test_refuses_bad_costs(costs, message):
    X, y, _ = problem()
    with pytest.raises(InvalidInputError, match=message):
        CostSensitiveClassifier().fit(X, y, costs)


def test_stopping_early_is_reported():
    X, y, _ = problem()
    with pytest.warns(ConvergenceWarning, match="stopped after 2 iterations"):
        CostSensitiveClassifier(reduction="sum", max_iter=2, tol=1e-12).fit(X, y)

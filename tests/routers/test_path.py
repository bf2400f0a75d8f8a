import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from mild.core.surrogates import parse_surrogate
from mild.errors import ConvergenceWarning
from mild.routers import solver as solver_module
from mild.routers.linear import LinearRouter
from mild.routers.objective import LDAM_SCALE, LinearObjective, RowLoss, row_loss, training_targets
from mild.routers.solver import (
    MANY,
    ROUGH_TOL,
    SAMPLE,
    LinearPath,
    Preconditioner,
    SolverOptions,
    curvature_between,
    make_warm_start,
    minimise,
    second_moments,
)

P = MANY + 4
MARGINS = np.geomspace(0.1, 2, P)


def problem(n=1500, d=5, p=P, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    costs = np.abs(
        X @ rng.normal(size=(d, p)) + 0.5 * rng.normal(size=(n, p)) + np.linspace(0, 2, p)
    )
    return X, costs


def objective_of(X, costs, surrogate="logistic", alpha=1e-3):
    p = costs.shape[1]
    loss = RowLoss(
        (costs.max() - costs).T / costs.size,
        None,
        np.geomspace(0.2, 2, p),
        parse_surrogate(surrogate),
    )
    return LinearObjective(X, loss, alpha)


def evaluations(monkeypatch, many, X, costs, **options):
    """Rows evaluated in a fit, and its router, with the solver told apart experts above ``many``."""
    rows = []
    call = LinearObjective.__call__

    def record(self, W):
        rows.append(self.X.shape[0])
        return call(self, W)

    with monkeypatch.context() as patch:
        patch.setattr(solver_module, "MANY", many)
        patch.setattr(LinearObjective, "__call__", record)
        router = LinearRouter(rewards="contrast", margins=MARGINS, **options).fit(X, costs)
    return sum(rows), router


@pytest.mark.parametrize(
    ("n", "container"),
    [(1500, np.asarray), (1500, sparse.csr_matrix), (2 * SAMPLE + 100, np.asarray)],
)
def test_telling_many_experts_apart_saves_work_and_ends_at_the_same_optimum(
    n, container, monkeypatch
):
    X, costs = problem(n)
    X = container(X)
    plain, _ = evaluations(monkeypatch, 100, X, costs, tol=1e-7)
    apart, router = evaluations(monkeypatch, MANY, X, costs, tol=1e-7)
    assert apart < 0.8 * plain
    best = evaluations(monkeypatch, 100, X, costs, tol=1e-10, max_iter=2000)[1].objective_
    assert best - 1e-9 <= router.objective_ <= best * (1 + 1e-6)


@pytest.mark.parametrize("surrogate", ["logistic", 0.5, "exponential", "pairwise_logistic"])
@pytest.mark.parametrize("missing", [False, True])
def test_every_surrogate_ends_at_the_same_optimum(surrogate, missing, monkeypatch):
    X, costs = problem(300, 3)
    if missing:
        costs[np.random.default_rng(1).random(costs.shape) < 0.4] = np.nan
        costs[:, 0] = 1.0
    options = {"surrogate": surrogate, "tol": 1e-9, "max_iter": 3000, "alpha": 1e-2}
    _, plain = evaluations(monkeypatch, 100, X, costs, **options)
    _, apart = evaluations(monkeypatch, MANY, X, costs, **options)
    assert apart.objective_ == pytest.approx(plain.objective_, rel=1e-6)


@pytest.mark.parametrize("max_iter", [1, 3, 6])
def test_iterations_of_the_rough_solution_count(max_iter):
    X, costs = problem()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        router = LinearRouter(margins=MARGINS, tol=1e-13, max_iter=max_iter).fit(X, costs)
    assert router.n_iter_ == max_iter
    assert [one.category for one in told] == [ConvergenceWarning]


def test_a_start_at_the_optimum_takes_no_iteration():
    X, costs = problem()
    router = LinearRouter(warm_start=True).fit(X, costs)
    assert router.n_iter_ > 0
    assert router.fit(X, costs).n_iter_ == 0


@pytest.mark.parametrize(("p", "surrogate"), [(MANY, "logistic"), (P, "hinge")])
def test_few_experts_and_the_hinge_keep_the_plain_preconditioner(p, surrogate):
    X, costs = problem(200, p=p)
    objective = objective_of(X, costs, surrogate)
    moments = second_moments(X, np.ones(200))
    plain = Preconditioner(moments, 0.3, 1e-3)
    begin = make_warm_start(objective, plain, moments, None, 50, True)
    assert (begin.preconditioner, begin.n_iter) == (plain, 0)


def test_many_experts_are_told_apart_at_a_rough_solution():
    X, costs = problem(400)
    objective = objective_of(X, costs)
    moments = second_moments(X, np.ones(400))
    plain = Preconditioner(moments, 0.3, 1e-3)
    begin = make_warm_start(objective, plain, moments, None, 50, True)
    assert begin.preconditioner.between is not None
    assert 0 < begin.n_iter < 50
    assert objective(begin.W)[0] < objective(np.zeros(objective.shape))[0]
    start = np.random.default_rng(2).normal(size=objective.shape)
    begin = make_warm_start(objective, plain, moments, start, 50, True)
    assert_array_equal(begin.W, start)
    assert begin.n_iter == 0


def test_iterations_count_where_they_saw_all_rows():
    X, costs = problem(400)
    objective = objective_of(X, costs)
    moments = second_moments(X, np.ones(400))
    plain = Preconditioner(moments, 0.3, 1e-3)
    rough = minimise(objective, plain, np.zeros(objective.shape), ROUGH_TOL, 50)
    for whole in (True, False):
        begin = make_warm_start(objective, plain, moments, None, 50, whole)
        assert_array_equal(begin.W, rough.W)
        assert begin.n_iter == (rough.n_iter if whole else 0)
        two_more = minimise(objective, begin.preconditioner, begin.W, 1e-13, 2)
        assert begin.with_iterations(two_more).n_iter == begin.n_iter + 2


@pytest.mark.parametrize(("surrogate", "tied"), [("logistic", True), ("hinge", False)])
def test_few_experts_begin_at_zero_or_beside_the_ties_of_the_hinge(surrogate, tied):
    X, costs = problem(200, p=MANY)
    moments = second_moments(X, np.ones(200))
    plain = Preconditioner(moments, 0.3, 1e-3)
    begin = make_warm_start(objective_of(X, costs, surrogate), plain, moments, None, 50, True)
    assert (begin.preconditioner, begin.n_iter) == (plain, 0)
    assert (not begin.W.any()) is tied


@pytest.mark.parametrize("rewards", [0.0, 1e300])
def test_a_curvature_that_tells_nothing_is_not_used(rewards):
    X, costs = problem(200)
    objective = objective_of(X, costs, "exponential")
    objective = replace(objective, loss=replace(objective.loss, rewards=np.full((P, 200), rewards)))
    moments = second_moments(X, np.ones(200))
    plain = Preconditioner(moments, 0.3, 1e-3)
    start = np.full(objective.shape, 1e3) * np.arange(P)[:, None]
    begin = make_warm_start(objective, plain, moments, start, 50, True)
    assert begin.preconditioner is plain


def test_a_few_rows_tell_the_curvature_of_all():
    X, costs = problem(2000)
    objective = objective_of(X, costs)
    W = 0.3 * np.random.default_rng(3).normal(size=objective.shape)
    exact = objective.loss.curvature(W[:, :-1] @ X.T + W[:, -1:])
    guess = curvature_between(X, objective.loss, W)
    assert np.abs(guess - exact).max() < 0.3 * np.abs(exact).max()
    few = slice(0, 50)
    small = replace(objective.loss, rewards=np.ascontiguousarray(objective.loss.rewards[:, few]))
    expected = small.curvature(W[:, :-1] @ X[few].T + W[:, -1:])
    assert_allclose(curvature_between(X[few], small, W), expected)
    assert_allclose(curvature_between(sparse.csr_matrix(X[few]), small, W), expected)


@pytest.mark.parametrize("n", [1000, 2 * SAMPLE + 100])
def test_steps_of_a_search_end_near_the_fits_they_stand_for(n):
    X, costs = problem(n)
    walked = None
    for factor in (1.0, 2.0, 0.5):
        router = LinearRouter(margins=np.geomspace(0.3, 1.5, P) ** factor, alpha=1e-3)
        targets = training_targets(router, X, costs, None)
        walked = walked or LinearPath(X, targets.sample_weight)
        found = walked.search_step(targets, SolverOptions(1e-3), 1e-3)
        exact = LinearPath(X, targets.sample_weight).solve(targets, SolverOptions(1e-3, tol=1e-9))
        every = LinearObjective(X, row_loss(targets, X.dtype), 1e-3)
        zero = every(np.zeros(every.shape))[0]
        gained = (zero - every(found.W)[0]) / (zero - exact.value)
        assert gained > 0.995


def graded(n, d, p, signal):
    """Errors of p experts of which the later are rarely the cheapest, and features of falling variance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * np.geomspace(1, 0.05, d)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[:, 0] += 0.5
    X = X.astype(np.float32)
    level = np.linspace(1, -0.5, p) + signal * X @ rng.normal(size=(d, p)) + rng.normal(size=(n, 1))
    return X, (rng.random((n, p)) > 1 / (1 + np.exp(-level))).astype(np.float64)


def test_with_many_experts_a_fit_makes_the_choices_of_its_optimum():
    X, costs = graded(2000, 80, 14, 0.5)
    costs[np.random.default_rng(1).random(len(costs)) < 0.14, 3] = np.nan
    path = LinearPath(X, np.ones(len(X)))
    for alpha in (1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        best = LinearRouter(alpha=alpha, tol=1e-12).fit(X, costs).predict(X)
        single = LinearRouter(alpha=alpha).fit(X, costs).predict(X)
        assert (single == best).mean() > 0.99
        step = LinearRouter(alpha=alpha)._fit_from(X, costs, None, path=path, search_tol=5e-3)
        assert (step.predict(X) == best).mean() > 0.94


@pytest.mark.parametrize(("loss", "scale"), [("ce", 1), ("cwce", 1), ("ldam", LDAM_SCALE**2)])
def test_label_based_losses_need_few_times_the_evaluations_of_mild(loss, scale, monkeypatch):
    X, costs = graded(1000, 137, 9, 4.0)
    counts = np.bincount(costs.argmin(axis=1), minlength=9)
    assert (counts < 10).any()  # rare experts
    calls = []
    evaluate = LinearObjective.__call__
    monkeypatch.setattr(LinearObjective, "__call__", lambda *a: calls.append(1) or evaluate(*a))

    def evaluations(name, factor):
        calls.clear()
        path = LinearPath(X, np.ones(len(X)))
        for alpha in (1.0, 1e-1, 1e-2, 1e-3, 1e-4):
            router = LinearRouter(name, alpha=factor * alpha)
            router._fit_from(X, costs, None, path=path, search_tol=5e-3)
        return len(calls)

    assert evaluations(loss, scale) < 4.5 * evaluations("mild", 1)

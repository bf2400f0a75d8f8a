"""What every router must do, checked with three experts; the list of routers is in router_cases.py."""

from __future__ import annotations

import functools
import pickle
import warnings

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mild.core.decisions import argmax_last
from mild.errors import ConvergenceWarning, DegenerateDataWarning, InvalidInputError
from mild.metrics import deferral_loss
from mild.routers.cost_models import KNNRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.neural import NeuralRouter
from mild.routers.search import RouterCV
from mild.routers.stack import BlendRouter
from router_cases import ALL, CASES

N_EXPERTS = 3


def all_cases(cases=ALL):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def problem(n=90, d=4, p=N_EXPERTS, seed=0):
    """Inputs and costs in which each expert has a region of its own; no two costs are equal."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    gains = rng.normal(size=(d, p))
    costs = np.abs(2 + X @ gains * 0.8 + 0.3 * rng.normal(size=(n, p)))
    return X, costs


def fitted(case, X, costs, sample_weight=None):
    """Fit; hinges end at kinks, which the solver may report as not converged."""
    with warnings.catch_warnings():
        if case.kinked:
            warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(case.router).fit(X, costs, sample_weight)


@functools.cache
def fitted_to_problem(case):
    """The router fitted to ``problem()``, once for all tests that only read it."""
    return fitted(case, *problem())


# --- with scikit-learn's tools ---------------------------------------------------------------------


@all_cases()
def test_works_in_a_pipeline(case):
    X, costs = problem()
    pipeline = make_pipeline(StandardScaler(), clone(case.router))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline.fit(X, costs)
    scaled = StandardScaler().fit_transform(X)
    assert_array_equal(pipeline.predict(X), fitted(case, scaled, costs).predict(scaled))
    assert np.isfinite(pipeline.score(X, costs))


@all_cases(CASES)
def test_works_in_a_grid_search(case):
    X, costs = problem()
    name, values = case.grid
    search = GridSearchCV(case.router, {name: values}, cv=3).fit(X, costs)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.predict(X).shape == (len(X),)


@all_cases(CASES)
def test_cross_val_score_is_minus_the_deferral_loss_of_each_fold(case):
    X, costs = problem()
    scores = cross_val_score(case.router, X, costs, cv=[(np.arange(60), np.arange(60, 90))])
    router = fitted(case, X[:60], costs[:60])
    expected = -deferral_loss(costs[60:], router.predict(X[60:]))
    assert_allclose(scores, [expected])


@pytest.mark.parametrize("scaled", [False, True])
def test_cross_val_predict_gives_held_out_distributions_of_costs_as_a_parameter(scaled):
    X, costs = problem()
    router = RidgeRouter()
    model = make_pipeline(StandardScaler(), router) if scaled else router
    folds = [(np.arange(45), np.arange(45, 90)), (np.arange(45, 90), np.arange(45))]
    found = cross_val_predict(model, X, params={"y": costs}, method="predict_proba", cv=folds)
    expected = clone(model).fit(X[:45], costs[:45]).predict_proba(X[45:])
    assert_allclose(found[45:], expected)
    # As y, scikit-learn takes costs for labels and would fit on their ranks.
    assert not hasattr(router.fit(X, costs), "classes_")
    with pytest.raises(AttributeError, match="params="):
        cross_val_predict(model, X, costs, method="predict_proba", cv=folds)


@all_cases()
def test_a_clone_is_unfitted_and_has_the_same_parameters(case):
    router = fitted_to_problem(case)
    copy = clone(router)
    assert repr(copy.get_params()) == repr(router.get_params())
    with pytest.raises(NotFittedError):
        copy.predict(problem()[0])


@all_cases()
def test_a_pickle_decides_the_same(case):
    X, _ = problem()
    router = fitted_to_problem(case)
    copy = pickle.loads(pickle.dumps(router))
    assert_array_equal(copy.predict(X), router.predict(X))
    assert_array_equal(copy.decision_function(X), router.decision_function(X))
    assert copy.expert_names_ == router.expert_names_


# --- input kinds -----------------------------------------------------------------------------------


@all_cases(CASES)
def test_sparse_input_gives_what_dense_input_gives(case):
    X, costs = problem()
    X[np.abs(X) < 0.5] = 0
    sparse_X = sparse.csr_array(X)
    dense = fitted(case, X, costs)
    thin = fitted(case, sparse_X, costs)
    assert_allclose(thin.decision_function(sparse_X), dense.decision_function(X), atol=2e-4)
    assert_allclose(thin.predict_proba(X), dense.predict_proba(sparse_X), atol=2e-4)
    assert (thin.predict(sparse_X) == dense.predict(X)).mean() > 0.97


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.coo_matrix])
def test_every_sparse_container_will_do(container):
    X, costs = problem()
    router = LinearRouter().fit(sparse.csr_array(X), costs)
    other = LinearRouter().fit(container(X), costs)
    assert_array_equal(other.coef_, router.coef_)
    assert_array_equal(other.predict(container(X)), router.predict(X))


@all_cases()
def test_float32_input_gives_float32_scores_close_to_float64(case):
    X, costs = problem()
    small = X.astype(np.float32)
    router = fitted(case, small, costs)
    exact = fitted(case, small.astype(np.float64), costs)
    scores = router.decision_function(small)
    assert scores.dtype == np.float32
    assert exact.decision_function(X).dtype == np.float64
    if not case.kinked:
        assert_allclose(scores, exact.decision_function(small.astype(np.float64)), atol=5e-2)


@all_cases()
def test_fit_changes_neither_inputs_nor_costs_and_keeps_no_hold_on_them(case):
    X, costs = problem()
    X_before, costs_before = X.copy(), costs.copy()
    router = fitted(case, X, costs)
    assert_array_equal(X, X_before)
    assert_array_equal(costs, costs_before)
    chosen = router.predict(X_before)
    X[:] = 1e3
    costs[:] = 7
    assert_array_equal(router.predict(X_before), chosen)


@all_cases(CASES)
def test_expert_names_come_from_the_columns_of_the_costs(case):
    pandas = pytest.importorskip("pandas")
    X, costs = problem()
    frame = pandas.DataFrame(costs, columns=["small", "medium", "large"])
    router = fitted(case, X, frame)
    assert router.expert_names_ == ["small", "medium", "large"]
    table = pa.table(dict(zip(["small", "medium", "large"], costs.T, strict=True)))
    assert fitted(case, X, table).expert_names_ == ["small", "medium", "large"]
    assert fitted_to_problem(case).expert_names_ == ["expert_0", "expert_1", "expert_2"]
    assert_array_equal(router.predict(X), fitted_to_problem(case).predict(X))
    assert router.without("medium").expert_names_ == ["small", "large"]


@all_cases(CASES)
def test_two_experts_of_the_same_name_are_refused(case):
    pandas = pytest.importorskip("pandas")
    X, costs = problem()
    frame = pandas.DataFrame(costs, columns=["small", "large", "small"])
    # As texts, numbers and their texts are equal.
    mixed = pandas.DataFrame(costs, columns=[1, "large", "1"])
    table = pa.table(list(costs.T), names=["small", "large", "small"])
    for named in (frame, mixed, table):
        with pytest.raises(InvalidInputError) as caught:
            fitted(case, X, named)
        assert caught.value.parameter == "costs"
        assert "appears twice" in str(caught.value)


# --- weights and rows ------------------------------------------------------------------------------


@all_cases([case for case in ALL if case.weights_are_copies])
def test_sample_weights_are_copies_of_rows(case):
    X, costs = problem()
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    weighted = fitted(case, X, costs, weight)
    copied = fitted(case, X.repeat(weight, axis=0), costs.repeat(weight, axis=0))
    if case.kinked:
        # Rounding decides at which of the kinks near the optimum the solver stops.
        assert weighted.objective_ == pytest.approx(copied.objective_, rel=1e-3)
    else:
        assert_allclose(weighted.decision_function(X), copied.decision_function(X), atol=2e-4)
    assert (weighted.predict(X) == copied.predict(X)).mean() > (0.9 if case.kinked else 0.98)


@all_cases([case for case in ALL if not case.constant])
def test_sample_weights_matter(case):
    X, costs = problem()
    weight = np.where(np.arange(len(X)) < 45, 1.0, 5.0)
    weighted = fitted(case, X, costs, weight).decision_function(X)
    assert np.abs(weighted - fitted_to_problem(case).decision_function(X)).max() > 1e-3


@all_cases()
def test_permuting_experts_permutes_decisions(case):
    X, costs = problem()
    order = np.array([2, 0, 1])
    router = fitted_to_problem(case)
    permuted = fitted(case, X, costs[:, order])
    close = 5e-2 if case.kinked else 2e-4
    assert_allclose(
        permuted.predict_proba(X),
        router.predict_proba(X)[:, order],
        atol=1 if case.kinked else close,
    )
    same = order[permuted.predict(X)] == router.predict(X)
    assert same.mean() > (0.9 if case.kinked else 0.98)


@all_cases()
def test_a_row_is_decided_alone_as_in_a_batch(case):
    X, _ = problem()
    router = fitted_to_problem(case)
    batch = router.predict(X)
    assert_array_equal([router.predict(x[None])[0] for x in X], batch)
    assert_array_equal([router.policy_.decide_one(x) for x in X], batch)
    alone = np.concatenate([router.decision_function(x[None]) for x in X])
    assert_allclose(alone, router.decision_function(X), rtol=1e-9, atol=1e-9)


# --- what a decision is ----------------------------------------------------------------------------


@all_cases()
def test_distributions_sum_to_one(case):
    X, costs = problem()
    distribution = fitted_to_problem(case).predict_proba(X)
    assert distribution.shape == costs.shape
    assert (distribution >= 0).all()
    assert_allclose(distribution.sum(axis=1), 1)


@all_cases()
def test_the_choice_is_the_largest_score_or_the_largest_share(case):
    X, _ = problem()
    router = fitted_to_problem(case)
    if case.decides_by_proba:
        assert_array_equal(router.predict(X), argmax_last(router.predict_proba(X)))
    else:
        assert_array_equal(router.predict(X), argmax_last(router.decision_function(X)))


@all_cases([case for case in ALL if not case.constant])
def test_learns_to_route_better_than_the_best_constant(case):
    X, costs = problem(n=400)
    router = fitted(case, X[:300], costs[:300])
    assert router.score(X[300:], costs[300:]) > -costs[300:].mean(axis=0).min() + 0.1


@all_cases()
def test_score_is_minus_the_weighted_mean_cost(case):
    X, costs = problem()
    router = fitted_to_problem(case)
    weight = np.arange(len(X)) + 1.0
    expected = -np.average(costs[np.arange(len(X)), router.predict(X)], weights=weight)
    assert_allclose(router.score(X, costs, weight), expected)


@all_cases()
def test_score_skips_rows_whose_chosen_expert_was_not_asked(case):
    X, costs = problem()
    router = fitted_to_problem(case)
    chosen = router.predict(X)
    thin = costs.copy()
    thin[np.arange(0, 90, 2), chosen[::2]] = np.nan
    expected = -costs[np.arange(1, 90, 2), chosen[1::2]].mean()
    assert_allclose(router.score(X, thin), expected)


# --- experts come and go ---------------------------------------------------------------------------


@all_cases()
def test_without_drops_an_expert_by_index_or_name(case):
    X, costs = problem()
    router = fitted_to_problem(case)
    by_index, by_name = router.without(1), router.without("expert_1")
    assert by_index.expert_names_ == by_name.expert_names_ == ["expert_0", "expert_2"]
    assert by_index.n_experts_ == 2
    assert_array_equal(by_index.predict(X), by_name.predict(X))
    assert set(by_index.predict(X)) <= {0, 1}
    assert by_index.predict_proba(X).shape == (len(X), 2)
    assert np.isfinite(by_index.score(X, costs[:, [0, 2]]))
    # The router itself is as it was.
    assert router.n_experts_ == 3
    assert router.predict_proba(X).shape == (len(X), 3)


@all_cases(CASES)
def test_without_leaves_the_choice_among_the_others_alone(case):
    X, _ = problem()
    router = fitted_to_problem(case)
    chosen, left = router.predict(X), router.without(1).predict(X)
    kept = chosen != 1
    if not isinstance(router, (LinearRouter, BlendRouter, NeuralRouter, RouterCV)):
        assert_array_equal(np.array([0, 2])[left[kept]], chosen[kept])
    else:
        # A stationary distribution may shift a little when a state goes.
        assert (np.array([0, 2])[left[kept]] == chosen[kept]).mean() > 0.9


def test_without_refuses_unknown_experts_and_the_last_one():
    X, costs = problem()
    router = LinearRouter().fit(X, costs)
    with pytest.raises(InvalidInputError, match="expert must be"):
        router.without("nobody")
    with pytest.raises(InvalidInputError, match=r"expert must be an index in \[0, 3\); got 3"):
        router.without(3)
    with pytest.raises(InvalidInputError, match="must keep at least one expert"):
        router.without(0).without(0).without(0)


@all_cases()
def test_one_expert_gets_everything(case):
    X, costs = problem()
    router = fitted(case, X, costs[:, :1])
    assert_array_equal(router.predict(X), 0)
    assert_allclose(router.predict_proba(X), 1)
    assert_allclose(router.score(X, costs[:, :1]), -costs[:, 0].mean())


# --- difficult data --------------------------------------------------------------------------------


@all_cases()
def test_rows_with_missing_costs_are_trained_on(case):
    X, costs = problem()
    thin = costs.copy()
    thin[np.random.default_rng(2).uniform(size=costs.shape) < 0.3] = np.nan
    thin[np.isnan(thin).all(axis=1), 0] = 1.0
    router = fitted(case, X, thin)
    assert np.isfinite(router.decision_function(X)).all()
    assert set(router.predict(X)) <= {0, 1, 2}
    complete = ~np.isnan(thin).any(axis=1)
    if not case.constant:
        dropped = fitted(case, X[complete], thin[complete])
        difference = router.decision_function(X) - dropped.decision_function(X)
        assert np.abs(difference).max() > 1e-4


@pytest.mark.parametrize("cost", [0.5, 0.0])
@all_cases()
def test_constant_costs_give_at_most_a_warning_and_any_choice_is_right(case, cost):
    X, _ = problem()
    costs = np.full((len(X), 3), cost)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        router = fitted(case, X, costs)
    assert router.score(X, costs) == pytest.approx(-cost)
    assert np.isfinite(router.decision_function(X)).all()
    assert np.isfinite(router.predict_proba(X)).all()


@all_cases()
def test_an_expert_that_is_never_cheapest_is_not_chosen(case):
    X, costs = problem()
    costs[:, 1] = costs.max(axis=1) + 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        router = fitted(case, X, costs)
    assert not (router.predict(X) == 1).any()


@all_cases([case for case in ALL if not isinstance(case.router, BlendRouter)])
def test_two_rows_are_enough(case):
    X, costs = problem(n=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        router = fitted(case, X, costs)
    assert router.predict(X).shape == (2,)


@all_cases(CASES)
def test_constant_features_leave_the_best_constant_for_all(case):
    _, costs = problem()
    X = np.zeros((len(costs), 2))
    chosen = fitted(case, X, costs).predict(X)
    if not isinstance(case.router, KNNRouter):
        assert len(set(chosen)) == 1


# --- bad input -------------------------------------------------------------------------------------


def changed(X, value):
    bad = X.astype(object if isinstance(value, str) else float)
    bad[3, 1] = value
    return bad


@pytest.mark.parametrize("value", [np.nan, np.inf, "word"])
@all_cases(CASES)
def test_refuses_inputs_that_are_no_finite_numbers(case, value):
    X, costs = problem()
    for use in (lambda bad: clone(case.router).fit(bad, costs), fitted_to_problem(case).predict):
        with pytest.raises(InvalidInputError) as caught:
            use(changed(X, value))
        assert caught.value.code == "invalid_X"


@all_cases(CASES)
def test_refuses_one_sample_and_another_number_of_features(case):
    X, costs = problem()
    with pytest.raises(ValueError, match=r"1 sample.*minimum of 2"):
        clone(case.router).fit(X[:1], costs[:1])
    with pytest.raises(ValueError, match="4 features"):
        fitted_to_problem(case).predict(X[:, :3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: np.where(c == c[4, 2], -1.0, c), r"non-negative; got costs\[4, 2\] = -1"),
        (lambda c: np.where(np.arange(90)[:, None] == 5, np.nan, c), r"costs\[5\] is all NaN"),
        (lambda c: np.where(np.arange(3) == 1, np.nan, c), r"costs\[:, 1\] is all NaN"),
        (lambda c: c[:-1], r"\(n_samples, n_experts\) = \(90, 3\); got \(89, 3\)"),
        (lambda c: c[:, 0], "got one dimension"),
        (lambda c: c.astype(str) + "x", "costs must hold numbers"),
        (lambda c: None, "requires y to be passed"),
    ],
    ids=["negative", "row", "column", "rows", "flat", "text", "none"],
)
@all_cases(CASES)
def test_refuses_bad_costs(case, change, message):
    X, costs = problem()
    with pytest.raises(InvalidInputError, match=message):
        clone(case.router).fit(X, change(costs))


@all_cases(CASES)
def test_refuses_weights_that_are_all_zero_negative_or_of_the_wrong_length(case):
    X, costs = problem()
    for weight in (np.zeros(len(X)), -np.ones(len(X)), np.ones(len(X) - 1)):
        with pytest.raises(ValueError, match=r"[Ss]ample.weight|[Nn]egative"):
            clone(case.router).fit(X, costs, weight)


@pytest.mark.parametrize("expert", [True, 1.0, None, [0, 1]])
def test_an_expert_to_drop_is_an_index_or_a_name(expert):
    X, costs = problem()
    with pytest.raises(InvalidInputError, match="expert must be an index or a name"):
        LinearRouter().fit(X, costs).without(expert)

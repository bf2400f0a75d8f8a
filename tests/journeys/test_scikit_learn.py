"""Routers in scikit-learn: a cost matrix is ``y``, and checks, pipelines and searches work as ever.

Whatever scikit-learn reports of a router is compared with what its choices cost.
"""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from journeys import adapter
from journeys.world import EXPERTS, costs_of, log, share_of_best
from mild import (
    BlendRouter,
    ConstantRouter,
    KNNRouter,
    LinearRouter,
    NeuralRouter,
    RidgeRouter,
    RouterCV,
)
from mild.errors import InvalidInputError
from mild.routers import CostSensitiveClassifier

pytest.importorskip("torch", reason="torch is not installed")

# So little that all checks take seconds.
ROUTERS = {
    "linear": LinearRouter(),
    "ridge": RidgeRouter(),
    "nearest neighbours": KNNRouter(n_neighbors=7),
    "constant": ConstantRouter(),
    "blend": BlendRouter([("linear", LinearRouter()), ("near", KNNRouter(7))], cv=3),
    "neural": NeuralRouter(epochs=30, batch_size=32, lr=0.05, device="cpu", random_state=0),
    "search": RouterCV(alphas=(0.001, 0.01), margin_factors=(1.0,), cv=3),
}
# A setting of each, and another value.
SETTINGS = {
    "linear": ("alpha", 0.5),
    "ridge": ("alpha", 0.5),
    "nearest neighbours": ("n_neighbors", 3),
    "constant": ("expert", 1),
    "blend": ("near__n_neighbors", 3),
    "neural": ("lr", 0.01),
    "search": ("cv", 2),
}
TAKE_SPARSE = ["linear", "ridge", "blend"]


def mean_cost(costs, chosen):
    """Mean of what the chosen experts cost, over the rows in which that is known."""
    return np.nanmean(costs[np.arange(len(costs)), chosen])


@pytest.fixture(scope="module")
def numbers():
    """Vectors and costs to fit on, and others: each expert is best in a third of the directions."""

    def rows(count, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(count, 3))
        return X, np.where(X.argmax(axis=1)[:, None] == np.arange(3), 0.1, 1) * rng.random(
            (count, 3)
        )

    return *rows(400, 0), *rows(300, 1)


@pytest.fixture(scope="module")
def texts():
    """Questions and costs to fit on, and others with all their columns."""

    def rows(count, seed):
        columns = log(seed, count)
        return columns["query"], costs_of(columns), columns

    return *rows(400, 81)[:2], *rows(300, 82)


@pytest.mark.parametrize("kind", [*ROUTERS, "classifier"])
def test_every_router_passes_the_checks_of_scikit_learn(kind):
    failing = adapter.FAILED_CHECKS
    if kind == "classifier":
        failing = {}
    estimator = ROUTERS.get(kind, CostSensitiveClassifier())
    found = check_estimator(estimator, expected_failed_checks=failing, on_skip=None)
    names_of = {}
    for check in found:
        names_of.setdefault(check["status"], set()).add(check["check_name"])
    assert names_of.get("xfail", set()) == set(failing)
    # It needs a variable of scipy's.
    assert names_of.get("skipped", set()) <= {"check_array_api_input"}
    assert len(names_of["passed"]) > 30


@pytest.mark.parametrize("kind", ROUTERS)
def test_a_router_learns_from_a_cost_matrix_whom_to_ask(kind, numbers):
    X, costs, new_X, new_costs = numbers
    router = clone(ROUTERS[kind]).fit(X, costs)
    chosen = router.predict(new_X)
    assert chosen.shape == (len(new_X),)
    assert router.score(new_X, new_costs) == pytest.approx(-mean_cost(new_costs, chosen))
    assert router.decision_function(new_X).shape == new_costs.shape
    probabilities = router.predict_proba(new_X)
    assert probabilities.min() >= 0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    best = new_costs[:, costs.mean(axis=0).argmin()].mean()
    if kind == "constant":
        assert mean_cost(new_costs, chosen) == best
    else:
        # Half of what is between the best expert and the best choice in every row.
        assert mean_cost(new_costs, chosen) < (best + new_costs.min(axis=1).mean()) / 2

    # A frame says as much as an array, in fit and in predict.
    columns = ["a", "b", "c"]
    framed = clone(router).fit(pd.DataFrame(X, columns=columns), pd.DataFrame(costs))
    np.testing.assert_array_equal(framed.predict(pd.DataFrame(new_X, columns=columns)), chosen)
    # Experts that were not asked are NaN; scores are about the rows in which costs are known.
    holes = costs.copy()
    holes[np.arange(200), np.random.default_rng(2).integers(3, size=200)] = np.nan
    partial = clone(router).fit(X, holes)
    assert partial.score(X, holes) == pytest.approx(-mean_cost(holes, partial.predict(X)))


@pytest.mark.parametrize("kind", TAKE_SPARSE)
def test_sparse_and_dense_rows_are_the_same(kind, numbers):
    X, costs, new_X, _ = numbers
    X, new_X = np.maximum(X, 0), np.maximum(new_X, 0)
    dense = clone(ROUTERS[kind]).fit(X, costs)
    sparse = clone(ROUTERS[kind]).fit(csr_matrix(X), costs)
    found = sparse.decision_function(csr_matrix(new_X))
    np.testing.assert_allclose(found, dense.decision_function(new_X), atol=1e-2)
    assert np.mean(sparse.predict(csr_matrix(new_X)) == dense.predict(new_X)) > 0.98


@pytest.mark.parametrize("kind", ROUTERS)
def test_settings_and_copies_are_those_of_scikit_learn(kind, numbers):
    X, costs, new_X, _ = numbers
    name, value = SETTINGS[kind]
    router = clone(ROUTERS[kind])
    assert router.get_params()[name] != value
    router.set_params(**{name: value})
    copied = clone(router)
    assert copied is not router
    assert repr(copied) == repr(router)
    assert copied.get_params()[name] == value
    with pytest.raises(NotFittedError):
        copied.predict(new_X)
    with pytest.raises(ValueError):
        copied.set_params(nonsense=1)

    # A fit changes no setting, a second one forgets the first, and copies of it decide the same.
    before = repr(router)
    assert router.fit(X[:100], costs[:100]) is router
    again = router.fit(X, costs).predict(new_X)
    assert repr(router) == before
    np.testing.assert_array_equal(copied.fit(X, costs).predict(new_X), again)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(router)).predict(new_X), again)
    with pytest.raises(ValueError):
        router.predict(new_X[:, :2])


def test_costs_that_are_no_matrix_of_costs_are_refused(numbers):
    X, costs, _, _ = numbers
    wrong = {
        "labels": costs.argmin(axis=1),
        "too few rows": costs[:-1],
        "infinite": np.where(costs > 0.9, np.inf, costs),
        "negative": costs - 1,
        "a row of which nothing is known": np.where(np.arange(len(costs))[:, None], costs, np.nan),
        "none": None,
    }
    for what, y in wrong.items():
        with pytest.raises(InvalidInputError) as caught:
            LinearRouter().fit(X, y)
        assert caught.value.code.startswith("invalid_"), what


def test_texts_are_routed_by_a_pipeline(texts):
    given, costs, new, new_costs, new_columns = texts
    pipeline = make_pipeline(TfidfVectorizer(), LinearRouter()).fit(given, costs)
    assert pipeline[0].transform(new).format == "csr"
    chosen = pipeline.predict(new)
    assert share_of_best(new_columns, np.array(EXPERTS)[chosen]) > 0.9
    assert pipeline.score(new, new_costs) == pytest.approx(-mean_cost(new_costs, chosen))
    assert mean_cost(new_costs, chosen) < costs.mean(axis=0).min() - 0.05

    # Held-out scores are those of fits on the other rows.
    folds = list(KFold(3, shuffle=True, random_state=0).split(given))
    by_hand = []
    held_out = np.full(len(given), -1)
    for fitted_on, judged_on in folds:
        part = clone(pipeline).fit([given[row] for row in fitted_on], costs[fitted_on])
        held_out[judged_on] = part.predict([given[row] for row in judged_on])
        by_hand.append(-mean_cost(costs[judged_on], held_out[judged_on]))
    scores = cross_val_score(pipeline, given, costs, cv=folds, error_score="raise")
    np.testing.assert_allclose(scores, by_hand)
    np.testing.assert_array_equal(cross_val_predict(pipeline, given, costs, cv=folds), held_out)


def test_a_grid_search_finds_the_settings_that_cost_least(texts):
    given, costs, new, new_costs, _ = texts
    folds = list(KFold(3, shuffle=True, random_state=0).split(given))
    pipeline = make_pipeline(TfidfVectorizer(), LinearRouter())
    grid = {
        "tfidfvectorizer__min_df": [1, 5],
        # So strong a penalty that the best expert alone is asked.
        "linearrouter__alpha": [0.001, 1000.0],
        "linearrouter__loss": ["mild", "ce"],
    }
    search = GridSearchCV(pipeline, grid, cv=folds, error_score="raise").fit(given, costs)
    means = []
    for params in search.cv_results_["params"]:
        candidate = clone(pipeline).set_params(**params)
        means.append(cross_val_score(candidate, given, costs, cv=folds).mean())
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], means)
    assert search.best_index_ == np.argmax(means)
    assert search.best_score_ == pytest.approx(max(means))
    is_strong = [p["linearrouter__alpha"] == 1000 for p in search.cv_results_["params"]]
    assert max(means) > np.array(means)[is_strong].max() + 0.05
    assert search.best_params_["linearrouter__alpha"] == 0.001
    chosen = search.predict(new)
    assert search.score(new, new_costs) == pytest.approx(-mean_cost(new_costs, chosen))
    best = clone(pipeline).set_params(**search.best_params_).fit(given, costs)
    np.testing.assert_array_equal(best.predict(new), chosen)


@pytest.mark.parametrize("kind", ["linear", "ridge", "constant"])
def test_a_weight_counts_as_so_many_copies_of_a_row(kind, texts):
    given, costs, new, *_ = texts
    router = clone(ROUTERS[kind])
    if kind == "linear":
        router.set_params(tol=1e-10, max_iter=2000)
    # Its words do not depend on the rows.
    pipeline = make_pipeline(HashingVectorizer(n_features=64), router)
    name = f"{type(router).__name__.lower()}__sample_weight"
    weights = np.random.default_rng(3).integers(0, 4, len(given))
    weighted = clone(pipeline).fit(given, costs, **{name: weights})
    repeated = clone(pipeline).fit(np.repeat(given, weights), np.repeat(costs, weights, axis=0))
    found = weighted.decision_function(new)
    np.testing.assert_allclose(found, repeated.decision_function(new), atol=1e-3)
    assert not np.allclose(
        found, clone(pipeline).fit(given, costs).decision_function(new), atol=1e-3
    )
    score = weighted.score(given, costs, sample_weight=weights)
    chosen = weighted.predict(given)
    paid = costs[np.arange(len(costs)), chosen]
    assert score == pytest.approx(-np.average(paid, weights=weights))


def test_a_search_takes_the_kind_of_router_that_the_problem_needs():
    # Which of two experts is right depends on two numbers together; the third is never good.
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (300, 2))
    first_is_right = (X[:, 0] > 0) == (X[:, 1] > 0)
    right = np.column_stack([first_is_right, ~first_is_right]) != (rng.random((300, 2)) < 0.1)
    costs = np.column_stack([~right, np.full(300, 0.45)]).astype(float)
    folds = list(KFold(5, shuffle=True, random_state=0).split(X))
    search = RouterCV(
        alphas=(0.001, 0.01),
        margin_factors=(1.0,),
        candidates=[KNNRouter(15), RidgeRouter()],
        cv=folds,
    ).fit(X, costs)
    assert isinstance(search.best_estimator_, KNNRouter)
    assert search.best_params_ == {"n_neighbors": 15}
    np.testing.assert_array_equal(search.predict(X), KNNRouter(15).fit(X, costs).predict(X))
    # Its choices for held-out rows are those of fits on the others, and its verdict is about them.
    held_out = cross_val_predict(KNNRouter(15), X, costs, cv=folds)
    np.testing.assert_array_equal(search.held_out_, held_out)
    assert adapter.gain(search.verdict_) == pytest.approx(0.45 - mean_cost(costs, held_out))
    assert search.verdict_.pays
    assert (search.verdict_.n_rows, search.verdict_.n_groups) == (300, 300)
    # Of groups of three rows, all are in one fold and count once.
    groups = np.arange(300) // 3
    grouped = clone(search).set_params(cv=5).fit(X, costs, groups=groups)
    assert (grouped.verdict_.n_rows, grouped.verdict_.n_groups) == (300, 100)

    # Where nothing can be known, no router pays.
    guess = clone(search).fit(rng.normal(size=(300, 2)), rng.random((300, 3)))
    assert not guess.verdict_.pays

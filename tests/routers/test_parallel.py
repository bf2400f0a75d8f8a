"""Searches and comparisons on a back end of joblib that gives all results at the end."""

from __future__ import annotations

import joblib
import pytest
from joblib import delayed
from joblib.parallel import ThreadingBackend

import mild
from mild.datasets import load_outcomes
from mild.routers.parallel import parallel_results

SEARCH = mild.RouterCV(
    families=["linear"], alphas=[0.01], candidates=[mild.KNNRouter(5)], cv=3, n_jobs=2
)


class AllAtTheEnd(ThreadingBackend):
    """Workers in threads, of which joblib is told that it has to wait for all."""

    supports_return_generator = False


joblib.register_parallel_backend("all at the end", AllAtTheEnd)


def all_at_the_end():
    """A context in which joblib uses that back end."""
    return joblib.parallel_config(backend="all at the end", n_jobs=2)


@pytest.fixture(scope="module")
def table():
    return load_outcomes()[range(300)]


def test_results_keep_their_order_and_calls_are_made_once():
    made = []

    def call(number):
        made.append(number)
        return number

    with all_at_the_end():
        results = list(parallel_results((delayed(call)(number) for number in range(9)), 2))
    assert results == list(range(9))
    assert sorted(made) == results


@pytest.mark.parametrize("goal", [{"price_weight": 20}, {"keep_quality": 0.9}])
def test_tune_finds_what_it_finds_elsewhere(table, goal):
    elsewhere = mild.tune(table, search=SEARCH, **goal)
    with all_at_the_end():
        found = mild.tune(table, search=SEARCH, **goal)
    assert found.as_dict() == elsewhere.as_dict()
    assert found.router.route(table.queries) == elsewhere.router.route(table.queries)


def test_compare_finds_what_it_finds_elsewhere(table):
    def compared():
        return mild.compare(table, methods=["ridge", "knn"], price_weight=20, n_splits=2, n_jobs=2)

    elsewhere = compared()
    with all_at_the_end():
        found = compared()
    assert found.verdict.as_dict() == elsewhere.verdict.as_dict()


def test_a_search_finds_what_it_finds_elsewhere(table):
    X = mild.features.HashingFeatures(n_components=20).fit_transform(table.queries)
    y = table.costs(price_weight=20)
    elsewhere = mild.RouterCV(**SEARCH.get_params()).fit(X, y)
    with all_at_the_end():
        found = mild.RouterCV(**SEARCH.get_params()).fit(X, y)
    assert found.cv_results_ == elsewhere.cv_results_

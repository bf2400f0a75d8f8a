"""A method of one's own in ``mild.compare``: any object with ``fit(X, costs)`` and ``predict(X)``."""

from __future__ import annotations

import numpy as np
import pytest

import mild
from mild.datasets import load_outcomes
from mild.errors import InvalidInputError


class LeastMeanCost:
    """The cheapest expert in training, by hand; not an estimator of scikit-learn."""

    def fit(self, X, costs):
        self.expert = int(np.nanmean(np.asarray(costs), axis=0).argmin())

    def predict(self, X):
        return np.full(len(X), self.expert)


class Chooses(LeastMeanCost):
    def __init__(self, choices):
        self.choices = choices

    def predict(self, X):
        return np.asarray(self.choices(X))


def compare(*methods, **more):
    return mild.compare(load_outcomes(), price_weight=50, methods=methods, n_splits=2, **more)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_method_of_ones_own_stands_beside_the_others(n_jobs):
    mine = LeastMeanCost()
    found = compare("mild", ("mine", mine), n_jobs=n_jobs)
    assert [row.key for row in found.rows] == ["constant", "mild", "mine"]
    np.testing.assert_allclose(found.row("mine").costs, found.row("constant").costs)
    assert found.row("mine").difference.estimate == 0
    assert "mine" in found.to_frame()["method"].tolist()
    assert not hasattr(mine, "expert")  # a copy was fitted


def test_mild_s_own_estimator_gives_the_same_figures_under_another_name():
    router = mild.LinearRouter(alpha=0.01)
    found = compare(("one", router), ("two", router))
    np.testing.assert_array_equal(found.row("one").costs, found.row("two").costs)
    assert found.row("one").costs.mean() < found.row("constant").costs.mean()


@pytest.mark.parametrize(
    "method",
    [
        ("mine", object()),
        ("mild", LeastMeanCost()),
        (LeastMeanCost(), "mine"),
        ("mine",),
        ("mine", Chooses(lambda X: np.zeros(len(X) + 1, int))),
        ("mine", Chooses(lambda X: np.full(len(X), 99))),
        ("mine", Chooses(lambda X: np.full(len(X), "rules"))),
    ],
)
def test_what_is_no_method_is_refused(method):
    with pytest.raises(InvalidInputError) as refused:
        compare(method)
    assert refused.value.code == "invalid_methods"


def test_two_methods_must_have_two_names():
    with pytest.raises(InvalidInputError) as refused:
        compare(("mine", LeastMeanCost()), ("mine", LeastMeanCost()))
    assert refused.value.code == "invalid_methods"

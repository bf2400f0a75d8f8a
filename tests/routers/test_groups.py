"""GroupRouter: memberships by linear discriminants, shrunken means of groups, clusters without labels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from mild.errors import InvalidInputError
from mild.routers.groups import GroupRouter
from mild.routers.search import RouterCV
from mild.routers.stack import StackRouter


def blobs(n=120, seed=0):
    """Inputs of three topics; expert k is cheap in topic k."""
    rng = np.random.default_rng(seed)
    topics = np.arange(n) % 3
    X = 3 * np.eye(3)[topics] + 0.5 * rng.normal(size=(n, 3))
    return X, 1 - np.eye(3)[topics] + 0.1 * rng.random((n, 3)), topics


def test_memberships_are_those_of_linear_discriminant_analysis():
    X, costs, topics = blobs()
    router = GroupRouter(diagonal=0.0, temperature=1.0).fit(X, costs, topics=topics)
    peer = LinearDiscriminantAnalysis(solver="lsqr").fit(X, topics)
    assert_allclose(router.policy_.memberships(X), peer.predict_proba(X), atol=1e-6)


def test_expected_costs_are_shrunken_means_weighed_by_membership():
    X, costs, topics = blobs()
    router = GroupRouter(shrinkage=5.0).fit(X, costs, topics=topics)
    means = np.stack([(costs[topics == g].sum(0) + 5 * costs.mean(0)) / (40 + 5) for g in range(3)])
    assert_allclose(router.expected_costs(X), router.policy_.memberships(X) @ means)
    assert router.n_groups_ == 3


def test_a_higher_temperature_is_less_certain():
    X, costs, topics = blobs()
    sure, unsure = (
        GroupRouter(temperature=t).fit(X, costs, topics=topics).policy_.memberships(X).max(axis=1)
        for t in (1.0, 8.0)
    )
    assert (unsure < sure).all()


def test_clusters_find_topics_that_are_not_given():
    X, costs, topics = blobs()
    assert_array_equal(GroupRouter(n_clusters=3).fit(X, costs).predict(X), topics)


def test_a_missing_cost_is_left_out_of_the_means():
    X, costs, topics = blobs()
    costs[0, 0] = np.nan
    router = GroupRouter(shrinkage=0.0).fit(X, costs, topics=topics)
    first = costs[topics == 0]
    assert_allclose(router.policy_.costs[0], np.nanmean(first, axis=0))


def test_topics_of_another_length_are_refused():
    X, costs, topics = blobs()
    for router in (GroupRouter(), StackRouter()):
        with pytest.raises(InvalidInputError) as caught:
            router.fit(X, costs, topics=topics[1:])
        assert caught.value.code == "invalid_topics"


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_clusters", 0), ("shrinkage", -1.0), ("diagonal", 1.5), ("temperature", 0.0)],
)
def test_parameters_out_of_range_are_refused(name, value):
    X, costs, _ = blobs()
    with pytest.raises(InvalidInputError) as caught:
        GroupRouter(**{name: value}).fit(X, costs)
    assert caught.value.code == f"invalid_{name}"


def test_a_search_passes_topics_to_the_candidates_that_use_them():
    X, costs, topics = blobs()
    search = RouterCV(families="groups", cv=3).fit(X, costs, topics=topics)
    # Of equal candidates those with known topics are the simplest.
    assert search.best_params_["labelled"]
    assert search.best_router_.n_groups_ == 3
    plain = RouterCV(families="groups", cv=3).fit(X, costs)
    assert all("labelled" not in params for params in plain.cv_results_["params"])


def test_a_stack_passes_topics_to_its_members():
    X, costs, topics = blobs()
    members = [("known", GroupRouter(labelled=True)), ("clusters", GroupRouter(n_clusters=2))]
    stack = StackRouter(members, cv=3).fit(X, costs, topics=topics)
    assert [member.n_groups_ for member in stack.estimators_] == [3, 2]

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import KFold

from mild.exceptions import InvalidInputError
from mild.routers.constant import ConstantRouter
from mild.routers.linear import LinearRouter
from mild.routers.nearest import KNNRouter
from mild.routers.regression import CostRegressionRouter
from mild.routers.stack import StackRouter

MEMBERS = [("regression", CostRegressionRouter()), ("nearest", KNNRouter(5))]


def problem(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.abs(X @ rng.normal(size=(3, 3)) + 0.3 * rng.normal(size=(n, 3)) + 1)


def test_the_last_router_learns_from_distributions_of_rows_the_members_have_not_seen():
    X, costs = problem()
    folds = KFold(4)
    features = np.empty((80, 6))
    for seen, held in folds.split(X):
        for number, (_, member) in enumerate(MEMBERS):
            fitted = clone(member).fit(X[seen], costs[seen])
            features[held, 3 * number : 3 * number + 3] = fitted.predict_proba(X[held])
    final = LinearRouter().fit(features, costs)
    stack = StackRouter(MEMBERS, cv=folds).fit(X, costs)
    assert_allclose(stack.final_estimator_.coef_, final.coef_, atol=1e-10)


def test_decides_with_members_fitted_on_everything():
    X, costs = problem()
    stack = StackRouter(MEMBERS).fit(X, costs)
    members = [clone(member).fit(X, costs) for _, member in MEMBERS]
    features = np.hstack([member.predict_proba(X) for member in members])
    assert_array_equal(stack.predict(X), stack.final_estimator_.predict(features))
    assert_array_equal(stack.policy_.features(X), features)


def test_folds_follow_the_seed():
    X, costs = problem()
    first = StackRouter(MEMBERS, random_state=1).fit(X, costs).decision_function(X)
    again = StackRouter(MEMBERS, random_state=1).fit(X, costs).decision_function(X)
    other = StackRouter(MEMBERS, random_state=2).fit(X, costs).decision_function(X)
    assert_array_equal(first, again)
    assert (first != other).any()


def test_default_members_and_another_last_router_work():
    X, costs = problem()
    stack = StackRouter(final_estimator=CostRegressionRouter()).fit(X, costs)
    assert len(stack.estimators_) == 3
    assert stack.expected_costs(X).shape == costs.shape


def test_members_are_parameters():
    stack = StackRouter(MEMBERS)
    assert stack.get_params()["nearest__n_neighbors"] == 5
    copy = clone(stack).set_params(nearest__n_neighbors=9, regression=ConstantRouter())
    assert copy.get_params()["nearest__n_neighbors"] == 9
    assert isinstance(copy.estimators[0][1], ConstantRouter)
    assert MEMBERS[1][1].n_neighbors == 5
    assert StackRouter().set_params(cv=3).cv == 3


def test_fitting_leaves_the_given_members_unfitted():
    StackRouter(MEMBERS).fit(*problem())
    assert not hasattr(MEMBERS[0][1], "policy_")


def test_folds_are_clipped_to_the_rows():
    X, costs = problem(n=4)
    assert StackRouter(MEMBERS, cv=10).fit(X, costs).predict(X).shape == (4,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimators": []}, r"at least one \(name, router\)"),
        ({"estimators": [("a", KNNRouter()), ("a", KNNRouter())]}, "names unique"),
        ({"estimators": [KNNRouter()]}, r"list of \(name, router\)"),
        ({"estimators": [("a", DummyClassifier())]}, "'a' is a DummyClassifier"),
        ({"cv": 1}, "cv must be at least 2"),
        ({"cv": [(np.arange(40), np.arange(40, 80))]}, "every row exactly once"),
    ],
)
def test_refuses_bad_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        StackRouter(**options).fit(*problem())


def test_refuses_two_rows():
    with pytest.raises(InvalidInputError, match="at least 3 rows"):
        StackRouter(MEMBERS).fit(*problem(n=2))


def test_an_expert_asked_too_rarely_for_the_folds_is_named():
    X, costs = problem()
    costs[1:, 2] = np.nan
    with pytest.raises(InvalidInputError, match="expert 2 is not"):
        StackRouter(MEMBERS).fit(X, costs)

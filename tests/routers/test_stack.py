import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import KFold

from mild.errors import DegenerateDataWarning, InvalidInputError
from mild.routers.baselines import ConstantRouter
from mild.routers.cost_models import KNNRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.stack import BlendRouter, blend

MEMBERS = [("ridge", RidgeRouter()), ("nearest", KNNRouter(5))]


def problem(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.abs(X @ rng.normal(size=(3, 3)) + 0.3 * rng.normal(size=(n, 3)) + 1)


def test_a_blend_minimises_the_squared_error_of_held_out_differences():
    X, costs = problem()
    folds = list(KFold(4).split(X))
    beliefs = [np.empty_like(costs) for _ in MEMBERS]
    for seen, held in folds:
        for belief, (_, member) in zip(beliefs, MEMBERS, strict=True):
            belief[held] = clone(member).fit(X[seen], costs[seen]).expected_costs(X[held])
    beliefs.append(np.tile(costs.mean(axis=0), (80, 1)))

    def loss(weights):
        total = sum(w * belief for w, belief in zip(weights, beliefs, strict=True))
        gap = costs - total
        return ((gap - gap.mean(axis=1, keepdims=True)) ** 2).sum()

    stack = BlendRouter(MEMBERS, cv=folds).fit(X, costs)
    best = minimize(loss, np.full(3, 0.3), bounds=[(0, None)] * 3).fun
    assert loss(stack.weights_) <= best * (1 + 1e-9)
    assert (stack.weights_ >= 0).all()


def test_a_blend_of_worthless_members_is_the_best_constant():
    rng = np.random.default_rng(0)
    X, costs = rng.normal(size=(400, 3)), rng.random((400, 3)) + np.array([0.0, 0.1, 0.3])
    stack = BlendRouter(MEMBERS).fit(X, costs)
    assert (stack.predict(X) == 0).mean() > 0.95


def test_weights_for_a_fold_come_from_the_other_rows():
    rng = np.random.default_rng(0)
    costs, beliefs = rng.random((60, 3)), rng.random((2, 60, 3))
    folds = list(KFold(3).split(costs))
    held = folds[0][1]
    changed = costs.copy()
    changed[held] = changed[held][:, ::-1]
    _, _, first = blend(beliefs, costs, None, folds)
    _, _, again = blend(beliefs, changed, None, folds)
    assert_array_equal(first[held], again[held])
    assert (first != again).any()


def test_rows_that_no_fold_holds_out_do_not_weigh_members():
    X, costs = problem()
    past = [(np.arange(40), np.arange(40, 60)), (np.arange(60), np.arange(60, 80))]
    stack = BlendRouter(MEMBERS, cv=past).fit(X, costs)
    assert stack.predict(X).shape == (80,)
    assert (stack.held_out_[:40] == -1).all()
    assert (stack.held_out_[40:] >= 0).all()


def test_a_blend_knows_costs_though_one_of_its_members_does_not():
    X, costs = problem()
    stack = BlendRouter([*MEMBERS, ("linear", LinearRouter())]).fit(X, costs)
    found = stack.expected_costs(X)
    assert_array_equal(found.argmin(axis=1), stack.predict(X))
    assert abs(found.mean() - costs.mean()) < 0.1
    alone = BlendRouter([("linear", LinearRouter())]).fit(X, costs).expected_costs(X)
    assert_allclose(alone.mean(axis=1), costs.mean(), rtol=1e-6)


def test_a_blend_learns_from_rows_with_missing_costs():
    X, costs = problem(n=200)
    holes = costs.copy()
    holes[np.arange(200), np.random.default_rng(1).integers(0, 3, 200)] = np.nan
    stack = BlendRouter(MEMBERS).fit(X, holes)
    loss = costs[np.arange(200), stack.predict(X)].mean()
    assert loss < costs.mean(axis=0).min()


def test_folds_follow_the_seed():
    X, costs = problem()
    first = BlendRouter(MEMBERS, random_state=1).fit(X, costs).decision_function(X)
    again = BlendRouter(MEMBERS, random_state=1).fit(X, costs).decision_function(X)
    other = BlendRouter(MEMBERS, random_state=2).fit(X, costs).decision_function(X)
    assert_array_equal(first, again)
    assert (first != other).any()


def test_default_members_work():
    X, costs = problem()
    stack = BlendRouter().fit(X, costs)
    assert len(stack.estimators_) == 3
    assert stack.expected_costs(X).shape == costs.shape


def test_members_are_parameters():
    stack = BlendRouter(MEMBERS)
    assert stack.get_params()["nearest__n_neighbors"] == 5
    copy = clone(stack).set_params(nearest__n_neighbors=9, ridge=ConstantRouter())
    assert copy.get_params()["nearest__n_neighbors"] == 9
    assert isinstance(copy.estimators[0][1], ConstantRouter)
    assert MEMBERS[1][1].n_neighbors == 5
    assert BlendRouter().set_params(cv=3).cv == 3


def test_fitting_leaves_the_given_members_unfitted():
    BlendRouter(MEMBERS).fit(*problem())
    assert not hasattr(MEMBERS[0][1], "policy_")


def test_folds_are_clipped_to_the_rows():
    X, costs = problem(n=4)
    assert BlendRouter(MEMBERS, cv=10).fit(X, costs).predict(X).shape == (4,)


@pytest.mark.parametrize(
    ("options", "n", "message"),
    [
        ({"estimators": []}, 80, r"at least one \(name, router\)"),
        ({"estimators": [("a", KNNRouter()), ("a", KNNRouter())]}, 80, "names unique"),
        ({"estimators": [KNNRouter()]}, 80, r"list of \(name, router\)"),
        ({"estimators": [("a", DummyClassifier())]}, 80, "'a' is a DummyClassifier"),
        ({"cv": 1}, 80, "cv must be at least 2"),
        ({"cv": [(np.arange(40), np.arange(40, 80))] * 2}, 80, "a row more than once"),
        ({"estimators": MEMBERS}, 2, "at least 3 rows"),
    ],
)
def test_refuses_bad_options_and_two_rows(options, n, message):
    with pytest.raises(InvalidInputError, match=message):
        BlendRouter(**options).fit(*problem(n))


def test_an_expert_asked_too_rarely_for_the_folds_is_named():
    X, costs = problem()
    costs[1:, 2] = np.nan
    with pytest.raises(InvalidInputError, match="expert 2 is not"):
        BlendRouter(MEMBERS).fit(X, costs)


def test_rows_in_which_one_expert_was_asked_tell_what_has_changed():
    rng = np.random.default_rng(0)
    n_old, n_new = 60, 240
    X = rng.random((n_old + n_new, 2))
    # The first expert was the better one, and is wrong since; of the new rows each has one answer.
    costs = np.repeat([[0.1, 0.3]], n_old + n_new, axis=0) + 0.01 * rng.random((n_old + n_new, 2))
    costs[n_old:, 0] = 1.0
    asked = rng.integers(0, 2, n_new)
    costs[np.arange(n_old, n_old + n_new), 1 - asked] = np.nan
    members = [("ridge", RidgeRouter(alpha=1.0)), ("tdef", LinearRouter(loss="tdef"))]
    router = BlendRouter(members, random_state=0).fit(X, costs)
    assert (router.predict(X) == 1).all()


def test_an_expert_asked_about_easy_rows_alone_is_not_taken_for_the_best():
    rng = np.random.default_rng(0)
    easy = np.arange(300) < 100
    X = rng.random((300, 2))
    hardness = np.where(easy, 0.1, 0.7)
    # The second expert is dearer by 0.1 on every row, and was asked about the easy ones only.
    costs = hardness[:, None] + [0.0, 0.1] + 0.01 * rng.random((300, 2))
    costs[~easy, 1] = np.nan
    assert np.nanmean(costs, axis=0).argmin() == 1
    members = [("ridge", RidgeRouter(alpha=1.0)), ("tdef", LinearRouter(loss="tdef"))]
    router = BlendRouter(members, random_state=0).fit(X, costs)
    assert (router.predict(X) == 0).all()
    assert (router.held_out_ == 0).all()


def test_where_nobody_was_asked_beside_another_the_mean_costs_decide():
    costs = np.full((40, 2), np.nan)
    costs[::2, 0], costs[1::2, 1] = 0.3, 0.6
    folds = list(KFold(4, shuffle=True, random_state=0).split(costs))
    weights, means, chosen = blend(np.zeros((1, 40, 2)), costs, None, folds)
    assert weights.tolist() == [0.0, 1.0]
    assert means.tolist() == pytest.approx([0.3, 0.6])
    assert (chosen == 0).all()


def test_weights_are_drawn_towards_shares_of_what_each_member_explains():
    rng = np.random.default_rng(0)
    costs = rng.random((60, 2)) * [1.0, 2.0]
    members = np.stack([costs + rng.normal(size=costs.shape) for _ in range(3)])
    folds = list(KFold(3).split(costs))
    e = np.stack([(member - member.mean(axis=1, keepdims=True)).ravel() for member in members])
    c = (costs - costs.mean(axis=1, keepdims=True)).ravel()
    alone = e @ c / (e * e).sum(axis=1)
    squares = alone * (e @ c)
    expected = alone * squares / squares.sum()
    free, strong = (blend(members, costs, None, folds, rows)[0] for rows in (0.0, 1e9))
    assert_allclose(strong[:-1], expected, rtol=1e-6)
    assert np.abs(free[:-1] - expected).max() > 0.01


def test_useless_members_leave_the_mean_costs():
    costs = np.tile([0.0, 1.0], (30, 1))
    members = -np.tile([0.0, 1.0], (2, 30, 1))
    weights, means, chosen = blend(members, costs, None, list(KFold(3).split(costs)), 150.0)
    assert_allclose(weights, [0, 0, 1])
    assert_array_equal(chosen, 0)
    assert_allclose(means, [0, 1])


def test_members_do_not_warn_about_experts_that_are_never_cheapest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    costs = rng.uniform(size=(60, 3))
    costs[:, 2] = 2.0
    members = [("linear", LinearRouter(loss="ce")), ("knn", KNNRouter(5))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateDataWarning)
        BlendRouter(members, cv=3).fit(X, costs)

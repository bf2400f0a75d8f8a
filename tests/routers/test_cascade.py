"""CascadeRouter: the search for steps and thresholds, partial rows, bad input."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mild.core.answers import Answers
from mild.errors import DegenerateDataWarning, InvalidInputError
from mild.policies import Ask, CascadePolicy, ConstantPolicy
from mild.routers import CascadeRouter
from mild.routers.cascade import CascadeSearch

PRICES = np.array([1.0, 1.2, 10.0, 30.0])


def outcomes(n=300, seed=0):
    """Two cheap experts that are right in seven of ten rows, one strong, one dear; wrong answers differ.

    The first feature says how hard a row is.
    """
    rng = np.random.default_rng(seed)
    hard = rng.random(n) < 0.3
    right = rng.random((n, 4)) < np.where(
        hard[:, None], [0.3, 0.3, 0.9, 0.9], [0.9, 0.9, 0.97, 0.95]
    )
    contents = [["10" if ok else str(rng.integers(11, 60)) for ok in row] for row in right]
    X = np.column_stack([hard + 0.3 * rng.normal(size=n), rng.normal(size=n)])
    return X, 1.0 - right, Answers.of(contents, "number")


def fitted(data=None, prices=PRICES, **options):
    X, costs, answers = data or outcomes()
    return CascadeRouter(**options).fit(X, costs, answers=answers, prices=prices)


def loss(router, X, costs, answers, prices):
    """Mean cost and weighted price of what a cascade does."""
    run = router.policy_.run(X, answers)
    paid = run.total_prices(np.broadcast_to(prices, costs.shape))
    return np.mean(run.answer_scores(costs) + router.price_weight * paid)


def test_agreement_of_the_cheap_saves_most_of_the_price_of_the_strong():
    X, costs, answers = outcomes()
    router = fitted((X, costs, answers), price_weight=0.01)
    assert isinstance(router.policy_, CascadePolicy)
    assert set(router.policy_.steps[0]) == {0, 1}
    new, truth, said = outcomes(seed=1)
    run = router.policy_.run(new, said)
    strong = truth[:, 2].mean()
    assert run.answer_scores(truth).mean() < strong + 0.03
    assert run.total_prices(np.tile(PRICES, (300, 1))).mean() < 0.75 * 10


def test_candidates_are_a_front_and_the_weight_of_prices_chooses():
    router = fitted()
    cost = np.array([one.cost for one in router.candidates_])
    paid = np.array([one.paid for one in router.candidates_])
    assert (np.diff(cost) < 0).all()
    assert (np.diff(paid) > 0).all()
    for weight in (0.0, 0.01, 0.1, 10.0):
        best = router.candidates_[int(np.argmin(cost + weight * paid))]
        policy = router.at(weight)
        assert [tuple(step) for step in policy.steps] == list(best.steps)
        assert policy.threshold == best.threshold
    assert router.at(10.0).steps == [[0]]
    assert router.at(10.0).direct.expert == 0
    assert router.at(0.0).direct.expert in (2, 3)


def test_a_candidate_says_what_it_does_without_its_own_row():
    X, costs, answers = outcomes(60)
    prices = np.tile(PRICES, (60, 1))
    steps = ((0, 1), (2,))
    for one in CascadeSearch(answers, costs, prices, np.ones(60)).try_steps(steps):
        given, paid = np.empty(60), np.empty(60)
        for i in range(60):
            rest = np.delete(np.arange(60), i)
            search = CascadeSearch(answers.take(rest), costs[rest], prices[rest], np.ones(59))
            policy = search.policy(one, ConstantPolicy(np.zeros(4), 2))
            # The mean score of an expert, the prior, is that of all rows.
            policy.table.accuracy[:] = 1 - costs[:, [0, 1, 2]].mean(axis=0)
            policy.threshold -= 1e-12
            run = policy.run(X[[i]], answers.take([i]))
            given[i], paid[i] = run.answer_scores(costs[[i]])[0], run.total_prices(prices[[i]])[0]
        assert_allclose([one.cost, one.paid], [given.mean(), paid.mean()])


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
def test_no_more_experts_are_asked_than_calls(calls):
    router = fitted(max_calls=calls)
    assert max(sum(map(len, one.steps)) for one in router.candidates_) <= calls


def test_unknown_costs_leave_the_row_to_cascades_of_other_experts():
    X, costs, answers = outcomes(400)
    partial = costs.copy()
    partial[::3, 3] = np.nan
    whole, some = (fitted((X, values, answers)).candidates_ for values in (costs, partial))
    without = [
        [one for one in found if not any(3 in step for step in one.steps)]
        for found in (whole, some)
    ]
    assert without[0]
    best = {one.steps: one.cost for one in without[0]}
    shared = [one for one in without[1] if one.steps in best]
    assert shared
    assert any(abs(one.cost - best[one.steps]) < 1e-12 for one in shared)


def test_an_expert_asked_about_easy_rows_only_is_not_taken_for_the_best():
    X, costs, answers = outcomes(600)
    easy = X[:, 0] < 0.5
    partial = costs.copy()
    partial[~easy, 3] = np.nan
    router = fitted((X, partial, answers), [1.0, 1.2, 10.0, 10.0], max_calls=1)
    single = {one.steps: one.cost for one in router.candidates_}
    search = router._search.try_steps(((3,),))[0]
    assert search.cost > partial[easy, 3].mean() + 0.02
    assert single


def test_unknown_prices_are_the_mean_of_the_expert():
    X, costs, answers = outcomes()
    prices = np.tile(PRICES, (300, 1))
    prices[::4, 2] = np.nan
    known = fitted((X, costs, answers))
    found = fitted((X, costs, answers), prices)
    assert [one[:2] for one in known.candidates_] == [one[:2] for one in found.candidates_]


def test_weights_are_copies_for_counts():
    X, costs, answers = outcomes(100)
    rows = np.r_[np.arange(100), np.arange(40)]
    weight = np.r_[np.full(40, 2.0), np.ones(60)]
    router = CascadeRouter().fit(X, costs, weight, answers=answers, prices=PRICES)
    whole = fitted((X[rows], costs[rows], answers.take(rows)))
    one, two = router.at(1.0), whole.at(1.0)
    assert_allclose(one.table.accuracy, two.table.accuracy)


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ([["a", "b"], ["c"]], [[0, 1], [2]]),
        ([[0, 1], 3], [[0, 1], [3]]),
        (["b", "a"], [[1], [0]]),
        ([np.int64(2), 0], [[2], [0]]),
    ],
)
def test_steps_may_be_given_by_index_or_name(given, steps):
    import pandas as pd

    X, costs, answers = outcomes()
    frame = pd.DataFrame(costs, columns=list("abcd"))
    router = CascadeRouter(steps=given)
    policy = router.fit(X, frame, answers=answers, prices=PRICES).policy_
    assert policy.steps == steps


@pytest.mark.parametrize(
    "steps", [[], [[]], [[0], []], [[0], [0]], [[0, 9]], ["who"], [[True]], [-1]]
)
def test_steps_that_name_nobody_or_somebody_twice_are_refused(steps):
    with pytest.raises(InvalidInputError) as caught:
        fitted(steps=steps)
    assert caught.value.code in ("invalid_steps", "invalid_expert")


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        (lambda X, c, a: {"answers": None}, "answers"),
        (lambda X, c, a: {"answers": a.take(slice(10))}, "answers"),
        (lambda X, c, a: {"answers": a.of_experts([0, 1])}, "answers"),
        (lambda X, c, a: {"answers": Answers.of([[None] * 4] * 300, "number")}, "answers"),
        (lambda X, c, a: {"answers": [["1"] * 4] * 300}, "answers"),
        (lambda X, c, a: {"prices": [1.0, 2.0]}, "prices"),
        (lambda X, c, a: {"prices": [1.0, 2.0, 3.0, -1.0]}, "prices"),
        (lambda X, c, a: {"prices": [1.0, 2.0, 3.0, np.nan]}, "prices"),
        (lambda X, c, a: {"y": c[:, :1], "answers": a.of_experts([0])}, "costs"),
        (lambda X, c, a: {"y": np.full(c.shape, np.nan)}, "costs"),
    ],
)
def test_bad_input_is_one_sentence(change, parameter):
    X, costs, answers = outcomes()
    given = {"y": costs, "answers": answers, "prices": PRICES} | change(X, costs, answers)
    with pytest.raises(InvalidInputError) as caught:
        CascadeRouter().fit(X, **given)
    assert caught.value.parameter == parameter


def test_answers_that_never_agree_are_said():
    X, costs, _ = outcomes(40)
    answers = Answers.of([["1", "2", "3", "4"]] * 40, "number")
    with pytest.warns(DegenerateDataWarning, match="same answer"):
        fitted((X, costs, answers))


def test_costs_above_one_are_scaled():
    X, costs, answers = outcomes()
    one, five = (fitted((X, scale * costs, answers), scale * PRICES) for scale in (1.0, 5.0))
    assert_allclose(
        [5 * c.cost for c in one.candidates_], [c.cost for c in five.candidates_], atol=1e-9
    )
    assert 0 <= five.policy_.threshold <= 1


def test_predict_gives_the_first_expert_of_the_first_step():
    X, costs, answers = outcomes()
    router = fitted((X, costs, answers), price_weight=0.01)
    assert_array_equal(router.predict(X), router.policy_.steps[0][0])


def test_of_many_rows_a_sample_is_searched(monkeypatch):
    monkeypatch.setattr("mild.routers.cascade.MOST_ROWS", 200)
    router = fitted(outcomes(600), price_weight=0.01)
    assert router.policy_.table.counts.sum() == 200
    assert router.policy_.steps[0] == [0, 1]


def test_no_answer_is_never_accepted_before_the_last_step():
    """Nobody is right: accepting at once is cheapest, also where there is no answer."""
    contents = [["1", "2"], [None, "2"]] * 60
    X, costs = np.zeros((120, 1)), np.ones((120, 2))
    with pytest.warns(DegenerateDataWarning):
        router = fitted((X, costs, Answers.of(contents, "number")), [1.0, 1.0], steps=[0, 1])
    for one in router.candidates_:
        assert router.policy_of(one).next(X[0], {0: None}) == Ask((1,))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_free_and_perfect_experts_are_one_step():
    X, costs, answers = outcomes()
    router = fitted((X, 0 * costs, answers), None)
    assert router.candidates_[0].cost == 0
    assert len(router.policy_.order) == 1


def test_rows_without_weight_do_not_count(monkeypatch):
    X, costs, answers = outcomes(400)
    weight = np.r_[np.ones(150), np.zeros(250)]
    own = answers.take(slice(150))
    for most in (20_000, 150):
        monkeypatch.setattr("mild.routers.cascade.MOST_ROWS", most)
        options = {"answers": answers, "prices": PRICES}
        one = CascadeRouter().fit(X, costs, weight, **options)
        two = fitted((X[:150], costs[:150], own))
        assert [each[:4] for each in one.candidates_] == [each[:4] for each in two.candidates_]


def test_steps_of_experts_that_no_row_knows_together_are_refused():
    X, costs, answers = outcomes(100)
    costs[::2, 0] = costs[1::2, 1] = np.nan
    with pytest.raises(InvalidInputError, match="known in some row"):
        fitted((X, costs, answers), steps=[0, 1])


def test_the_agreement_of_the_cheap_beats_the_strong_expert_at_its_price():
    router = fitted(price_weight=0.02)
    X, costs, answers = outcomes(seed=2)
    alone = costs.mean(axis=0) + 0.02 * PRICES
    assert loss(router, X, costs, answers, PRICES) < alone.min()


def test_experts_whose_costs_no_row_knows_together_are_not_combined():
    """Two cheap experts whose costs are known in one half of the rows, a dear one in the other half."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    costs = (rng.random((400, 3)) < [0.5, 0.3, 0.1]).astype(float)
    costs[:200, 2] = np.nan
    costs[200:, :2] = np.nan
    rows = rng.integers(3, size=(400, 3)).astype(str).astype(object)
    rows[np.isnan(costs)] = None
    answers = Answers.of(rows.tolist(), "number")
    router = CascadeRouter().fit(X, costs, answers=answers, prices=[0.01, 0.1, 1])
    for candidate in router.candidates_:
        experts = [expert for step in candidate.steps for expert in step]
        assert not {1, 2} <= set(experts)

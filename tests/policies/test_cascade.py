"""Cascades that read answers: agreement, decisions one by one and in rows, what is saved."""

import itertools
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mild.core.answers import Answers
from mild.policies import Accept, Ask, CascadePolicy, ConstantPolicy
from mild.policies.cascade import UNKNOWN, AgreementTable, answer_groups

CONTENTS = ("1", "2", "I'm sorry, 3", "no answer", None)


def rows(n, p=4, seed=0):
    """Contents of answers, as number texts, refusals and none at all."""
    rng = np.random.default_rng(seed)
    return [[CONTENTS[k] for k in rng.integers(len(CONTENTS), size=p)] for _ in range(n)]


def policy(steps, threshold=0.6, seed=0, p=4):
    """A cascade whose table was made from random rows."""
    rng = np.random.default_rng(seed)
    order = [expert for step in steps for expert in step]
    codes = Answers.of(rows(200, p, seed + 1), "number").codes
    table = AgreementTable.of_rows(
        codes[:, order], rng.integers(2, size=(200, len(order))).astype(float), np.ones(200)
    )
    direct = ConstantPolicy(np.arange(float(p)), 2)
    return CascadePolicy("number", steps, threshold, table, direct)


def by_next(cascade, x, contents):
    """The decision of ``next``, asked step by step, and whom it asked."""
    said = {}
    while isinstance(found := cascade.next(x, said), Ask):
        assert not set(found.experts) & set(said)
        said |= {expert: contents[expert] for expert in found.experts}
    return found, set(said)


STEPS = ([[0]], [[0, 1]], [[2], [0]], [[1, 3], [0]], [[0, 1, 2], [3]], [[3], [1], [0, 2]])


@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_rows_and_single_decisions_agree_also_after_saving(steps):
    first = policy(steps, 0.55)
    again = CascadePolicy.from_state(*first.state())
    contents = rows(120, seed=5)
    X = np.random.default_rng(1).normal(size=(120, 2))
    for cascade in (first, again):
        run = cascade.run(X, Answers.of(contents, "number"))
        for i, row in enumerate(contents):
            found, asked = by_next(cascade, X[i], row)
            assert found.expert == run.expert[i]
            assert_allclose(found.probability, run.probability[i], atol=1e-12)
            assert asked == set(np.flatnonzero(run.asked[i]))


def test_a_pattern_is_who_agrees_with_whom():
    codes = np.array([[7, 7, 3], [-1, 2, 2], [UNKNOWN, 2, -1]])
    assert_array_equal(answer_groups(codes), [[1, 1, 2], [0, 1, 1], [-1, 1, 0]])
    for k in (3, 17):
        wide = np.tile(np.arange(k), (2, 1))
        assert_array_equal(answer_groups(wide), wide + 1)


def test_expected_scores_are_means_of_the_same_pattern_with_a_prior():
    codes = np.array([[0, 0], [0, 0], [0, 1], [0, 1]])
    scores = np.array([[1.0, 1], [1, 1], [0, 1], [1, 0]])
    table = AgreementTable.of_rows(codes, scores, np.ones(4))
    accuracy = scores.mean(axis=0)
    assert_allclose(table.expected(codes[:1])[0], (2 + 2 * accuracy) / 4)
    # Without its own row.
    own = table.expected(codes, (scores, np.ones(4)))
    assert_allclose(own[2], (scores[3] + 2 * accuracy) / 3)


def test_a_weight_of_two_is_the_row_twice():
    codes, scores = np.array([[0, 0], [0, 1]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    weighed = AgreementTable.of_rows(codes, scores, np.array([2.0, 1.0]))
    twice = AgreementTable.of_rows(codes[[0, 0, 1]], scores[[0, 0, 1]], np.ones(3))
    assert_allclose(weighed.expected(codes), twice.expected(codes))


def test_a_row_counts_for_the_experts_that_are_known_in_it():
    codes = np.array([[0, 0, 0], [0, 0, UNKNOWN], [0, 0, UNKNOWN]])
    scores = np.array([[1.0, 1, 0], [0, 0, np.nan], [0, 0, np.nan]])
    table = AgreementTable.of_rows(codes, scores, np.ones(3))
    assert_allclose(table.accuracy, [1 / 3, 1 / 3, 0])
    pair = table.of_experts([0, 1])
    assert_array_equal(pair.counts, [3])
    assert_array_equal(table.of_experts([0, 1, 2]).counts, [1])
    whole = AgreementTable.of_rows(codes[:, :2], scores[:, :2], np.ones(3))
    assert_allclose(pair.expected(codes[:, :2]), whole.expected(codes[:, :2]))


def test_the_best_expert_speaks_for_those_who_say_the_same():
    codes = np.array([[0, 0, 1]] * 3)
    scores = np.array([[0.0, 1.0, 0.0]] * 3)
    lead, score = AgreementTable.of_rows(codes, scores, np.ones(3)).leading(codes)
    assert lead.tolist() == [1, 1, 1]
    assert score[0] == 1.0


def test_the_last_expert_is_given_unless_it_has_no_answer():
    cascade = policy([[0, 1], [2]], threshold=1.0)
    said = {0: "1", 1: "2", 2: "3"}
    assert cascade.next(None, said).expert == 2
    for none in (None, "no answer", ""):
        found = cascade.next(None, said | {2: none})
        assert found == cascade.leading(None, {0: "1", 1: "2"})
    nothing = cascade.next(None, {0: None, 1: None, 2: None})
    assert nothing.probability == 0.0


def test_failed_experts_disagree_and_no_answers_lead_to_nothing():
    cascade = policy([[0, 1], [2]], threshold=0.01)
    assert cascade.next(None, {}) == Ask((0, 1))
    assert cascade.next(None, {0: "1"}) == Ask((1,))
    assert cascade.next(None, {0: None, 1: None}) == Ask((2,))
    assert cascade.leading(None, {}) == Accept(2, 0.0)
    found = cascade.next(None, {0: "1", 1: None})
    assert isinstance(found, Accept)
    assert found.expert == 0


def test_a_run_adds_up_prices_and_takes_the_seconds_of_the_slowest():
    cascade = policy([[0, 1], [2]], threshold=0.5)
    run = cascade.run(np.zeros((80, 2)), Answers.of(rows(80), "number"))
    prices = np.array([1.0, 2.0, 10.0, 100.0])
    paid = run.total_prices(np.tile(prices, (80, 1)))
    assert_array_equal(paid, np.where(run.accepted_step == 0, 3.0, 13.0))
    seconds = run.seconds(np.tile([1.0, 4.0, 2.0, 9.0], (80, 1)))
    assert_array_equal(seconds, np.where(run.accepted_step == 0, 4.0, 6.0))
    assert set(run.accepted_step) == {0, 1}


def test_without_an_expert_the_others_keep_their_estimates():
    cascade = policy([[0, 1], [2]], 0.4)
    fewer = cascade.without(1)
    assert fewer.steps == [[0], [1]]
    assert fewer.n_experts == 3
    assert_allclose(fewer.table.accuracy, cascade.table.accuracy[[0, 2]])
    alone = cascade.without(0).without(0).without(0)
    assert isinstance(alone, ConstantPolicy)


def test_more_patterns_than_are_remembered_are_decided_alike(monkeypatch):
    monkeypatch.setattr("mild.policies.cascade._MOST_SEEN", 3)
    cascade = policy([[0, 1, 2], [3]])
    contents = [list(row) for row in itertools.product("12", repeat=4)] * 2
    run = cascade.run(np.zeros((len(contents), 2)), Answers.of(contents, "number"))
    assert [by_next(cascade, None, row)[0].expert for row in contents] == run.expert.tolist()


def test_many_patterns_take_little_memory():
    codes = np.random.default_rng(0).integers(8, size=(4000, 10))
    table = AgreementTable.of_rows(codes, np.ones(codes.shape), np.ones(4000))
    assert len(table.groups) > 2000
    tracemalloc.start()
    table.expected(codes)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_an_expert_that_has_no_answer_disagrees_unless_past_rows_say_more():
    """Two experts of 0.9 that are right when they agree, and else half of the time."""
    codes = np.array([[0, 0]] * 80 + [[0, 1]] * 20)
    scores = np.array([[1.0, 1.0]] * 80 + [[1.0, 0.0], [0.0, 1.0]] * 10)
    silent, apart = np.array([[0, -1]]), np.array([[0, 1]])
    table = AgreementTable.of_rows(codes, scores, np.ones(100))
    assert_allclose(table.leading(silent)[1], table.leading(apart)[1])
    assert table.leading(silent)[1] < 0.6
    # Rows in which an expert had no answer, and the other was right.
    more = np.concatenate([codes, [[0, -1]] * 50]), np.concatenate([scores, [[1.0, 0.0]] * 50])
    assert AgreementTable.of_rows(*more, np.ones(150)).leading(silent)[1] > 0.9


def test_a_cascade_that_asks_some_experts_decides_as_that_of_these_experts():
    whole = policy([[0, 1, 2], [3]], 0.55)
    kept = [0, 2, 3]
    asking = whole.asking(kept)
    smaller = whole.with_experts(np.array(kept))
    assert asking.n_experts == 4
    contents = rows(120, seed=5)
    X = np.random.default_rng(1).normal(size=(120, 2))
    run = asking.run(X, Answers.of(contents, "number"))
    other = smaller.run(X, Answers.of([[row[k] for k in kept] for row in contents], "number"))
    assert_array_equal(run.expert, np.array(kept)[other.expert])
    assert_allclose(run.probability, other.probability, atol=1e-12)
    assert not run.asked[:, 1].any()


def test_asking_gives_the_cascade_itself_or_none():
    whole = policy([[0, 1], [3]])
    assert whole.asking({0, 1, 2, 3}) is whole
    assert whole.asking([2]) is None

import numpy as np
import pytest

from mild.decisions import decide
from mild.exceptions import InvalidInputError
from mild.reproduce.outcomes import decisions, outcomes, reference


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=(200, 3)).astype(np.float32)


def test_outcomes_agree_with_a_count_by_hand(scores, costs):
    found = outcomes(scores, costs, [2.0, 1.0, 0.5])
    for rule in ("argmax", "stationary"):
        chosen = decide(scores, [2.0, 1.0, 0.5], rule=rule)
        loss = float(np.mean([costs[i, k] for i, k in enumerate(chosen)]))
        assert found[rule]["loss"] == pytest.approx(loss)
        assert found[rule]["shares"] == pytest.approx([np.mean(chosen == k) for k in range(3)])
        best = np.argmin(costs, axis=1)
        recall = [np.mean(chosen[best == k] == k) for k in range(3)]
        assert found[rule]["recall"] == pytest.approx(recall)


def test_unequal_margins_have_two_decisions_that_differ(scores, costs):
    found = outcomes(scores, costs, [2.0, 1.0, 0.5])
    assert found["argmax"]["shares"] != found["stationary"]["shares"]


@pytest.mark.parametrize("margins", [[1.0, 1.0, 1.0], [0.3, 0.3, 0.3], None])
def test_equal_margins_have_argmax_alone_and_stationary_would_agree(scores, costs, margins):
    found = outcomes(scores, costs, margins)
    assert list(found) == ["argmax"]
    stationary = decide(scores, margins, rule="stationary")
    assert found["argmax"]["loss"] == pytest.approx(costs[np.arange(200), stationary].mean())


def test_decisions_name_what_outcomes_hold():
    assert decisions((1.0, 1.0 + 1e-9)) == ("argmax", "stationary")


def test_an_expert_that_is_never_cheapest_has_no_recall(scores, costs):
    dear = costs.copy()
    dear[:, 2] = 5
    recall = outcomes(scores, dear, None)["argmax"]["recall"]
    assert recall[2] is None
    assert None not in recall[:2]


def test_scores_tie_to_the_highest_index():
    costs = np.array([[0, 1]], np.float32)
    assert outcomes(np.zeros((1, 2), np.float32), costs, None)["argmax"]["shares"] == [0.0, 1.0]


def test_scores_that_are_not_finite_are_refused(scores, costs):
    scores[5, 1] = np.nan
    with pytest.raises(InvalidInputError, match="training diverged"):
        outcomes(scores, costs, None)


def test_the_oracle_ties_to_the_lowest_index():
    costs = np.array([[0, 0, 1], [1, 0, 0], [1, 1, 0.5], [0, 1, 1]], np.float32)
    assert reference(costs) == {
        "oracle": 0.125,
        "oracle_shares": [0.5, 0.25, 0.25],
        "constant": 0.5,
        "constant_expert": 0,
    }

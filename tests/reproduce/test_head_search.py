import numpy as np
import pytest

from mild.reproduce import head_search
from mild.reproduce.head_search import margin_candidates, search_heads, standardised


@pytest.fixture
def routed():
    """Features that say which of three experts is right, with noise."""
    rng = np.random.default_rng(0)
    owner = rng.choice(3, size=300, p=[0.7, 0.2, 0.1])
    features = (np.eye(3)[owner] + 0.4 * rng.normal(size=(300, 3))).astype(np.float32)
    costs = (rng.random((300, 3)) < 0.9).astype(np.float32)
    costs[np.arange(300), owner] = 0
    return features, costs


def test_the_search_routes_better_than_a_constant(routed):
    features, costs = routed
    found = search_heads(features, costs, 1.0, ("others",))
    assert found["loss"] < costs.mean(axis=0).min()
    assert sum(found["margins"]) == pytest.approx(3)
    assert found["rewards"] == "others"


def test_what_is_taken_is_within_a_standard_error_of_the_best_and_no_farther_from_uniform(routed):
    found = search_heads(*routed, 1.0, ("others",))
    assert found["loss"] - found["best"]["loss"] <= found["standard_error"] + 1e-6
    assert np.ptp(found["margins"]) <= np.ptp(found["best"]["margins"]) + 1e-6


def test_candidates_come_best_first_and_hold_uniform_margins(routed):
    found = search_heads(*routed, 1.0, ("others",))
    losses = [entry["loss"] for entry in found["candidates"]]
    assert losses == sorted(losses)
    assert found["best"] == found["candidates"][0]
    assert found["uniform"]["margins"] == [1.0, 1.0, 1.0]
    assert found["uniform"] in found["candidates"]


def test_rewards_are_chosen_among_those_that_are_allowed(routed):
    found = search_heads(*routed, 1.0, ("contrast", "complement"))
    assert {entry["rewards"] for entry in found["candidates"]} == {"contrast", "complement"}
    assert found["rewards"] in ("contrast", "complement")


def test_the_search_is_the_same_each_time_however_many_jobs(routed, monkeypatch):
    first = search_heads(*routed, 1.0, ("others",))
    monkeypatch.setattr(head_search, "JOBS", 1)
    assert search_heads(*routed, 1.0, ("others",)) == first


def test_nothing_to_learn_leaves_uniform_margins():
    features = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    found = search_heads(features, np.ones((60, 3), np.float32), 1.0, ("others",))
    assert found["margins"] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("n_experts", [2, 3, 4, 5, 8])
def test_every_expert_is_moved_and_the_mean_stays_one(n_experts):
    rng = np.random.default_rng(0)
    costs = (rng.random((100, n_experts)) < 0.5).astype(np.float32)
    vectors = np.array(margin_candidates(costs, "others", 1.0))
    np.testing.assert_allclose(vectors.mean(axis=1), 1)
    assert (vectors[0] == 1).all()
    assert len(np.unique(vectors.round(9), axis=0)) == len(vectors) <= 30
    ratios = vectors / vectors.mean(axis=1, keepdims=True)
    assert (np.ptp(ratios, axis=0) > 0.5).all()


def test_the_theory_of_complement_rewards_knows_the_largest_cost():
    costs = np.array([[0.2, 0.5], [0.2, 1.5], [0.2, 0.5]], np.float32)
    # Rewards 2 - cost: shares 1.8 : 1.5, 1.8 : 0.5 and 1.8 : 1.5.
    mass = np.array([2 * 1.8 / 3.3 + 1.8 / 2.3, 2 * 1.5 / 3.3 + 0.5 / 2.3])
    expected = 2 * np.cbrt(mass) / np.cbrt(mass).sum()
    vectors = np.array(margin_candidates(costs, "complement", 2.0))
    assert np.isclose(vectors, expected, rtol=1e-6).all(axis=1).any()
    others = np.array(margin_candidates(costs, "complement", 1.5))
    assert not np.isclose(others, expected, rtol=1e-3).all(axis=1).any()


def test_an_interrupt_does_not_pass_for_a_finished_search(routed, monkeypatch):
    class Stopped:
        interrupted = True

        def __init__(self, *args):
            pass

        def run(self, candidates):
            return np.full((300, len(candidates)), np.nan)

    monkeypatch.setattr(head_search, "Search", Stopped)
    with pytest.raises(KeyboardInterrupt):
        search_heads(*routed, 1.0, ("others",))


def test_features_that_never_change_do_no_harm():
    features = np.array([[1, 2, 1e6], [3, 2, 1e6 + 1]], np.float32)
    scaled = standardised(features)
    np.testing.assert_array_equal(scaled[:, 1], 0)
    np.testing.assert_allclose(scaled.std(axis=0), [1, 0, 1], rtol=1e-5)

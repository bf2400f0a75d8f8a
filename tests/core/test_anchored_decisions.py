import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mild.core.decisions as rules
import oracles
from mild.core.decisions import (
    anchored_distribution,
    decide,
    deciding_anchors,
    stationary_choice,
    stationary_distribution,
    stationary_experts_first,
)
from mild.core.margins import find_anchors, margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate


def margins_of(p, shared, seed=0):
    rng = np.random.default_rng(seed)
    margins = np.exp(rng.uniform(0, np.log(6), p)) * 0.4
    if shared:
        margins[: p // 4] = rng.choice(margins[p // 4 :], p // 4)
    return margins


def decoded(scores, margins, tau, dtype=np.float64):
    groups = margin_groups(margins)
    shifted = (scores - scores.max(axis=0)).astype(dtype)
    return anchored_distribution(shifted, margins, groups, find_anchors(groups, dtype), tau)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("tau", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0, 300.0])
def test_agrees_with_elimination_of_the_whole_chain(tau, spread, shared):
    margins = margins_of(80, shared)
    scores = np.random.default_rng(1).normal(size=(80, 25)) * spread
    exact = stationary_experts_first(
        scores, margins, margin_groups(margins), Surrogate("comp_sum", tau)
    )
    assert_allclose(decoded(scores, margins, tau), exact, rtol=0, atol=1e-11)
    single = decoded(scores.astype(np.float32), margins, tau, np.float32)
    assert_allclose(single, exact, rtol=0, atol=2e-6 * max(1.0, spread))


def test_agrees_with_sixty_digits():
    margins = margins_of(40, False)
    scores = np.random.default_rng(2).normal(size=40)
    expected = oracles.stationary(scores, margins)
    assert_allclose(decoded(scores[:, None], margins, 1.0)[:, 0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.0])
@pytest.mark.parametrize("size", [1e3, 1e20])
def test_scores_beyond_all_powers_leave_the_best_in_proportion_to_their_margins(size, tau):
    margins = margins_of(50, True)
    scores = np.random.default_rng(3).choice([-1.0, 0.0, 1.0], (50, 30)) * size
    best = scores == scores.max(axis=0)
    expected = np.where(best, margins[:, None] * best.sum(axis=0) ** (tau - 1.0), 0)
    expected /= expected.sum(axis=0)
    assert_allclose(decoded(scores, margins, tau), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("surrogate", ["logistic", 0.5, "exponential", 1.5, "pairwise_logistic"])
@pytest.mark.parametrize("spread", [0.3, 3.0, 100.0])
def test_decisions_are_the_largest_entries_of_the_distribution(surrogate, spread, dtype):
    p = 64 if surrogate != "pairwise_logistic" else 30
    margins = margins_of(p, False)
    scores = (np.random.default_rng(4).normal(size=(60, p)) * spread).astype(dtype)
    exact = stationary_distribution(scores.astype(np.float64), margins, surrogate)
    top = np.sort(exact, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-5
    assert clear.sum() > 40
    assert_array_equal(decide(scores, margins, surrogate=surrogate)[clear], exact.argmax(1)[clear])


def test_equal_experts_tie_to_the_highest_index():
    margins = margins_of(64, False)
    margins[[5, 40]] = margins[20]
    scores = np.random.default_rng(5).normal(size=(40, 64))
    scores[:, [5, 20, 40]] = scores.max(axis=1, keepdims=True) + 1
    groups = margin_groups(margins)
    assert deciding_anchors(groups, parse_surrogate("logistic"), np.float64) is not None
    assert set(decide(scores, margins)) == {40}


def test_anchors_decide_only_where_they_are_right_and_fast():
    logistic = parse_surrogate("logistic")
    many = margin_groups(np.linspace(0.5, 2, 100))
    assert deciding_anchors(many, logistic, np.float32) is not None
    assert deciding_anchors(many, parse_surrogate("exponential"), np.float32) is not None
    for other in (1.5, "pairwise_logistic", "hinge"):
        assert deciding_anchors(many, parse_surrogate(other), np.float32) is None
    assert deciding_anchors(margin_groups(np.linspace(0.5, 2, 8)), logistic, np.float32) is None


@pytest.mark.parametrize("anchored", [False, True])
def test_columns_are_decided_in_parts_of_bounded_memory(anchored, monkeypatch):
    p = 40
    margins = np.linspace(0.5, 2, p) if anchored else np.resize([0.5, 1.0, 2.0], p)
    groups = margin_groups(margins)
    scores = np.random.default_rng(6).normal(size=(p, 300))
    logistic = parse_surrogate("logistic")
    whole = stationary_choice(scores, margins, groups, logistic)
    name = "anchored_distribution" if anchored else "stationary_experts_first"
    made = getattr(rules, name)
    sizes = []

    def record(part, *rest):
        sizes.append(part.shape[1])
        return made(part, *rest)

    monkeypatch.setattr(rules, name, record)
    monkeypatch.setattr(rules, "MAX_RATES", 20_000)
    assert_array_equal(stationary_choice(scores, margins, groups, logistic), whole)
    states = find_anchors(groups, np.float64).inverse.size if anchored else 3
    assert max(sizes) * states * p <= 20_000
    assert sum(sizes) == 300

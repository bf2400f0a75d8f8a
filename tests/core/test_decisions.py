"""Decisions: argmax with the paper's ties, and stationary decoding against exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mild.core.decisions as rules
import oracles
from mild.core.decisions import (
    argmax_last,
    decide,
    stationary_distribution,
)
from mild.core.losses import mild_loss
from mild.core.margins import theory_margins
from mild.core.surrogates import Surrogate
from mild.errors import InvalidInputError, UnsupportedError

PROPERTY = settings(derandomize=True, deadline=None, max_examples=60, database=None)
SMOOTH = ["logistic", 0.5, "exponential", "pairwise_logistic", "pairwise_exponential"]

every_surrogate = pytest.mark.parametrize("surrogate", SMOOTH)


def draw_margins(rng: np.random.Generator, p: int, shared: bool) -> np.ndarray:
    """Margins that differ, in at least two groups of experts if ``shared``."""
    if not shared:
        return rng.uniform(0.3, 2, p)
    margins = rng.choice([0.4, 1.0, 1.8], p)
    margins[:2] = [0.4, 1.8][:p]
    return margins


def direct_check(surrogate: object, p: int, shared: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.ones(p))
    margins = draw_margins(rng, p, shared)
    scores = oracles.minimiser(target, margins, surrogate)
    got = stationary_distribution([scores], margins, surrogate)[0]
    np.testing.assert_allclose(got, target, atol=1e-8)
    assert decide([scores], margins, surrogate=surrogate)[0] == target.argmax()


@every_surrogate
@pytest.mark.parametrize("p", [2, 3, 5, 8])
@pytest.mark.parametrize("shared", [False, True])
def test_decoding_the_exact_minimiser_recovers_the_reward_distribution(
    surrogate: object, p: int, shared: bool
) -> None:
    for seed in range(3 if p < 8 else 1):
        direct_check(surrogate, p, shared, seed)


@pytest.mark.slow
@every_surrogate
@pytest.mark.parametrize("shared", [False, True])
def test_decoding_the_exact_minimiser_recovers_it_for_twenty_experts(
    surrogate: object, shared: bool
) -> None:
    direct_check(surrogate, 20, shared, 0)


@every_surrogate
@pytest.mark.parametrize("p", [2, 3, 7, 20])
@pytest.mark.parametrize("shared", [False, True])
def test_scores_are_stationary_for_the_distribution_decoded_from_them(
    surrogate: object, p: int, shared: bool
) -> None:
    rng = np.random.default_rng(p)
    margins = draw_margins(rng, p, shared)
    scores = rng.normal(size=(50, p))
    decoded = stationary_distribution(scores, margins, surrogate)
    np.testing.assert_allclose(decoded.sum(axis=1), 1)
    gradient = mild_loss(scores, decoded, margins, surrogate, return_gradient=True)[1]
    size = np.array([np.abs(oracles.pair_rates(f, margins, surrogate)).max() for f in scores])
    assert (np.abs(gradient).max(axis=1) <= 1e-10 * np.maximum(size, 1)).all()


@pytest.mark.parametrize("surrogate", [*SMOOTH, 1.7])
@pytest.mark.parametrize("shared", [False, True])
def test_decoding_matches_sixty_digit_elimination(surrogate: object, shared: bool) -> None:
    rng = np.random.default_rng(1)
    for p in (2, 3, 4, 9):
        margins = draw_margins(rng, p, shared)
        for spread in (1.0, 10.0, 40.0):
            scores = rng.normal(size=p) * spread
            got = stationary_distribution([scores], margins, surrogate)[0]
            expected = oracles.stationary(scores, margins, surrogate)
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
            if surrogate in (1.7, "pairwise_logistic", "pairwise_exponential"):
                # Elimination keeps the relative accuracy of every entry.
                np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-300)


@every_surrogate
def test_shared_margins_are_the_limit_of_nearly_shared_ones(surrogate: object) -> None:
    rng = np.random.default_rng(2)
    margins = np.array([0.5, 1.0, 0.5, 1.0, 2.0])
    scores = rng.normal(size=(20, 5))
    apart = margins * (1 + 1e-9 * np.arange(5))
    assert len(set(apart)) == 5
    np.testing.assert_allclose(
        stationary_distribution(scores, margins, surrogate),
        stationary_distribution(scores, apart, surrogate),
        atol=1e-7,
    )


@every_surrogate
def test_equal_margins_reduce_to_softmax(surrogate: object) -> None:
    scores = np.random.default_rng(3).normal(size=(30, 4))
    rho = 0.6
    power = {"logistic": 1, 0.5: 1.5, "exponential": 2}.get(surrogate)
    if power is None:
        power = 1 if surrogate == "pairwise_logistic" else 2
    expected = np.exp(power * scores / rho)
    expected /= expected.sum(axis=1, keepdims=True)
    got = stationary_distribution(scores, [rho] * 4, surrogate)
    np.testing.assert_allclose(got, expected, atol=1e-13)
    np.testing.assert_array_equal(
        decide(scores, [rho] * 4, surrogate=surrogate), argmax_last(scores)
    )


def test_two_experts_have_the_closed_form_of_the_general_chain() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        f, rho = rng.normal(size=2) * 2, rng.uniform(0.2, 2, 2)
        gap = f[0] - f[1]
        ratio = rho[0] / rho[1] * (1 + np.exp(gap / rho[0])) / (1 + np.exp(-gap / rho[1]))
        got = stationary_distribution([f], rho)[0]
        assert got[0] / got[1] == pytest.approx(ratio, rel=1e-12)
        np.testing.assert_allclose(got, oracles.stationary(f, rho), rtol=1e-12)
        # A third expert out of reach leaves the general chain with the same two.
        three = stationary_distribution([[*f, -60.0]], [*rho, 1.0])[0]
        np.testing.assert_allclose(three, [*got, 0.0], atol=1e-12)


def test_the_counterexample_to_argmax() -> None:
    target, margins = [0.55, 0.45], [2 / 3, 1 / 3]
    scores = oracles.minimiser(target, margins)
    assert scores[0] - scores[1] == pytest.approx(-0.2036, abs=5e-5)
    assert decide([scores], margins, decision="argmax")[0] == 1
    assert decide([scores], margins)[0] == 0
    # Surrogate regret 0, target regret 0.10: no bound sqrt(2 * surrogate regret) can hold.
    others = np.linspace(-3, 3, 301)
    rivals = [oracles.mild_loss([f, 0.0], target, margins) for f in others]
    assert oracles.mild_loss(scores, target, margins) <= min(rivals)
    assert target[0] - target[1] == pytest.approx(0.10)


def test_argmax_of_the_exact_minimiser_errs_where_stationary_decoding_does_not() -> None:
    rng = np.random.default_rng(0)
    argmax_errors = stationary_errors = 0
    for _ in range(200):
        p = int(rng.integers(2, 6))
        target = rng.dirichlet(np.ones(p))
        margins = theory_margins(rng.dirichlet(np.ones(p)))
        scores = [oracles.minimiser(target, margins)]
        best = target.argmax()
        argmax_errors += int(decide(scores, margins, "argmax")[0] != best)
        stationary_errors += int(decide(scores, margins)[0] != best)
    assert argmax_errors > 20
    assert stationary_errors == 0


def test_margins_from_the_same_row_keep_argmax_right() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        target = rng.dirichlet(np.ones(int(rng.integers(2, 6))))
        margins = theory_margins(target)
        scores = oracles.minimiser(target, margins)
        assert decide([scores], margins, "argmax")[0] == target.argmax()


@every_surrogate
@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_of_experts_far_apart_only_the_best_are_left(surrogate: object, p: int) -> None:
    rng = np.random.default_rng(p)
    for shared in (False, True):
        margins = draw_margins(rng, p, shared)
        scores = rng.choice([-40.0, 0.0, 40.0], (60, p))
        got = stationary_distribution(scores, margins, surrogate)
        # Among the tied best experts p is proportional to rho.
        best = scores == scores.max(axis=1, keepdims=True)
        expected = np.where(best, margins, 0)
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(got, expected, atol=1e-8)


@every_surrogate
def test_near_ties_far_above_the_rest_match_sixty_digits(surrogate: object) -> None:
    rng = np.random.default_rng(6)
    for _ in range(10):
        margins = draw_margins(rng, 4, False)
        scores = rng.choice([-40.0, 40.0], 4) + rng.normal(size=4)
        got = stationary_distribution([scores], margins, surrogate)[0]
        expected = oracles.stationary(scores, margins, surrogate)
        np.testing.assert_allclose(got, expected, atol=1e-13)


@pytest.mark.parametrize("tau", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("shared", [False, True])
def test_elimination_and_the_linear_system_agree(tau: float, shared: bool) -> None:
    rng = np.random.default_rng(7)
    margins = draw_margins(rng, 6, shared)
    scores = rng.normal(size=(40, 6)) * 20
    scores -= scores.max(axis=1, keepdims=True)
    solved = rules._solve(scores, margins, tau)
    eliminated = rules._eliminate(scores.T, margins, Surrogate("comp_sum", tau)).T
    np.testing.assert_allclose(solved, eliminated, rtol=0, atol=1e-12)


@every_surrogate
def test_a_difference_in_the_last_digits_is_a_tie(surrogate: object) -> None:
    scores = np.array([[-3.0, 1.0, 1.0], [-3.0, 1.0 + 1e-15, 1.0]])
    assert decide(scores, [2.0, 1.0, 1.0], surrogate=surrogate).tolist() == [2, 2]


def test_rows_do_not_influence_each_other() -> None:
    rng = np.random.default_rng(8)
    margins = rng.uniform(0.3, 2, 4)
    scores = rng.normal(size=(30, 4))
    scores[::3] *= 30
    together = stationary_distribution(scores, margins)
    alone = np.vstack([stationary_distribution(row[None], margins) for row in scores])
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-15)


def test_float32_scores_are_decoded_in_float64() -> None:
    rng = np.random.default_rng(9)
    margins = rng.uniform(0.3, 2, 5)
    scores = rng.normal(size=(100, 5)).astype(np.float32) * 3
    got = stationary_distribution(scores, margins)
    np.testing.assert_array_equal(got, stationary_distribution(scores.astype(np.float64), margins))


@pytest.mark.parametrize("surrogate", ["logistic", "pairwise_logistic"])
def test_blocks_of_rows_bound_the_memory_of_their_chains(
    surrogate: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(10)
    margins, scores = rng.uniform(0.3, 2, 20), rng.normal(size=(60, 20))
    whole = stationary_distribution(scores, margins, surrogate)
    name = "_solve" if surrogate == "logistic" else "_eliminate"
    made = getattr(rules, name)
    sizes = []

    def record(f: np.ndarray, *rest: object) -> np.ndarray:
        sizes.append(f.size // 20)
        return made(f, *rest)

    monkeypatch.setattr(rules, name, record)
    monkeypatch.setattr(rules, "MAX_RATES", 25 * 20 * 20)
    np.testing.assert_allclose(stationary_distribution(scores, margins, surrogate), whole)
    assert sizes == [25, 25, 10]


rows = st.integers(2, 5).flatmap(
    lambda p: st.tuples(
        st.lists(st.integers(-40, 40).map(lambda v: v / 8), min_size=p, max_size=p),
        st.lists(st.floats(0.2, 3), min_size=p, max_size=p),
        st.permutations(range(p)),
    )
)


@PROPERTY
@given(rows, st.sampled_from(SMOOTH))
def test_permuting_experts_permutes_the_distribution(row: tuple, surrogate: object) -> None:
    scores, margins, order = np.array(row[0]), np.array(row[1]), list(row[2])
    got = stationary_distribution([scores[order]], margins[order], surrogate)
    np.testing.assert_allclose(
        got, stationary_distribution([scores], margins, surrogate)[:, order], rtol=1e-9, atol=1e-13
    )


@PROPERTY
@given(rows, st.integers(-1000, 1000), st.sampled_from(SMOOTH))
def test_adding_a_constant_to_a_row_of_scores_changes_nothing(
    row: tuple, constant: int, surrogate: object
) -> None:
    scores, margins = np.array([row[0]]), np.array(row[1])
    np.testing.assert_allclose(
        stationary_distribution(scores + constant, margins, surrogate),
        stationary_distribution(scores, margins, surrogate),
        rtol=1e-12,
        atol=1e-15,
    )


@PROPERTY
@given(rows, st.sampled_from([0.25, 4.0]), st.sampled_from(SMOOTH))
def test_the_scale_of_scores_and_margins_together_is_redundant(
    row: tuple, factor: float, surrogate: object
) -> None:
    scores, margins = np.array([row[0]]), np.array(row[1])
    np.testing.assert_allclose(
        stationary_distribution(factor * scores, factor * margins, surrogate),
        stationary_distribution(scores, margins, surrogate),
        rtol=1e-9,
        atol=1e-13,
    )


def test_ties_go_to_the_highest_index() -> None:
    tied = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 3.0, 1.0]])
    np.testing.assert_array_equal(argmax_last(tied), [1, 2, 1])
    np.testing.assert_array_equal(decide(tied), [1, 2, 1])
    np.testing.assert_array_equal(decide(tied, decision="argmax"), [1, 2, 1])
    random = np.random.default_rng(12).integers(0, 3, (300, 4)).astype(float)
    expected = [oracles.argmax_highest_index(row) for row in random]
    np.testing.assert_array_equal(decide(random, decision="argmax"), expected)


def test_one_expert_is_always_chosen() -> None:
    np.testing.assert_array_equal(stationary_distribution([[3.0], [-10.0]]), [[1.0], [1.0]])
    np.testing.assert_array_equal(decide([[3.0], [-10.0]], [0.5]), [0, 0])


def test_no_rows_give_no_decisions() -> None:
    assert stationary_distribution(np.zeros((0, 3)), [1.0, 2.0, 3.0]).shape == (0, 3)
    assert decide(np.zeros((0, 3)), [1.0, 2.0, 3.0]).shape == (0,)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"scores": [0.0, 1.0]}, "scores"),
        ({"margins": [1.0]}, "margins"),
        ({"decision": "max"}, "decision"),
    ],
)
def test_bad_input_is_refused(options: dict, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        decide(**{"scores": [[0.0, 1.0]], **options})
    assert caught.value.code == f"invalid_{code}"


@pytest.mark.parametrize("surrogate", ["hinge", 2.0, 3.0])
def test_some_surrogates_have_no_stationary_decoding_but_argmax(surrogate: object) -> None:
    for use in (stationary_distribution, decide):
        with pytest.raises(
            UnsupportedError, match=r"not the hinge, nor tau >= 2.*Use decision='argmax'"
        ):
            use([[0.0, 1.0]], surrogate=surrogate)
    assert decide([[0.0, 1.0]], decision="argmax", surrogate=surrogate)[0] == 1

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import oracles
from mild.core.decisions import decide, stationary_distribution
from mild.policies import Decoder

SURROGATES = [*oracles.FORMS, 5.0]
SMOOTH = [name for name in SURROGATES if name != "hinge"]


def clear(distribution):
    """Rows in which no rounding can change which expert is first."""
    if distribution.shape[1] == 1:
        return np.ones(len(distribution), bool)
    top = np.sort(distribution, axis=1)
    return top[:, -1] - top[:, -2] > 1e-5


def draws(n, p, size, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p)) * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0.1, 3.0, 50.0])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_one_input_is_decided_as_in_a_batch(surrogate, size, dtype):
    for p, margins in [
        (1, [1.0]),
        (2, [0.5, 1.5]),
        (3, [1.0, 1.0, 1.0]),
        (5, [0.1, 0.7, 0.7, 1.5, 2.0]),
        (8, np.linspace(0.2, 1.8, 8)),
    ]:
        scores = draws(40, p, size).astype(dtype)
        for rule in ("stationary", "argmax"):
            decoder = Decoder(np.asarray(margins, dtype=float), rule, surrogate)
            batch = decoder.choose(scores)
            alone = np.array([decoder.choose_one(row) for row in scores])
            by_argmax = decoder.by_argmax
            sure = np.ones(40, bool) if by_argmax else clear(decoder.distribution(scores))
            assert_array_equal(alone[sure], batch[sure])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 6).flatmap(
        lambda p: st.tuples(
            st.lists(st.floats(-1e3, 1e3), min_size=p, max_size=p),
            st.lists(st.floats(0.01, 100), min_size=p, max_size=p),
        )
    ),
    st.sampled_from(SMOOTH),
)
def test_one_input_is_decided_as_in_a_batch_for_any_scores(drawn, surrogate):
    scores, margins = np.array(drawn[0]), np.array(drawn[1])
    decoder = Decoder(margins, "stationary", surrogate)
    distribution = decoder.distribution(scores[None])
    assert np.isfinite(distribution).all()
    if decoder.by_argmax or clear(distribution)[0]:
        assert decoder.choose_one(scores) == decoder.choose(scores[None])[0]


@pytest.mark.parametrize("surrogate", ["logistic", "exponential", 0.5, 1.9])
def test_gaps_of_three_hundred_margins_do_not_overflow(surrogate):
    rng = np.random.default_rng(3)
    for p in (2, 3, 6):
        for _ in range(200):
            margins = np.exp(rng.uniform(-4, 4, p))
            decoder = Decoder(margins, "stationary", surrogate)
            scores = rng.choice([0.0, 1e-3, 0.5, 1.0], p) * -300 * margins.min()
            weights = decoder.distribution(scores[None])
            if clear(weights)[0]:
                assert decoder.choose_one(scores) == weights.argmax()


@pytest.mark.parametrize("surrogate", ["logistic", "exponential", 0.5, "pairwise_logistic"])
def test_decides_for_the_largest_entry_of_the_exact_distribution(surrogate):
    margins = np.array([0.3, 0.9, 0.9, 2.0])
    scores = draws(60, 4, 4.0)
    exact = np.array([oracles.stationary(row, margins, surrogate) for row in scores])
    decoder = Decoder(margins, "stationary", surrogate)
    assert_allclose(decoder.distribution(scores), exact, rtol=1e-9, atol=1e-12)
    assert_array_equal(decoder.choose(scores), exact.argmax(axis=1))


def test_agrees_with_the_public_functions():
    margins = np.array([0.5, 1.0, 1.5])
    scores = draws(100, 3, 2.0)
    decoder = Decoder(margins, "stationary", "logistic")
    assert_array_equal(decoder.choose(scores), decide(scores, margins))
    assert_allclose(decoder.distribution(scores), stationary_distribution(scores, margins))
    by_argmax = Decoder(margins, "argmax", "logistic")
    assert_array_equal(by_argmax.choose(scores), decide(scores, margins, decision="argmax"))
    assert_allclose(by_argmax.distribution(scores), stationary_distribution(scores, margins))


@pytest.mark.parametrize("rule", ["stationary", "argmax"])
@pytest.mark.parametrize("margins", [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
def test_ties_go_to_the_highest_index(rule, margins):
    decoder = Decoder(np.array(margins), rule, "logistic")
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 1.0, 2.0]])
    assert_array_equal(decoder.choose(scores), [1, 2, 2])
    assert [decoder.choose_one(row) for row in scores] == [1, 2, 2]


def test_the_hinge_puts_all_mass_on_the_largest_score():
    decoder = Decoder(np.array([0.5, 1.0, 1.0]), "stationary", "hinge")
    scores = np.array([[0.1, 0.2, 0.0], [1.0, 1.0, 0.0]])
    assert_array_equal(decoder.distribution(scores), [[0, 1, 0], [0, 1, 0]])
    assert_array_equal(decoder.choose(scores), [1, 1])


def test_without_an_expert_the_others_keep_their_margins():
    decoder = Decoder(np.array([0.5, 1.0, 2.0]), "argmax", 0.5)
    decoder = decoder.with_experts(np.array([0, 2]))
    assert_array_equal(decoder.margins, [0.5, 2.0])
    assert decoder.rule == "argmax"
    assert decoder.surrogate.tau == 0.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0.3, 3.0])
@pytest.mark.parametrize("surrogate", ["logistic", 0.5, 1.5])
@pytest.mark.parametrize(("p", "distinct"), [(8, 3), (16, 16), (30, 5), (50, 50), (60, 2)])
def test_one_input_among_many_experts_is_decided_as_in_a_batch(p, distinct, surrogate, size, dtype):
    margins = np.random.default_rng(1).permutation(np.resize(np.geomspace(0.4, 2, distinct), p))
    scores = draws(40, p, size).astype(dtype)
    exact = stationary_distribution(scores.astype(np.float64), margins, surrogate)
    decoder = Decoder(margins, "stationary", surrogate)
    sure = clear(exact)
    assert sure.sum() > 20
    assert_array_equal(decoder.choose(scores)[sure], exact.argmax(axis=1)[sure])
    alone = np.array([decoder.choose_one(row) for row in scores])
    assert_array_equal(alone[sure], exact.argmax(axis=1)[sure])


def test_ties_among_experts_of_one_margin_go_to_the_highest_index():
    decoder = Decoder(np.array([0.5, 1.0, 1.0, 1.0, 2.0]), "stationary", "logistic")
    scores = np.array([0.0, 3.0, 3.0, 3.0, 0.0])
    assert decoder.choose_one(scores) == decoder.choose(scores[None])[0] == 3


def test_many_experts_with_ties_agree_with_few():
    scores = np.zeros((3, 100))
    scores[1, 40] = 1.0
    scores[2, [10, 99]] = 1.0
    decoder = Decoder(np.ones(100), "stationary", "logistic")
    assert_array_equal(decoder.choose(scores), [99, 40, 99])
